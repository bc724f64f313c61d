"""Which gallery items are right, wrong or ignored for a query, and the ranks of the right ones.

| protocol | ignored gallery items                                                          |
|----------|--------------------------------------------------------------------------------|
| `camera` | same identity and same camera (RGBNT201, RGBNT100, WMVeID863, Market-1501)     |
| `scene`  | same identity and same scene (MSVR310)                                         |
| `none`   | the very same sample, by `query_index` and `gallery_index`; without them, none |

What is left is right if it has the query's identity, and wrong otherwise. A query with nothing right left
is skipped.

Average precision, CMC and mINP need nothing but the ranks of a query's correct matches, and those follow from
the *values* of all scores: rank = 1 + number of higher scores (+ equal ones before it in the gallery).
Sorting values alone is many times cheaper than an argsort. Order: higher score first; among equal scores the
lower gallery index first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.arrays import Ints
from slimreid.errors import DataError
from slimreid.evaluation.metrics.labels import EncodedLabels, Labels

NO_RANK = torch.iinfo(torch.int64).max
"""Stands after the last rank of a query that has fewer correct matches than others."""


@dataclass(frozen=True)
class Positives:
    """All gallery items with the identity of each of b queries, one after the other (a flat list of E).

    | field      | shape     | what                                    |
    |------------|-----------|-----------------------------------------|
    | `query`    | (E,)      | which of the b queries                  |
    | `item`     | (E,)      | gallery index, ascending within a query |
    | `is_match` | (E,) bool | a correct match; the others are ignored  |
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
        """Correct matches and candidates (right or wrong, not ignored) of every query, (Q,) each."""
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


def has_matches(labels: Labels) -> bool:
    """Whether any query has a correct match."""
    return bool((PositiveIndex(labels.encoded).counts()[0] > 0).any())


def no_match_error(labels: EncodedLabels) -> DataError:
    """What to say when no query at all has a correct match."""
    known = np.isin(labels.query_ids, labels.gallery_ids).any()
    if not known:
        return DataError(
            "no identity of the queries is in the gallery; are these the two sides of one dataset?"
        )
    reason = {
        "camera": "the gallery has them only from the same camera; correct the cameras or use 'none'",
        "scene": "the gallery has them only from the same scene; correct the scenes or use 'none'",
        "none": "the gallery has their identities only as the very same sample",
    }[labels.protocol]
    return DataError(f"no query has a correct match under protocol '{labels.protocol}': {reason}")


def mask_ignored(scores: Tensor, positives: Positives) -> Tensor:
    """Scores (b, G) with −inf for every ignored item, in place."""
    ignored = ~positives.is_match
    rows, columns = positives.query[ignored], positives.item[ignored]
    scores[_index(rows, scores), _index(columns, scores)] = -torch.inf
    return scores


def sort_values(scores: Tensor) -> Tensor:
    """Every row of (b, G) in ascending order, as a copy."""
    if scores.device.type == "cpu":
        # numpy sorts values with vector instructions; torch carries indices along, 15 times slower.
        return torch.from_numpy(np.sort(scores.numpy(), axis=1))
    return scores.sort(dim=1).values


def rank_matches(scores: Tensor, ordered: Tensor, positives: Positives) -> Tensor:
    """Ranks from 1 of the correct matches of each query, ascending, (b, n); `NO_RANK` fills short rows.

    `scores` (b, G) with ignored items at −inf, `ordered` (b, G) the same sorted; n is the largest number of
    correct matches (at least 1).
    """
    B, G = scores.shape
    query, item = positives.query[positives.is_match], positives.item[positives.is_match]
    matches = np.bincount(query, minlength=B)
    n = max(1, int(matches.max(initial=0)))
    within = np.arange(len(query)) - np.repeat(np.cumsum(matches) - matches, matches)
    rows, columns, slots = (_index(part, scores) for part in (query, item, within))

    values = torch.full((B, n), torch.inf, device=scores.device, dtype=scores.dtype)
    values[rows, slots] = scores[rows, columns]
    higher = G - torch.searchsorted(ordered, values, right=True)
    equal = G - torch.searchsorted(ordered, values) - higher
    ranks = torch.full_like(higher, NO_RANK)
    ranks[rows, slots] = higher[rows, slots] + 1

    tied = equal[rows, slots] > 1
    if bool(tied.any()):
        before = _count_equal_before(scores, rows[tied], columns[tied])
        ranks[rows[tied], slots[tied]] += before
    return ranks.sort(dim=1).values


def _count_equal_before(scores: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """For each (row, column): how many items further left have exactly its score."""
    before = torch.zeros_like(rows)
    for row in torch.unique(rows).tolist():
        of_row = (rows == row).nonzero().flatten()
        values = scores[row, columns[of_row]]
        for value in torch.unique(values):
            equal = (scores[row] == value).nonzero().flatten()
            chosen = of_row[values == value]
            before[chosen] = torch.searchsorted(equal, columns[chosen])
    return before


def nearest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The first k items of each row: index (b, k) and score (b, k); −1 and −inf where fewer are left.

    `scores` (b, G), ignored items at −inf.
    """
    B, G = scores.shape
    found = min(k, G)
    values, index = scores.topk(min(k + 1, G), dim=1)
    # topk may choose any of the items that tie for the last place; the lower index must win.
    limit = values[:, found - 1 : found]
    crowded = (values[:, found:] == limit).any(dim=1)
    index = index[:, :found].sort(dim=1).values
    for row in crowded.nonzero().flatten().tolist():
        above = (scores[row] > limit[row]).nonzero().flatten()
        level = (scores[row] == limit[row]).nonzero().flatten()[: found - len(above)]
        index[row] = torch.cat([above, level]).sort().values
    values, order = scores.gather(1, index).sort(dim=1, descending=True, stable=True)
    index = index.gather(1, order).masked_fill(values == -torch.inf, -1)
    missing = (0, k - found)
    return F.pad(index, missing, value=-1), F.pad(values, missing, value=-torch.inf)


def _index(values: np.ndarray[tuple[int], np.dtype[np.int64]], like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like.device)
