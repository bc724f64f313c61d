"""Galleries in and out: Parquet files, and copies from one store to another."""
