"""Which store a place means: a file, or a server by its URI."""

from __future__ import annotations

from pathlib import Path

from slimreid.errors import ConfigError
from slimreid.gallery.store.contract import Store
from slimreid.gallery.store.rows import ModelInfo
from slimreid.gallery.store.sqlite.store import SqliteStore

MILVUS = "milvus://"


def open_store(place: Path | str) -> Store:
    """Open a gallery: the path of a file, or `milvus://host:port/NAME`; raises `GalleryError`."""
    if str(place).startswith(MILVUS):
        from slimreid.gallery.store.milvus.store import MilvusStore

        return MilvusStore(str(place))
    return SqliteStore(Path(place))


def create_store(place: Path | str, model: ModelInfo) -> Store:
    """Make an empty gallery; raises `DataError` where there is something already."""
    if str(place).startswith(MILVUS):
        from slimreid.gallery.store.milvus.store import MilvusStore

        return MilvusStore.create(str(place), model)
    return SqliteStore.create(Path(place), model)


def open_or_create(place: Path | str, model: ModelInfo, bucket: str | None = None) -> Store:
    """Open a gallery, or make it for a model where there is none.

    `bucket`: of the cluster, for a gallery on Milvus; raises `ConfigError` for one in a file.
    """
    if str(place).startswith(MILVUS):
        from slimreid.gallery.store.milvus.store import MilvusStore, connect

        if connect(str(place)).exists():
            return MilvusStore(str(place), bucket)
        return MilvusStore.create(str(place), model, bucket)
    if bucket is not None:
        raise ConfigError(f"--bucket {bucket}: only a gallery on Milvus has one; leave it out for {place}")
    return open_store(place) if Path(place).exists() else create_store(place, model)
