"""The ranks of right answers, without sorting out where everything else lies.

Average precision, CMC and mINP need nothing but the ranks of a query's right answers, and those follow from
the *values* of all scores: rank = 1 + number of higher scores (+ equal ones before it in the gallery).
Sorting values alone is many times cheaper than an argsort.

Order: higher score first; among equal scores the lower gallery index first.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.evaluation.metrics.protocols import Positives

NO_RANK = torch.iinfo(torch.int64).max
"""Stands after the last rank of a query that has fewer right answers than others."""


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
    """Ranks from 1 of the right answers of each query, ascending, (b, n); `NO_RANK` fills short rows.

    `scores` (b, G) with ignored items at −inf, `ordered` (b, G) the same sorted; n is the largest number of
    right answers (at least 1).
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
