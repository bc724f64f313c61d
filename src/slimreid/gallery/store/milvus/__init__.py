"""A gallery on a Milvus server."""
