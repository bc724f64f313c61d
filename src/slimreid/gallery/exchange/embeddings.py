"""Folders of embeddings (`slimreid embed --out FOLDER`) as rows for a gallery, some at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from slimreid.data.manifest import images_from_json
from slimreid.errors import DataError
from slimreid.gallery.store.rows import ModelInfo, NewRow
from slimreid.inference.embedding_sets.card import SET_CARD_NAME, SetCard, read_card
from slimreid.inference.embedding_sets.tables import (
    ROWS_FOLDER,
    feature_matrix,
    parquet_files,
    read_blocks,
)

_LABELS = ("identity", "camera", "group", "time", "hash")


@dataclass(eq=False)
class EmbeddedRows:
    """The embeddings of one folder, or of some files of it."""

    place: Path
    card: SetCard
    files: Sequence[Path]
    left_out: Counter[str] = field(default_factory=Counter)
    """Rows without a feature by their status, counted as the others are read."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """None: a folder of embeddings has no settings of a gallery."""

    @classmethod
    def open(cls, path: Path) -> EmbeddedRows | None:
        """What a path means: such a folder, its folder of files, or one of these; None for anything else.

        Raises `DataError` for a folder that is damaged, or whose embedding has not been finished.
        """
        folders = (path, path.parent, path.parent.parent)
        folder = next((each for each in folders if (each / SET_CARD_NAME).is_file()), None)
        if folder is None:
            return None
        rows = folder / ROWS_FOLDER
        if path in (folder, rows):
            found = cls(path, read_card(folder), parquet_files(rows))
            found._check_finished()
            return found
        return cls(path, read_card(folder), [path]) if path.parent == rows else None

    def _check_finished(self) -> None:
        count = 0
        for path in self.files:
            try:
                count += pq.read_metadata(path).num_rows
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{path}: not a readable Parquet file of embeddings ({error})") from None
        if count != self.card.rows:
            raise DataError(
                f"{self.place}: {count:,} of {self.card.rows:,} rows are embedded; finish it first, with the "
                "same 'slimreid embed' command"
            )

    @property
    def model(self) -> ModelInfo:
        """The model that made the features."""
        card = self.card
        return ModelInfo(
            card.feature_fingerprint, card.feature, card.dimension, card.similarity, path=card.model
        )

    def chunks(self, size: int) -> Iterator[list[NewRow]]:
        """The rows that have a feature, at most `size` at a time; the others are counted.

        Raises `DataError` naming a damaged file.
        """
        self.left_out.clear()
        for batch in read_blocks(self.files, [*_LABELS, "images", "modalities", "feature", "status"], size):
            good = batch.filter(pc.equal(batch["status"], "ok"))
            self.left_out.update(status for status in batch["status"].to_pylist() if status != "ok")
            if len(good):
                yield _rows(good)

    def hashes(self, size: int) -> Iterator[list[str]]:
        """The hashes of the rows that have a feature, at most `size` at a time."""
        for batch in read_blocks(self.files, ["hash", "status"], size):
            yield batch.filter(pc.equal(batch["status"], "ok"))["hash"].to_pylist()


def _rows(batch: pa.RecordBatch) -> list[NewRow]:
    lines = batch.select([*_LABELS, "images", "modalities"]).to_pylist()
    found = []
    for line, feature in zip(lines, feature_matrix(batch["feature"]), strict=True):
        images, names = images_from_json(line.pop("images")), tuple(line.pop("modalities"))
        found.append(NewRow(feature, names, files={name: images[name] for name in names}, **line))
    return found
