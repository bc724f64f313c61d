"""Embeddings of more images than one file or one machine holds: Parquet, written by one process or by Ray."""
