"""Records of runs that never were, with any figures."""

from __future__ import annotations

import numpy as np

from slimreid.runs.record import FeatureFigures, RunRecord


def make_record(
    name: str, precisions: list[float], seed: int = 0, *, label: str = "", **changes: object
) -> RunRecord:
    """A record over 6 queries of 3 identities unless other `query_ids` are given."""
    values = np.array(precisions, dtype=np.float64)
    figures = FeatureFigures(
        map=float(np.nanmean(values)), minp=0.25, cmc={1: 0.5, 5: 0.75}, average_precision=values
    )
    fields: dict[str, object] = {
        "options": {"model.fusion": "mean"},
        "dataset": "rows",
        "data_name": "set",
        "data": {"sides": "a", "rgb": "b"},
        "select_on": "val",
        "epoch": 2,
        "protocol": "camera",
        "modalities": ("rgb",),
        "origin": "",
        "query_ids": np.array(["x", "x", "y", "y", "z", "z"]),
        "gallery": 6,
        "features": {"original": figures},
        "parameters": 1_500_000,
        "gflops": 0.25,
        "seconds": {"train": 10.0, "evaluate": 2.0},
    }
    return RunRecord(name=name, seed=seed, label=label or name, **{**fields, **changes})
