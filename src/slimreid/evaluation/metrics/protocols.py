"""Which gallery items are right, wrong or ignored for a query.

| protocol | ignored gallery items                                                          |
|----------|--------------------------------------------------------------------------------|
| `camera` | same identity and same camera (RGBNT201, RGBNT100, WMVeID863, Market-1501)     |
| `scene`  | same identity and same scene (MSVR310)                                         |
| `none`   | the very same sample, by `query_index` and `gallery_index`; without them, none |

What is left is right if it has the query's identity, and wrong otherwise. A query with nothing right left
is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slimreid.errors import DataError
from slimreid.evaluation.metrics.labels import EncodedLabels, Ints


@dataclass(frozen=True)
class Positives:
    """All gallery items with the identity of each of b queries, one after the other (a flat list of E).

    | field      | shape     | what                                    |
    |------------|-----------|-----------------------------------------|
    | `query`    | (E,)      | which of the b queries                  |
    | `item`     | (E,)      | gallery index, ascending within a query |
    | `is_match` | (E,) bool | a right answer; the others are ignored  |
    """

    query: Ints
    item: Ints
    is_match: np.ndarray[tuple[int], np.dtype[np.bool_]]


class PositiveIndex:
    """Finds the gallery items of a query's identity without looking at the others.

    Only those need a list: they are few, and every other item is simply wrong.
    """

    def __init__(self, labels: EncodedLabels) -> None:
        self.labels = labels
        self._by_identity = np.argsort(labels.gallery_ids, kind="stable")
        in_order = labels.gallery_ids[self._by_identity]
        self._first: Ints = np.searchsorted(in_order, labels.query_ids, side="left")
        self._count: Ints = np.searchsorted(in_order, labels.query_ids, side="right") - self._first

    @property
    def longest(self) -> int:
        """The most positives any query has."""
        return int(self._count.max(initial=0))

    def positives(self, start: int, stop: int) -> Positives:
        """The positives of queries `start` to `stop`, numbered from 0."""
        count = self._count[start:stop]
        query = np.repeat(np.arange(stop - start), count)
        within = np.arange(len(query)) - np.repeat(np.cumsum(count) - count, count)
        item = self._by_identity[np.repeat(self._first[start:stop], count) + within]
        is_match = np.ones(len(query), dtype=np.bool_)
        if self.labels.query_places is not None and self.labels.gallery_places is not None:
            is_match = self.labels.query_places[start + query] != self.labels.gallery_places[item]
        return Positives(query, item, is_match)

    def counts(self) -> tuple[Ints, Ints]:
        """Right answers and candidates (right or wrong, not ignored) of every query, (Q,) each."""
        Q, G = len(self.labels.query_ids), len(self.labels.gallery_ids)
        matches = np.zeros(Q, dtype=np.int64)
        ignored = np.zeros(Q, dtype=np.int64)
        step = max(1, 2**20 // max(1, self.longest))
        for start in range(0, Q, step):
            stop = min(Q, start + step)
            found = self.positives(start, stop)
            matches[start:stop] = np.bincount(found.query[found.is_match], minlength=stop - start)
            ignored[start:stop] = np.bincount(found.query[~found.is_match], minlength=stop - start)
        return matches, G - ignored


def no_match_error(labels: EncodedLabels) -> DataError:
    """What to say when no query at all has a right answer."""
    known = np.isin(labels.query_ids, labels.gallery_ids).any()
    if not known:
        return DataError(
            "no identity of the queries is in the gallery; are these the two sides of one dataset?"
        )
    reason = {
        "camera": "the gallery has them only from the same camera; mend the cameras or use 'none'",
        "scene": "the gallery has them only from the same scene; mend the scenes or use 'none'",
        "none": "the gallery has their identities only as the very same sample",
    }[labels.protocol]
    return DataError(f"no query has a right answer under protocol '{labels.protocol}': {reason}")
