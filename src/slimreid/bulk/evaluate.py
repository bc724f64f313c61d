"""Retrieval on a folder of embeddings: the gallery goes by in blocks and is never in memory as a whole."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import torch
from torch import Tensor

from slimreid.arrays import Bools, Floats, Ints
from slimreid.data.manifest import Protocol, Split
from slimreid.errors import DataError
from slimreid.evaluation.metrics.labels import Labels
from slimreid.evaluation.metrics.result import Interval, RetrievalResult, bootstrap_map
from slimreid.evaluation.metrics.retrieval import evaluate_scores
from slimreid.evaluation.metrics.scores import NO_SIMILARITY, tie_repeats
from slimreid.inference.embedding_sets.card import SetCard, read_card
from slimreid.inference.embedding_sets.tables import ROWS_FOLDER, feature_matrix, parquet_files, read_blocks
from slimreid.inference.similarity import Prepared, Similarity, presence
from slimreid.progress import progress

BLOCK_ROWS = 8192
MEMORY_MEGABYTES = 1024.0
_LABELS = ("id", "identity", "camera", "scene", "images")
_PLACES = {"camera": "camera", "scene": "scene", "none": "images"}
"""What each protocol compares, besides the identity."""


@dataclass(frozen=True, eq=False)
class EmbeddingsEvaluation:
    """How well the embeddings of a folder retrieve."""

    card: SetCard
    result: RetrievalResult
    interval: Interval
    """95 % interval of the mAP over identities; NaN bounds where there is only one."""
    queries: int
    gallery: int
    left_out: int
    """Rows of both sides that have no feature."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "manifest": self.card.manifest,
            "model": self.card.model,
            "fingerprint": self.card.fingerprint,
            "feature": self.card.feature,
            "modalities": list(self.card.modalities),
            "origin": self.card.origin,
            "queries": self.queries,
            "gallery": self.gallery,
            "left_out": self.left_out,
            **self.result.to_dict(),
            "interval": self.interval.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class _Side:
    """Rows of one split, n of them, by ascending id."""

    split: Split
    order: Ints
    """(n,): number of each in the order of the files."""
    identity: Ints
    place: Ints
    left_out: int

    def __len__(self) -> int:
        return len(self.order)


def evaluate_embeddings(
    folder: Path,
    protocol: Protocol | None = None,
    *,
    memory_megabytes: float = MEMORY_MEGABYTES,
    block_rows: int = BLOCK_ROWS,
    show_progress: bool | None = None,
) -> EmbeddingsEvaluation:
    """Rank the gallery rows of a folder of embeddings for its query rows.

    The figures are those of the features in memory, compared in the order of the ids. All queries are held,
    and scores of about `memory_megabytes`; the gallery is read once for each so many queries.
    Raises `DataError` where there are no queries, no gallery or no correct matches.
    """
    card, files = read_card(folder), parquet_files(folder / ROWS_FOLDER)
    protocol = protocol or card.protocol
    codes: _Codes = defaultdict(dict)
    query = _read_side(files, "query", protocol, codes)
    gallery = _read_side(files, "gallery", protocol, codes)
    for side in (query, gallery):
        if not len(side):
            raise DataError(f"{folder}: no {side.split} rows with features, so there is nothing to search")
    blocks = list(_features(files, "query", card.similarity, block_rows))
    features, present = (np.concatenate(part)[query.order] for part in zip(*blocks, strict=True))
    prepared = card.similarity.prepare(features, present)
    position = np.argsort(gallery.order)
    source = StreamedScores(card.similarity, prepared, files, position, block_rows, show_progress)
    plural = {"camera": "cameras", "scene": "scenes", "none": "index"}[protocol]
    labels = Labels(
        query_ids=query.identity,
        gallery_ids=gallery.identity,
        protocol=protocol,
        **{f"{side.split}_{plural}": side.place for side in (query, gallery)},
    )
    result = evaluate_scores(source, labels, top_k=0, roc=True, chunk_megabytes=memory_megabytes)
    return EmbeddingsEvaluation(
        card,
        result,
        bootstrap_map(result),
        queries=len(query),
        gallery=len(gallery),
        left_out=query.left_out + gallery.left_out,
    )


class StreamedScores:
    """Scores of queries against a gallery that is read from Parquet in blocks; a `ScoreSource`."""

    def __init__(
        self,
        similarity: Similarity,
        query: Prepared,
        files: Sequence[Path],
        position: Ints,
        block_rows: int = BLOCK_ROWS,
        show_progress: bool | None = None,
    ) -> None:
        self._similarity, self._query, self._files = similarity, query, files
        self._position, self._rows, self._show = position, block_rows, show_progress
        self._repeats = self._find_repeats()

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return len(self._query), len(self._position)

    def scores(self, start: int, stop: int) -> Tensor:
        """Similarities (stop − start, G), the gallery by ascending id."""
        G, query = len(self._position), self._query[start:stop]
        found = torch.empty(stop - start, G)
        blocks = -(-G // self._rows)
        shown = progress(
            self._blocks(), f"queries {start + 1:,} to {stop:,} of {len(self._query):,}", blocks, self._show
        )
        for position, block in shown:
            part = torch.from_numpy(self._similarity.scores(query, block))
            found[:, position] = part.nan_to_num_(nan=NO_SIMILARITY)
        return tie_repeats(found, self._repeats)

    def _blocks(self) -> Iterator[tuple[Ints, Prepared]]:
        """The gallery in the order of the files, and where each row stands by id."""
        at = 0
        for features, present in _features(self._files, "gallery", self._similarity, self._rows):
            yield self._position[at : at + len(features)], self._similarity.prepare(features, present)
            at += len(features)

    def _find_repeats(self) -> tuple[Tensor, Tensor] | None:
        """Gallery rows equal to an earlier one, and that earlier one, by a hash of 128 bits of each row."""
        D = self._query.values.shape[1] + 1
        factors = np.random.default_rng(0).integers(0, 2**64, (D, 2), dtype=np.uint64) | np.uint64(1)
        hashes = np.empty((len(self._position), 2), np.uint64)
        for position, block in self._blocks():
            words = np.column_stack([block.values.view(np.uint32), block.subset.astype(np.uint32)])
            hashes[position] = words.astype(np.uint64) @ factors
        whole = np.ascontiguousarray(hashes).view(np.dtype("V16")).reshape(-1)
        _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
        earlier = first[inverse.reshape(-1)]
        later = np.flatnonzero(earlier != np.arange(len(earlier)))
        return (torch.from_numpy(later), torch.from_numpy(earlier[later])) if len(later) else None


_Codes: TypeAlias = "defaultdict[str, dict[str, int]]"
"""Column -> a number for each of its names, the same on both sides."""


def _encode(values: pa.Array, numbers: dict[str, int]) -> Ints:
    """Names as numbers; new names get the next ones."""
    encoded = values.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    table = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
    found: Ints = table[encoded.indices.to_numpy()]
    return found


def _read_side(files: Sequence[Path], split: Split, protocol: Protocol, codes: _Codes) -> _Side:
    place = _PLACES[protocol]
    ids, identities, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    left_out = 0
    for batch in read_blocks(files, [*_LABELS, "split", "status"], 65536):
        mine = batch.filter(pc.equal(batch["split"], split))
        good = mine.filter(pc.equal(mine["status"], "ok"))
        left_out += len(mine) - len(good)
        ids.append(good["id"].to_numpy())
        identities.append(_encode(good["identity"], codes["identity"]))
        is_file = place == "images"
        places.append(_digests(good[place]) if is_file else _encode(good[place], codes[place]))
    order = np.argsort(np.concatenate(ids), kind="stable")
    return _Side(split, order, np.concatenate(identities)[order], np.concatenate(places)[order], left_out)


def _digests(texts: pa.Array) -> Ints:
    """A number for each sample, known by its files."""
    found = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts.to_pylist()]
    return np.frombuffer(b"".join(found), np.int64)


def _features(
    files: Sequence[Path], split: Split, similarity: Similarity, rows: int
) -> Iterator[tuple[Floats, Bools]]:
    """Features (n, D) and presence (n, M) of the rows of a split, in the order of the files."""
    for batch in read_blocks(files, ["split", "status", "modalities", "feature"], rows):
        good = batch.filter(pc.and_(pc.equal(batch["split"], split), pc.equal(batch["status"], "ok")))
        if len(good):
            present = presence(similarity.modalities, good["modalities"].to_pylist())
            yield feature_matrix(good["feature"]), present
