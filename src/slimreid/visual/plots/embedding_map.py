"""Embeddings in the plane by t-SNE: who lies together, and whether by person or by camera."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from slimreid.arrays import Doubles, Ints
from slimreid.errors import DataError
from slimreid.files import natural_key
from slimreid.visual.style import LIGHT, Look, check_names, marker, new_axes

Features = NDArray[np.floating]

_PCA = 50
"""Channels that t-SNE gets: more cost time and change little."""
_LETTER = np.array([0.021, 0.055])
"""Width and height of a letter of a name, as shares of the map."""


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Features (R, D) of one run, with identity and camera of each row."""

    features: Features
    identities: Sequence[str]
    cameras: Sequence[str]

    def __post_init__(self) -> None:
        R = len(self.features)
        if self.features.ndim != 2 or len(self.identities) != R or len(self.cameras) != R:
            raise DataError(
                f"features {self.features.shape} need as many identities and cameras, not "
                f"{len(self.identities)} and {len(self.cameras)}"
            )


def choose_points(
    identities: Sequence[str], max_identities: int = 12, max_points: int = 400, seed: int = 0
) -> Ints:
    """Rows to show, ascending: some identities with at least two rows, equally many rows of each.

    The same seed gives the same rows. Raises `DataError` when no identity has two rows.
    """
    rng = np.random.default_rng(seed)
    members: dict[str, list[int]] = {}
    for row, identity in enumerate(identities):
        members.setdefault(str(identity), []).append(row)
    names = sorted((name for name, rows in members.items() if len(rows) > 1), key=natural_key)
    if not names:
        raise DataError("an embedding map needs an identity that was seen at least twice")
    chosen = [names[i] for i in sorted(rng.permutation(len(names))[:max_identities])]
    each = max(2, max_points // len(chosen))
    rows = [row for name in chosen for row in rng.permutation(members[name])[:each].tolist()]
    return np.array(sorted(rows), dtype=np.int64)


def project(features: Features, seed: int = 0) -> Doubles:
    """Features (R, D) in the plane (R, 2): L2-normalised, by PCA to 50 channels, then by t-SNE.

    The same input gives the same output. Raises `DataError` for fewer than 4 rows.
    """
    R = len(features)
    if R < 4:
        raise DataError(f"t-SNE needs at least 4 rows, not {R}")
    x = np.asarray(features, dtype=np.float64)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    varies = bool(np.ptp(x, axis=0).any())
    if varies and min(x.shape) > _PCA:
        x = PCA(_PCA, svd_solver="full").fit_transform(x)
    perplexity = min(30.0, max(2.0, (R - 1) / 4))
    start = "pca" if varies and x.shape[1] > 1 else "random"
    tsne = TSNE(2, perplexity=perplexity, init=start, learning_rate="auto", random_state=seed)
    plane: Doubles = tsne.fit_transform(x).astype(np.float64)
    return plane


def embedding_map(
    runs: Mapping[str, Embeddings],
    look: Look = LIGHT,
    *,
    max_identities: int = 12,
    max_points: int = 400,
    seed: int = 0,
) -> Figure:
    """One panel per run: a colour and a name per identity, a marker per camera.

    A good embedding gathers the markers of one name; a bad one gathers equal markers. Which identities are
    shown depends on the seed alone. Raises `DataError` when there is too little to show.
    """
    check_names(list(runs), "embedding map")
    with look.drawing():
        figure, axes = new_axes(look, len(runs), height=0.5 + 4.3 * len(runs))
        cameras = sorted({str(c) for run in runs.values() for c in run.cameras}, key=natural_key)
        for panel, (name, run) in zip(axes, runs.items(), strict=True):
            rows = choose_points(run.identities, max_identities, max_points, seed)
            plane = project(run.features[rows], seed)
            chosen = [(str(run.identities[r]), str(run.cameras[r])) for r in rows]
            _draw(panel, plane, chosen, cameras, look)
            panel.set_title(name)
        handles = [
            Line2D([], [], linestyle="none", marker=marker(k), color=look.faint, label=f"camera {camera}")
            for k, camera in enumerate(cameras[:10])
        ]
        widest = max(len(camera) for camera in cameras)
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=max(1, min(4, len(handles), 60 // (widest + 11))),
            handlelength=1,
            handletextpad=0.3,
            columnspacing=1.2,
        )
    return figure


def _draw(axes: Axes, plane: Doubles, who: list[tuple[str, str]], cameras: list[str], look: Look) -> None:
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set(visible=True, color=look.edge)
    names = sorted({identity for identity, _ in who}, key=natural_key)
    colours = identity_colours(len(names), look)
    for number, name in enumerate(names):
        for camera in cameras:
            at = [i for i, pair in enumerate(who) if pair == (name, camera)]
            if at:
                axes.scatter(
                    plane[at, 0],
                    plane[at, 1],
                    color=colours[number],
                    marker=marker(cameras.index(camera)),
                    s=34,
                    alpha=0.85,
                    edgecolors=look.ink,
                    linewidths=0.4,
                )
    halo = [patheffects.withStroke(linewidth=3, foreground=look.paper)]
    centres = [np.median(plane[[i for i, pair in enumerate(who) if pair[0] == n]], axis=0) for n in names]
    places = apart(np.array(centres), [len(name) for name in names], np.ptp(plane, axis=0))
    for name, (x, y) in zip(names, places.tolist(), strict=True):
        axes.text(x, y, name, ha="center", va="center", fontsize=10, weight="bold", path_effects=halo)


def apart(places: Doubles, letters: Sequence[int], extent: Doubles) -> Doubles:
    """Centres (n, 2) of labels of so many letters in a map of the given extent, moved up from each other."""
    moved: Doubles = places.copy()
    wide, high = (_LETTER * extent).tolist()
    done: list[int] = []
    for number in np.argsort(places[:, 1], kind="stable").tolist():
        for other in sorted(done, key=lambda k: float(moved[k, 1])):
            room = wide * (letters[number] + letters[other]) / 2
            x, y = np.abs(moved[number] - moved[other]).tolist()
            if x < room and y < high:
                moved[number, 1] = moved[other, 1] + high
        done.append(number)
    return moved


def identity_colours(count: int, look: Look) -> list[tuple[float, float, float, float]]:
    """Colours spread over one map, as many as asked for; neighbours in the list differ strongly."""
    wheel = matplotlib.colormaps["turbo"]
    low, high = (0.05, 0.95) if look.name == "light" else (0.15, 0.9)
    places = np.linspace(low, high, count)
    step = next(s for s in (5, 7, 3, 2, 1) if np.gcd(s, count) == 1)
    return [wheel(places[(k * step) % count]) for k in range(count)]
