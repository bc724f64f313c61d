"""Folders of embeddings in Parquet: the card of a folder, and the tables of its rows."""
