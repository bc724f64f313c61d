"""One process embeds the rows, part by part; a part that is there is not made again."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from slimreid.bulk.embedder import Embedding, RowEmbedder
from slimreid.inference.embedding_sets.tables import parquet_files, write_table
from slimreid.inference.loaded_model import LoadedModel


def embed_locally(images: Path, rows: Path, embedding: Embedding, loaded: LoadedModel) -> None:
    """Embed every Parquet file of rows of images into one of the same name with their embeddings."""
    embedder = RowEmbedder(embedding, loaded)
    for path in parquet_files(images):
        target = rows / path.name
        if not target.exists():
            write_table(target, embedder(pq.read_table(path)))
