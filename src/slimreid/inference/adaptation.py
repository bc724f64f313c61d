"""Adaptation to a site: the mean feature of each of its cameras is subtracted. Needs numpy only.

Features of one camera share an offset that has nothing to do with who is seen: light, colours, sharpness. A
feature is made of blocks, each computed from some of the modalities; each block of each camera has its own
mean. It is taken off the blocks that a sample has, which are then L2-normalised again where the model
normalises them; blocks of one modality that it lacks are filled anew as the model fills them.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimreid.arrays import Bools, Doubles, Floats, Ints

logger = logging.getLogger(__name__)


_MEANS, _COUNTS, _IMAGES = "means.", "counts", "images"
"""Names of the arrays in a file."""


@dataclass(frozen=True, eq=False)
class Adaptation:
    """What a model knows of the K cameras of a site."""

    cameras: tuple[str, ...]
    """Names of the cameras."""
    means: Mapping[str, Floats]
    """Per branch of the model (K + 1, S, C): the mean of each of its S blocks; the last row is that of the
    whole site, for cameras that are not known. Zeros for blocks that were not seen."""
    counts: Ints
    """(K,): samples of each camera that were counted."""
    images: Ints
    """(n,), ascending: beginnings of the hashes of the images that were counted."""
    source: str
    """Short name of the data."""
    told: set[str] = field(default_factory=set, repr=False)
    """Cameras of which was said that they are not known."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all that decides features."""
        found = hashlib.sha256(json.dumps(self.cameras).encode())
        for branch, means in sorted(self.means.items()):
            found.update(f"\0{branch}\0{means.shape}\0".encode())
            found.update(np.ascontiguousarray(means).data)
        return found.hexdigest()

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays, for a file; `values` holds the rest."""
        means = {f"{_MEANS}{branch}": np.ascontiguousarray(table) for branch, table in self.means.items()}
        return {**means, _COUNTS: self.counts, _IMAGES: self.images}

    @property
    def values(self) -> dict[str, Any]:
        """What is no array, ready for JSON."""
        return {"cameras": list(self.cameras), "source": self.source}


def tell_unknown(adaptation: Adaptation, names: Collection[str | None]) -> None:
    """Say of cameras that a model was not adapted to what becomes of them, of each once."""
    new = [name or "" for name in names if (name or "") not in adaptation.told]
    if not new or not adaptation.cameras:  # without cameras the mean of the site is all there is
        return
    adaptation.told.update(new)
    shown = ", ".join(f"'{name}'" if name else "one that is not named" for name in sorted(new)[:5])
    logger.warning(
        "camera unknown to the adapted model: %s; it gets the mean of the site (known: %s)",
        shown,
        ", ".join(adaptation.cameras[:10]),
    )


def adaptation_from(values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Adaptation:
    """The adaptation of a file; raises `KeyError` where something lacks."""
    return Adaptation(
        tuple(values["cameras"]),
        {name.removeprefix(_MEANS): table for name, table in arrays.items() if name.startswith(_MEANS)},
        arrays[_COUNTS],
        arrays[_IMAGES],
        values["source"],
    )


def subtract_means(blocks: Floats, holds: Bools, means: Floats, *, unit: bool, fill: float | None) -> Floats:
    """Blocks (B, S, C) without the means (B, S, C) of their cameras, where a sample `holds` (B, S) them.

    `unit`: the blocks are L2-normalised, and are so again. Blocks that a sample lacks become `fill` times the
    mean of those it has; None = they stay as they are.
    """
    shifted = blocks - means
    if unit:
        shifted /= np.maximum(np.linalg.norm(shifted, axis=2, keepdims=True), np.float32(1e-12))
    there = holds[..., None]
    if fill is None:
        return np.where(there, shifted, blocks)
    mean = (shifted * there).sum(axis=1, keepdims=True) / np.maximum(there.sum(axis=1, keepdims=True), 1)
    return np.where(there, shifted, fill * mean).astype(np.float32)


def shrunk_means(blocks: Floats, holds: Bools, camera: Ints, cameras: int) -> Floats:
    """Means (K + 1, S, C) per camera and block of N samples, and last that of all.

    blocks (N, S, C), of which a sample `holds` (N, S) some; camera (N,) in 0 … K − 1, or −1 where it is not
    named. The mean of a camera is
    drawn to that of all the more, the fewer its samples are and the less cameras differ: with n samples it
    counts n / (n + w / b), where w is the variance within cameras and b that between them (empirical Bayes).
    """
    N, S, C = blocks.shape
    found = np.zeros((cameras + 1, S, C), np.float32)
    for s in range(S):
        rows = np.flatnonzero(holds[:, s])
        if not len(rows):
            continue
        seen, own = blocks[rows, s].astype(np.float64), camera[rows]
        everything = seen.mean(axis=0)
        seen, own = seen[own >= 0], own[own >= 0]
        counts = np.bincount(own, minlength=cameras)
        sums = np.zeros((cameras, C))
        np.add.at(sums, own, seen)
        means = sums / np.maximum(counts, 1)[:, None]
        weight = _weights(seen, own, counts, means)[:, None]
        found[:cameras, s] = weight * means + (1 - weight) * everything
        found[cameras, s] = everything
    return found


def _weights(seen: Doubles, own: Ints, counts: Ints, means: Doubles) -> Doubles:
    """How much the mean of each camera counts against that of all (K,), in 0 … 1."""
    there = np.flatnonzero(counts)
    within_freedom = len(seen) - len(there)
    if len(there) < 2 or within_freedom < 1:
        return np.zeros(len(counts))
    within = float(((seen - means[own]) ** 2).sum()) / within_freedom
    spread = means[there] - means[there].mean(axis=0)
    between = float((spread**2).sum()) / (len(there) - 1) - within * float((1 / counts[there]).mean())
    if between <= 0:
        return np.zeros(len(counts))
    return np.asarray(counts / (counts + within / between))
