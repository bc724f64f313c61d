"""Search on Milvus: candidates by the server, scores by `Similarity` here.

The server knows inner products only. For each combination of modalities that rows have it is asked, with the
query cut to the blocks both share, for a few times as many rows as wanted; these are compared exactly.
Where a query has everything that a row has, the server's order is that of the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from slimreid.arrays import Floats
from slimreid.gallery.store.milvus.collections import MOST, Collections, text_key
from slimreid.gallery.store.rows import Found, split_modalities
from slimreid.inference.similarity import Prepared, Similarity, presence

TIMES, MORE = 4, 50
"""Rows asked for: so many times the number wanted and so many more."""


def read_vectors(collections: Collections, name: str, ids: Sequence[int]) -> dict[int, Floats]:
    """Features of those rows that are there."""
    lines = collections.ask_rows(name, ids, ["id", "vector"])
    return {int(line["id"]): np.array(line["vector"], dtype=np.float32) for line in lines}


def search(
    collections: Collections,
    name: str,
    query: Prepared,
    k: int,
    condition: Callable[[str], str],
    combinations: Sequence[str],
    similarity: Similarity,
) -> list[Found]:
    """The k best rows of each query; `condition` of the key of a combination of modalities."""
    limit = min(TIMES * k + MORE, MOST)
    found: list[dict[int, tuple[str, str]]] = [{} for _ in range(len(query))]
    for text in combinations:
        present = presence(similarity.modalities, [split_modalities(text)])
        subset = similarity.subset_numbers(present, 1)[0]
        members = np.flatnonzero(similarity.shares[query.subset, subset])
        if not len(members):
            continue
        values = _shared(similarity, query, members, int(subset))
        with collections.explained():
            hits = collections.client.search(
                f"{collections.name}_{name}",
                data=values.tolist(),
                limit=limit,
                filter=condition(text_key(text)),
                output_fields=["identity"],
            )
        for number, lines in zip(members.tolist(), hits, strict=True):
            found[number] |= {int(hit["id"]): (hit["entity"]["identity"], text) for hit in lines}
    vectors = read_vectors(collections, name, sorted({row for each in found for row in each}))
    return [_ranked(similarity, query, n, rows, vectors, k) for n, rows in enumerate(found)]


def _shared(similarity: Similarity, query: Prepared, members: np.ndarray, subset: int) -> Floats:
    """Queries (n, D) cut to the blocks that they share with rows of a subset."""
    held = similarity.holds[query.subset[members]] & similarity.holds[subset]
    B, (n, D) = len(similarity.blocks), query.values[members].shape
    blocks = query.values[members].reshape(n, B, D // B) * held[..., None]
    cut: Floats = blocks.reshape(n, D).astype(np.float32)
    return cut


def _ranked(
    similarity: Similarity,
    query: Prepared,
    number: int,
    rows: Mapping[int, tuple[str, str]],
    vectors: Mapping[int, Floats],
    k: int,
) -> Found:
    """Candidates of one query by their exact scores."""
    ids = np.array(sorted(row for row in rows if row in vectors), dtype=np.int64)
    if not len(ids):
        return Found(ids, np.zeros(0, dtype=np.float32), ())
    present = presence(similarity.modalities, [split_modalities(rows[i][1]) for i in ids.tolist()])
    gallery = similarity.prepare(np.stack([vectors[i] for i in ids.tolist()]), present)
    scores = similarity.scores(query[np.array([number])], gallery)[0]
    order = [i for i in np.lexsort((ids, -scores)).tolist() if np.isfinite(scores[i])][:k]
    return Found(ids[order], scores[order], tuple(rows[int(ids[i])][0] for i in order))
