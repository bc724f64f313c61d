"""What a query found: its first gallery items, right and wrong ones, chosen and gathered for drawing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from slimreid.arrays import Bools, Floats, Ints
from slimreid.data.images.decode import read_pictures
from slimreid.data.manifest import Manifest, Sample, Window
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.metrics.labels import Labels
from slimreid.evaluation.metrics.ranking import PositiveIndex, mask_ignored, nearest
from slimreid.evaluation.metrics.result import RetrievalResult
from slimreid.evaluation.metrics.scores import NO_SIMILARITY, ScoreSource

Pictures = Mapping[str, Image.Image | None]
"""A picture per modality; None or missing = absent."""
Opener = Callable[[int], Pictures]
"""Gives the pictures of the n-th query or gallery item."""


@dataclass(frozen=True)
class FoundItem:
    """One gallery item of a rank list."""

    pictures: Pictures
    is_match: bool | None
    """None where nobody knows."""
    score: float
    camera: str
    label: str = ""
    """What stands below the score; '' = the camera."""


@dataclass(frozen=True)
class RankList:
    """A query and what it found, nearest first."""

    title: str
    query: Pictures
    query_camera: str
    items: list[FoundItem]


@dataclass(frozen=True, eq=False)
class FirstItems:
    """The first k gallery items of one query: index, score and whether it matches, (k,) each.

    Ignored items are not among them, and there may be fewer than asked for.
    """

    index: Ints
    score: Floats
    is_match: Bools

    @classmethod
    def from_result(cls, result: RetrievalResult, query: int, length: int = 10) -> FirstItems:
        """As a result keeps them; raises `DataError` if it kept fewer than `length` or has no such query."""
        Q, k = result.top_index.shape
        if not 0 <= query < Q:
            raise DataError(f"there is no query {query}; they are 0 to {Q - 1}")
        if length > k:
            raise DataError(f"the result keeps {k} items per query; evaluate with top_k of at least {length}")
        there = np.flatnonzero(result.top_index[query, :length] >= 0)
        return cls(
            result.top_index[query, there], result.top_score[query, there], result.top_is_match[query, there]
        )

    @classmethod
    def from_scores(cls, source: ScoreSource, labels: Labels, query: int, length: int = 10) -> FirstItems:
        """By scoring one query against the gallery; the row (1, G) is all that is computed.

        A query without a correct match is ranked all the same.
        """
        Q, G = source.shape
        if not 0 <= query < Q:
            raise DataError(f"there is no query {query}; they are 0 to {Q - 1}")
        encoded = labels.encoded
        positives = PositiveIndex(encoded).positives(query, query + 1)
        index, score = nearest(mask_ignored(source.scores(query, query + 1), positives), length)
        there = index[0] >= 0
        found = index[0][there].cpu().numpy()
        known = score.masked_fill(score <= NO_SIMILARITY, np.nan)[0][there].float().cpu().numpy()
        return cls(found, known, encoded.gallery_ids[found] == encoded.query_ids[query])


def choose_queries(
    result: RetrievalResult, best: int = 2, worst: int = 2, random: int = 2, seed: int = 0
) -> dict[str, list[int]]:
    """Queries worth looking at, by average precision: {"best": [...], "worst": [...], "random": [...]}.

    Each query appears once, and each list takes different identities while it can. Among equally good ones
    that with more correct matches comes first, as it is the harder. The same seed draws the same random ones.
    """
    if min(best, worst, random) < 0:
        raise ConfigError(f"numbers of queries must not be negative: {best}, {worst}, {random}")
    valid = np.flatnonzero(result.valid)
    precision, matches = result.average_precision[valid], result.matches[valid]
    orders = {
        "best": (valid[np.lexsort((valid, -matches, -precision))], best),
        "worst": (valid[np.lexsort((valid, -matches, precision))], worst),
        "random": (np.random.default_rng(seed).permutation(valid), random),
    }
    taken: set[int] = set()
    chosen = {}
    for name, (order, count) in orders.items():
        left = [int(q) for q in order if int(q) not in taken]
        chosen[name] = _spread_over_identities(left, result.query_ids, count)
        taken.update(chosen[name])
    return chosen


def _spread_over_identities(queries: Sequence[int], ids: NDArray[np.generic], count: int) -> list[int]:
    """The first queries of different identities, then the first of what is left."""
    first: dict[object, int] = {}
    for query in queries:
        first.setdefault(ids[query].item(), query)
    heads = list(first.values())
    rest = [query for query in queries if query not in set(heads)]
    return (heads + rest)[:count]


def rank_list(
    found: FirstItems,
    title: str,
    query: Pictures,
    query_camera: str,
    open_item: Opener,
    cameras: Sequence[str],
) -> RankList:
    """Gather what a rank list shows; `cameras` are those of the whole gallery."""
    items = [
        FoundItem(open_item(int(item)), bool(is_match), float(score), str(cameras[item]))
        for item, score, is_match in zip(found.index, found.score, found.is_match, strict=True)
    ]
    return RankList(title, query, query_camera, items)


def result_lists(
    result: RetrievalResult,
    chosen: Mapping[str, Sequence[int]],
    open_query: Opener,
    open_item: Opener,
    query_cameras: Sequence[str],
    gallery_cameras: Sequence[str],
    length: int = 10,
) -> list[RankList]:
    """The rank lists of chosen queries, each titled with why it was chosen and its average precision.

    Args:
        result: Retrieval with rank lists of at least `length` items.
        chosen: Query numbers by why they were chosen, see `choose_queries`.
        open_query: Query number -> its pictures.
        open_item: Gallery number -> its pictures.
        query_cameras: Names of the cameras of all queries.
        gallery_cameras: Names of the cameras of the whole gallery.
        length: Items per list.
    """
    lists = []
    for why, queries in chosen.items():
        for query in queries:
            title = f"{why} · query {query} · identity {result.query_ids[query]} · AP "
            title += f"{100 * result.average_precision[query]:.1f} · {result.matches[query]} correct matches"
            found = FirstItems.from_result(result, query, length)
            camera = str(query_cameras[query])
            lists.append(rank_list(found, title, open_query(query), camera, open_item, gallery_cameras))
    return lists


def open_samples(
    manifest: Manifest,
    samples: Sequence[Sample],
    windows: Mapping[str, Window] | None = None,
    without: Sequence[str] = (),
) -> Opener:
    """An opener of the pictures of some samples of a manifest; modalities in `without` count as absent."""

    def open_(number: int) -> Pictures:
        images = {name: ref for name, ref in samples[number].images.items() if name not in without}
        return read_pictures(images, manifest.root, windows)

    return open_
