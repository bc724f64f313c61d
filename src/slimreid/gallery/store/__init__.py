"""Where a gallery is kept: one contract, a file on this machine (SQLite) or a Milvus server."""
