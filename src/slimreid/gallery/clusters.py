"""Identities for rows that have none: proposed as a table to edit, taken back in by `assign`."""

from __future__ import annotations

import csv
import io
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slimreid.errors import DataError
from slimreid.files import csv_text
from slimreid.gallery.decisions.calibration import ANY, unsure_rate
from slimreid.gallery.decisions.clustering import propose_identities
from slimreid.gallery.errors import GalleryError
from slimreid.gallery.identification import present_bound, read_calibration
from slimreid.gallery.store.contract import Store
from slimreid.gallery.store.rows import Filter, Row
from slimreid.inference.similarity import presence

PREFIX = "cluster-"
_COLUMNS = ("row", "identity", "camera", "file")


@dataclass(frozen=True)
class Proposal:
    """Proposed identities of rows."""

    rows: dict[str, list[Row]]
    """Proposed name -> its rows; the largest first. '' = rows that resemble no other."""
    threshold: float

    def identities(self) -> dict[int, str]:
        """Row -> proposed name, as `assign` takes it."""
        return {row.id: name for name, rows in self.rows.items() for row in rows if name}


def propose(store: Store, which: Filter, rate: float, threshold: float | None = None) -> Proposal:
    """Cluster rows that are alike at the threshold of a rate, or at a given one.

    Raises `GalleryError` where there is neither a valid calibration nor a threshold, or no row.
    """
    rows = store.rows(which)
    if not rows:
        raise GalleryError(f"{store.place}: no row to cluster")
    similarity = store.model.similarity
    if threshold is None:
        calibration = read_calibration(store)
        validity = None if calibration is None else calibration.valid_for(present_bound(store))
        if calibration is None or not validity:
            why = "it is not calibrated" if validity is None else validity.reason
            raise GalleryError(f"{store.place}: {why}; calibrate it, or give a threshold")
        point = calibration.point(ANY, unsure_rate(rate))  # links are averages: the strict one finds few
        if point.threshold is None:
            raise GalleryError(f"{store.place}: {point.refusal}; or give a threshold")
        similarity, threshold = calibration.similarity, point.threshold.value
    features = store.features([row.id for row in rows])
    present = presence(store.model.modalities, [row.modalities for row in rows])
    labels = propose_identities(similarity, features, threshold, present).labels
    taken = store.identities()
    names = _free_names(int(labels.max(initial=-1)) + 1, taken)
    found: dict[str, list[Row]] = defaultdict(list)
    for number in np.argsort(np.where(labels < 0, np.iinfo(np.int64).max, labels), kind="stable"):
        found["" if labels[number] < 0 else names[labels[number]]].append(rows[number])
    return Proposal(dict(found), threshold)


def _free_names(count: int, taken: dict[str, int]) -> list[str]:
    """Names that no identity has."""
    free = (name for name in (f"{PREFIX}{number}" for number in itertools.count(1)) if name not in taken)
    return list(itertools.islice(free, count))


def table_text(proposal: Proposal) -> str:
    """A proposal as CSV: change the names, leave a cell empty for nobody, and give it to `assign`."""
    lines: list[Sequence[object]] = [_COLUMNS]
    for name, rows in proposal.rows.items():
        for row in rows:
            first = next(iter(row.files.values()), None)
            lines.append([row.id, name, row.camera, first.path if first else ""])
    return csv_text(lines)


def read_table(path: Path) -> dict[int, str]:
    """Row -> identity of a CSV with columns `row` and `identity`; raises `DataError` naming the line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    reader = csv.DictReader(io.StringIO(text))
    lacking = {"row", "identity"} - set(reader.fieldnames or ())
    if lacking:
        raise DataError(f"{path}: no column '{min(lacking)}'; write a header row,identity")
    found: dict[int, str] = {}
    for line in reader:
        word = (line["row"] or "").strip()
        if not word.isdecimal():
            raise DataError(f"{path}: line {reader.line_num}: '{word}' is not the number of a row")
        found[int(word)] = (line["identity"] or "").strip()
    if not found:
        raise DataError(f"{path}: no lines")
    return found
