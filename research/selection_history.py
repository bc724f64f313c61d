"""Pictures of the kept patches of a few samples over training, with the outline of the true object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from PIL import Image

from slimreid.data.images.decode import read_images
from slimreid.data.images.masks import object_shares, read_mask
from slimreid.data.manifest import Manifest, Sample
from slimreid.errors import DataError
from slimreid.visual.patches.figure import OUTLINE
from slimreid.visual.patches.kept_patches import brighten, dim_dropped, outlines
from slimreid.visual.style import LIGHT, Look

Rows = Sequence[Mapping[str, Any]]
"""Rows of a run's `selection.jsonl`."""

MASK_COLOUR = "#5ce1ff"
"""Cyan beside the amber of kept patches; both are seen on photographs of every modality."""
_HIGH = 320
_PICTURE = 1.35
"""Height of a picture, in inches."""
_GAP, _LABEL, _HEAD, _FOOT = 0.07, 0.34, 0.55, 0.5


@dataclass(frozen=True, eq=False)
class HistoryRow:
    """One modality of one sample over training."""

    label: str
    image: Image.Image
    mask: Image.Image | None
    kept: tuple[NDArray[np.bool_], ...]
    """(N,) bool per epoch that is shown."""
    on_object: tuple[float | None, ...] = ()
    """Share of the kept area on the object, per epoch that is shown."""


def shown_epochs(rows: Rows, most: int = 6) -> list[int]:
    """At most so many epochs, evenly spread, the first and the last among them."""
    epochs = [int(row["epoch"]) for row in rows if not row.get("partial")]
    if not epochs:
        raise DataError("no epoch was watched: train with train.watch_selection true")
    places = np.unique(np.linspace(0, len(epochs) - 1, min(most, len(epochs))).round().astype(int))
    return [epochs[i] for i in places]


def history_rows(
    rows: Rows,
    manifest: Manifest,
    grid: tuple[int, int],
    epochs: Sequence[int],
    *,
    samples: int = 2,
    stage: int = -1,
) -> list[HistoryRow]:
    """The first few watched samples in all their modalities, at some epochs and one stage of token reduction.

    Raises `DataError` for samples that the manifest does not have (any more).
    """
    by_epoch = {int(row["epoch"]): row for row in rows if not row.get("partial")}
    files = {next(iter(s.images.values())).path: s for s in manifest.samples}
    N = grid[0] * grid[1]
    found = []
    for number, shown in enumerate(by_epoch[epochs[0]]["samples"][:samples]):
        first = next(iter(shown["images"].values()))
        sample = files.get(first)
        if sample is None:
            raise DataError(f"{manifest.root}: no sample with the image {first}, which the run has watched")
        images, mask = _opened(manifest, sample), read_mask(manifest, sample)
        for name in shown["kept"]:
            kept = []
            for epoch in epochs:
                places = by_epoch[epoch]["samples"][number]["kept"][name][stage]
                kept.append(np.isin(np.arange(N), places))
            found.append(HistoryRow(name, images[name], mask, tuple(kept), _on_object(kept, mask, grid)))
    return found


def _opened(manifest: Manifest, sample: Sample) -> dict[str, Image.Image]:
    pixels = read_images(sample.images, manifest.root, {}, None)
    return {name: Image.fromarray(np.asarray(values)).convert("RGB") for name, values in pixels.items()}


def _on_object(
    kept: Sequence[NDArray[np.bool_]], mask: Image.Image | None, grid: tuple[int, int]
) -> tuple[float | None, ...]:
    if mask is None:
        return (None,) * len(kept)
    shares = object_shares(mask, grid)
    return tuple(float(shares[choice].mean()) if choice.any() else None for choice in kept)


def selection_history(
    rows: Sequence[HistoryRow],
    epochs: Sequence[int],
    grid: tuple[int, int],
    look: Look = LIGHT,
    *,
    title: str = "",
) -> Figure:
    """A row of pictures per sample and modality, a column per epoch; dropped patches are dark.

    Below each picture stands the share of the kept area on the object. Raises `DataError` without rows.
    """
    if not rows:
        raise DataError("no watched sample to draw")
    aspect = rows[0].image.width / rows[0].image.height
    width = _PICTURE * aspect
    size = (
        _LABEL + len(epochs) * (width + _GAP) + 0.1,
        _HEAD + len(rows) * (_PICTURE + 0.2) + _FOOT,
    )
    with look.drawing():
        figure = Figure(figsize=size)
        figure.text(0.1 / size[0], 1 - 0.08 / size[1], title, va="top", fontsize=12, weight="bold")
        for r, row in enumerate(rows):
            bottom = size[1] - _HEAD - r * (_PICTURE + 0.2) - _PICTURE
            middle = (0.18 / size[0], (bottom + _PICTURE / 2) / size[1])
            figure.text(*middle, row.label, rotation=90, ha="center", va="center", fontsize=11)
            for c, kept in enumerate(row.kept):
                left = _LABEL + c * (width + _GAP)
                axes = figure.add_axes(
                    (left / size[0], bottom / size[1], width / size[0], _PICTURE / size[1])
                )
                _picture(axes, row, kept, grid)
                if r == 0:
                    name = "untrained" if epochs[c] == 0 else f"epoch {epochs[c]}"
                    axes.set_title(name, fontsize=9.5, loc="center", pad=3, weight="normal")
                share = row.on_object[c] if row.on_object else None
                if share is not None:
                    axes.text(
                        0.5,
                        -0.015,
                        f"{100 * share:.0f} %",
                        transform=axes.transAxes,
                        ha="center",
                        va="top",
                        fontsize=9,
                        color=look.faint,
                    )
        lines = [Line2D([], [], color=OUTLINE, linewidth=2), Line2D([], [], color=MASK_COLOUR, linewidth=2)]
        labels = ["kept (% of it on the object)", "true object"]
        figure.legend(lines, labels, loc="lower left", ncols=1, bbox_to_anchor=(0.0, 0.0), fontsize=9.5)
    return figure


def _picture(axes: Axes, row: HistoryRow, kept: NDArray[np.bool_], grid: tuple[int, int]) -> None:
    factor = _HIGH / row.image.height
    shape = (round(row.image.width * factor), _HIGH)
    pixels = brighten(np.asarray(row.image.resize(shape, Image.Resampling.BICUBIC)))
    axes.imshow(dim_dropped(pixels, kept, grid, 0.3), interpolation="nearest", extent=(0, shape[0], _HIGH, 0))
    axes.add_collection(
        LineCollection(outlines(kept, grid, (_HIGH, shape[0])), colors=OUTLINE, linewidths=1.0)
    )
    if row.mask is not None:
        smooth = np.asarray(row.mask.resize(shape, Image.Resampling.BILINEAR), dtype=np.float64)
        axes.contour(smooth, levels=[127.5], colors=[MASK_COLOUR], linewidths=1.1, origin=None)
    axes.set(xlim=(0, shape[0]), ylim=(_HIGH, 0))
    axes.set_axis_off()
