"""Embeddings on disk: one file, or a folder in Parquet with its card and the tables of its rows."""
