"""Who is this? Calibrate a gallery, and decide by the calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from slimreid.data.images.hashing import content_hash
from slimreid.errors import DataError
from slimreid.gallery.answers import best_identities
from slimreid.gallery.decisions.calibration import RATES, Bound, Calibration, calibrate
from slimreid.gallery.decisions.identify import Candidate, Decision, identify
from slimreid.gallery.decisions.rates import LEAST_IDENTITIES
from slimreid.gallery.decisions.scale import Samples, site_similarity
from slimreid.gallery.decisions.searches import Searches, join_searches
from slimreid.gallery.embedder import Embedder, embed_samples, prepare, seen_in
from slimreid.gallery.enrolment.sources import Source
from slimreid.gallery.queries import Query
from slimreid.gallery.store.contract import CALIBRATION, Store
from slimreid.gallery.store.rows import Change, Filter, Row, in_parts
from slimreid.inference.similarity import Prepared, Similarity, presence
from slimreid.modalities import subset_name
from slimreid.progress import progress

CANDIDATES = 10
"""Identities that an answer may list."""
HELD_OUT = 0.3
"""Share of the identities by which the promised rates are checked."""
_AT_ONCE = 256
_MOST_FITTED = 20_000
"""Rows that the scale of the scores is estimated from at most."""


@dataclass(frozen=True)
class Identification:
    """The answer for one query."""

    query: str
    modalities: tuple[str, ...]
    decision: Decision

    def to_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        found = self.decision
        return {
            "query": self.query,
            "modalities": list(self.modalities),
            "state": found.state,
            "name": found.name,
            "reason": found.reason,
            "rate": found.rate,
            "candidates": [vars(candidate) for candidate in found.candidates],
        }


def present_bound(store: Store) -> Bound:
    """Features and size of a gallery as it is now."""
    sizes = store.identities()
    return Bound(store.model.fingerprint, len(set(sizes) - {""}), sum(sizes.values()))


def read_calibration(store: Store) -> Calibration | None:
    """The calibration of a gallery, None for none; raises `DataError` where it is damaged."""
    text = store.settings().get(CALIBRATION)
    return None if text is None else Calibration.from_json(text)


def decide(store: Store, query: Query, rate: float, which: Filter, by: str) -> list[Identification]:
    """Who each query is, at a rate of false positives (FPIR) that the user accepts; noted in the log."""
    calibration, now = read_calibration(store), present_bound(store)
    scale = calibration.similarity if calibration is not None and calibration.valid_for(now) else None
    found = best_identities(store, query.prepared, CANDIDATES, which, scale)
    answers = []
    for name, seen, rows in zip(query.names, query.modalities, found, strict=True):
        candidates = [
            Candidate(who, float(score)) for who, score in zip(rows.identities, rows.scores, strict=True)
        ]
        subset = subset_name(seen, store.model.modalities)
        decision = identify(candidates, calibration, now, subset=subset, rate=rate)
        answers.append(Identification(name, seen, decision))
    known = sum(answer.decision.state == "known" for answer in answers)
    store.note("identify", by, known, {"queries": list(query.sources), "rate": rate})
    return answers


@dataclass(frozen=True, eq=False)
class Probes:
    """Samples of known identity that a calibration searches for."""

    query: Prepared
    features: np.ndarray[tuple[int, int], np.dtype[np.float32]]
    present: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    identities: Sequence[str]
    own: Sequence[Row | None]
    """The row that each is itself: it and its tracklet do not count as found. None for another sample."""


def rows_as_probes(store: Store, trained: Sequence[str] = ()) -> Probes:
    """The rows of a gallery as searches, except those of unknown identity and of `trained` ones.

    Raises `DataError` where none is left.
    """
    rows = [row for row in store.rows() if row.identity and row.identity not in set(trained)]
    if not rows:
        raise DataError(
            f"{store.place}: no row to calibrate with: enrol identities the model was not trained on"
        )
    info = store.model
    features = np.concatenate(
        [store.features([row.id for row in piece]) for piece in in_parts(rows, _AT_ONCE)]
    )
    present = presence(info.modalities, [row.modalities for row in rows])
    names = [row.identity for row in rows]
    return Probes(prepare(info, features, present), features, present, names, rows)


def samples_as_probes(store: Store, model: Embedder, source: Source) -> Probes:
    """Samples of known identity as searches; samples that are rows of the gallery do not find themselves.

    Raises `DataError` where none has an identity.
    """
    samples = [sample for sample in source.samples if sample.identity]
    if not samples:
        raise DataError("no sample to calibrate with has an identity; name them by folders or in a manifest")
    info = store.model
    parts = []
    for piece in progress(in_parts(samples, _AT_ONCE), "embedding"):
        images, cameras = [dict(sample.images) for sample in piece], [sample.camera for sample in piece]
        parts.append(embed_samples(model, info.feature, images, cameras))
    features = np.concatenate(parts)
    hashes = [content_hash(sample.images) for sample in samples]
    rows = {row.hash: row for row in store.rows(Filter(hashes=hashes))}
    present = presence(info.modalities, [sample.images for sample in samples])
    names = [sample.identity for sample in samples]
    own = [rows.get(digest) for digest in hashes]
    return Probes(prepare(info, features, present), features, present, names, own)


def calibrate_store(
    store: Store,
    probes: Probes,
    by: str,
    *,
    rates: Sequence[float] = RATES,
    show_progress: bool | None = None,
) -> Calibration:
    """Calibrate a gallery by searches for probes, and keep the calibration in it.

    A part of the identities is held out from scale and thresholds, to measure the rates that are achieved.

    Args:
        store: Gallery to calibrate.
        probes: Samples of known identity to search for.
        by: Who calibrates, for the log.
        rates: Accepted false positive identification rates (FPIR).
        show_progress: Force the progress bar on or off; None = in a terminal.

    Raises:
        DataError: Where there are too few identities or searches.
        GalleryError: Where the gallery cannot be written.
    """
    names = np.unique(np.asarray(probes.identities))
    count = round(HELD_OUT * len(names)) if len(names) >= 2 * LEAST_IDENTITIES else 0
    held = set(np.random.default_rng(0).permutation(names)[:count].tolist())
    is_held = np.array([name in held for name in probes.identities])
    fitted = np.flatnonzero(~is_held)
    if len(fitted) > _MOST_FITTED:
        fitted = np.sort(np.random.default_rng(0).choice(fitted, _MOST_FITTED, replace=False))
    samples = Samples(probes.features[fitted], probes.present[fitted], np.asarray(probes.identities)[fitted])
    scale = site_similarity(store.model.similarity, samples)
    found = join_searches(list(_searches(store, probes, scale, show_progress)))
    calibration = calibrate(
        found[~is_held],
        present_bound(store),
        scale,
        held_out=found[is_held] if count else None,
        rates=rates,
    )
    kept = {CALIBRATION: calibration.to_json()}
    store.commit(Change("calibrate", by, {"rates": list(rates)}, settings=kept, count=len(found)))
    return calibration


def _searches(
    store: Store, probes: Probes, scale: Similarity, show_progress: bool | None
) -> Iterator[Searches]:
    modalities = store.model.modalities
    numbers = range(len(probes.identities))
    for part in progress(in_parts(numbers, _AT_ONCE), "searching", show=show_progress):
        names = [probes.identities[i] for i in part]
        subsets = [subset_name(seen, modalities) for seen in seen_in(modalities, probes.present[part])]
        nearest = best_identities(store, probes.query[np.array(part)], 2, Filter(), scale)
        other = [
            next((float(s) for s, who in zip(f.scores, f.identities, strict=True) if who != name), np.nan)
            for name, f in zip(names, nearest, strict=True)
        ]
        own = [_own_score(store, probes, i, scale) for i in part]
        yield Searches(np.asarray(names), np.array(other), np.array(own), np.asarray(subsets))


def _own_score(store: Store, probes: Probes, number: int, scale: Similarity) -> float:
    """Best score of the other rows of a probe's identity; NaN for none."""
    itself = probes.own[number]
    which = Filter(identities=[probes.identities[number]])
    count = 1
    while True:
        found = store.search(probes.query[np.array([number])], count, which, scale)[0]
        same = set() if itself is None else {itself.id}
        if itself is not None and itself.group and len(found.ids):
            rows = store.rows(Filter(ids=found.ids.tolist()))
            same |= {row.id for row in rows if row.group == itself.group}
        for row, score in zip(found.ids.tolist(), found.scores.tolist(), strict=True):
            if row not in same:
                return float(score)
        if len(found.ids) < count:
            return float("nan")
        count *= 8
