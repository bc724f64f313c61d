"""Tables of experiments on the choice of patches and on missing modalities; figures are points of 100."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from slimreid.evaluation.reports.formatting import NOTHING, markdown_table, points
from slimreid.evaluation.reports.missing import MissingMatrix
from slimreid.runs.comparison import spread_of
from slimreid.runs.record import RunRecord
from slimreid.runs.tables import spread_text

Groups = Mapping[str, Sequence[RunRecord]]
"""Runs by label; those of a label differ by their seed."""


def selection_table(groups: Groups) -> str:
    """What became of the choice, for the runs that were watched; '' if none was.

    Figures of the mask are those of the epoch that was chosen; the gradient is its median in the first and
    the last epoch, and the largest of all updates.
    """
    rows = []
    for label, group in groups.items():
        watched = [record for record in group if record.selection]
        if watched:
            rows.append([label, *_selection_cells(watched)])
    if not rows:
        return ""
    columns = ["model", "on object", "by chance", "recall", "IoU", "kept again, first", "kept again, last"]
    columns += ["gradient, first", "gradient, last", "largest"]
    note = (
        "On object: share of the kept patches that shows it, at the chosen epoch, on samples that stay. "
        "Kept again: share of the kept patches that were kept an epoch before, in the first and last epoch. "
        "Gradient: norm over the parameters of the score, median of the epoch."
    )
    return "Kept patches\n\n" + markdown_table(columns, rows) + "\n" + note + "\n"


def _selection_cells(records: Sequence[RunRecord]) -> list[str]:
    cells = []
    for name in ("on_object", "chance", "recall", "iou"):
        values = [record.selection[name][_place(record)] for record in records]
        cells.append(_spread([value for value in values if value is not None]))
    for at in (1, -1):
        values = [r.selection["same"][at] for r in records if len(r.selection["same"]) > 1]
        cells.append(_spread([value for value in values if value is not None]))
    for name, at in (("gradient", 1), ("gradient", -1)):
        norms = [r.selection[name][at] for r in records if len(r.selection[name]) > 1]
        cells.append(_scientific([norm for norm in norms if norm is not None]))
    largest = [n for r in records for n in r.selection["gradient_max"] if n is not None]
    return [*cells, f"{max(largest):.1e}" if largest else NOTHING]


def _place(record: RunRecord) -> int:
    """Where the chosen epoch stands in the lists of a record; the last where it was not watched."""
    epochs = record.selection["epoch"]
    return int(epochs.index(record.epoch)) if record.epoch in epochs else len(epochs) - 1


def _spread(values: Sequence[float]) -> str:
    return spread_text(spread_of(values)) if values else NOTHING


def _scientific(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.1e}" if values else NOTHING


def subsets_table(groups: Groups, feature: str) -> str:
    """mAP of every arm when query and gallery lack the same modalities, and the mean when they differ.

    '' where no run was measured so.
    """
    rows, names = [], []
    for label, group in groups.items():
        kind = feature if feature in group[0].missing else "original"
        matrices = [MissingMatrix.from_dict(r.missing[kind]) for r in group if kind in r.missing]
        if not matrices or len(matrices[0].subsets) < 2:
            continue
        names = ["+".join(subset) for subset in matrices[0].subsets]
        alike = [[float(m.map[i, i]) for m in matrices] for i in range(len(names))]
        apart = [float(np.nanmean(m.map[~np.eye(len(names), dtype=bool)])) for m in matrices]
        rows.append([label, *(_spread(values) for values in alike), _spread(apart)])
    if not rows:
        return ""
    note = f"mAP ({feature}) with query and gallery in the same modalities; chance {_chance(groups, feature)}"
    return f"{note}\n\n" + markdown_table(["model", *names, "different (mean)"], rows)


def _chance(groups: Groups, feature: str) -> str:
    for group in groups.values():
        for record in group:
            for kind in (feature, "original"):
                if kind in record.missing:
                    return points(MissingMatrix.from_dict(record.missing[kind]).chance)
    return NOTHING
