"""Token reduction of an image: score of each term, which patches were kept, what a token is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import matplotlib
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from slimreid.arrays import Bools, Doubles, Pixels
from slimreid.config.token_reduction import TERM_NAMES
from slimreid.errors import ConfigError, DataError
from slimreid.token_reduction import ReducedTokens, Selection

DIM = 0.22
"""What is left of the brightness of a dropped patch."""
SCORE_COLOURS, WEIGHT_COLOURS = "viridis", "inferno"


@dataclass(frozen=True, eq=False)
class PatchStage:
    """One selection among the N patches of an image: one after the backbone, one per stage in it."""

    kept: Bools
    """(N,) bool."""
    label: str = "kept"
    score: Doubles | None = None
    """(N,) what the patches were ranked by; NaN where a patch was no longer there."""
    terms: Mapping[str, Doubles | None] = field(default_factory=dict)
    """(N,) per term of the score; None for a modality that was absent."""
    weights: Doubles | None = None
    """(T, N) share of each patch in each merged token; every row sums to 1."""

    def __post_init__(self) -> None:
        if self.kept.ndim != 1 or self.kept.dtype != np.bool_:
            raise DataError(f"kept must be bool (N,), not {self.kept.dtype} {self.kept.shape}")
        N = len(self.kept)
        for name, values in {"score": self.score, **self.terms}.items():
            if values is not None and values.shape != (N,):
                raise DataError(f"{name} must be ({N},) like the patches, not {values.shape}")
        if self.weights is not None and (self.weights.ndim != 2 or self.weights.shape[1] != N):
            raise DataError(f"weights must be (tokens, {N}), not {self.weights.shape}")

    @classmethod
    def from_index(
        cls,
        index: Sequence[int] | NDArray[np.integer],
        patches: int,
        label: str = "kept",
        score: Doubles | None = None,
        terms: Mapping[str, Doubles | None] | None = None,
        weights: Doubles | None = None,
    ) -> PatchStage:
        """From the positions (K,) of the kept patches among `patches`; `weights` (T, K) in their order."""
        places = np.asarray(index, dtype=np.int64)
        if places.size and not 0 <= places.min() <= places.max() < patches:
            raise DataError(f"kept patches must be 0 to {patches - 1}, not {places.min()} to {places.max()}")
        kept = np.zeros(patches, dtype=np.bool_)
        kept[places] = True
        spread = None
        if weights is not None:
            spread = np.zeros((len(weights), patches))
            spread[:, places] = weights
        return cls(kept, label, score, terms or {}, spread)

    def sharpest_token(self) -> int:
        """The merged token that rests on the fewest patches (least entropy); raises without a merge."""
        if self.weights is None:
            raise ConfigError("there are no merge weights: this token reduction does not merge")
        share = np.clip(self.weights, 1e-12, None)
        return int(np.argmin(-(share * np.log(share)).sum(axis=1)))


@dataclass(frozen=True, eq=False)
class PatchView:
    """One modality of a sample: its image, the grid of patches (down, across), and the choices among them."""

    modality: str
    image: Image.Image | None
    """As the model saw it; None = absent."""
    grid: tuple[int, int]
    stages: tuple[PatchStage, ...] = ()

    def __post_init__(self) -> None:
        N = self.grid[0] * self.grid[1]
        for stage in self.stages:
            if len(stage.kept) != N:
                raise DataError(
                    f"{self.modality}: {len(stage.kept)} patches do not fill a grid of {self.grid[0]} × "
                    f"{self.grid[1]}"
                )


def reduced_views(
    reduced: ReducedTokens,
    sample: int,
    images: Mapping[str, Image.Image],
    modalities: Sequence[str],
    grid: tuple[int, int],
    present: Tensor | None = None,
    labels: Sequence[str] = (),
) -> list[PatchView]:
    """Views of one sample of a batch, from what the model returns `with_reduced=True`.

    Args:
        reduced: Tensors (B, M, ...) of the batch.
        sample: Its number in the batch.
        images: What the model saw, by modality.
        modalities: The model's.
        grid: Patches down and across.
        present: (B, M) bool; None = all.
        labels: Names of the stages of token reduction in the backbone, where each stage selects among the
            patches that the one before it kept.
    """
    there = {name: present is None or bool(present[sample, m]) for m, name in enumerate(modalities)}
    views = []
    for m, name in enumerate(modalities):
        if not there[name]:
            views.append(PatchView(name, None, grid))
            continue
        stages: list[PatchStage] = []
        others = {other: exists for other, exists in there.items() if other != name}
        for number, selection in enumerate(reduced.selections):
            # Merging comes last: with fewer merges than choices, they belong to the last choices.
            at = number - len(reduced.selections) + len(reduced.weights)
            left = stages[-1].kept if labels and stages else None
            stages.append(
                PatchStage.from_index(
                    selection.index[sample, m].cpu().numpy(),
                    selection.score.shape[-1],
                    label=labels[number] if labels else "kept",
                    score=_only(_row(selection.score, sample, m), left),
                    terms=_terms(selection, sample, m, others, left),
                    weights=_row(reduced.weights[at], sample, m) if at >= 0 else None,
                )
            )
        views.append(PatchView(name, images[name], grid, tuple(stages)))
    return views


def _terms(
    selection: Selection, sample: int, modality: int, others: Mapping[str, bool], left: Bools | None
) -> dict[str, Doubles | None]:
    """Scores (N,) of a row by term, None for absent modalities; those that had no say are left out."""
    found: dict[str, Doubles | None] = {}
    for term, values in selection.scores.items():
        if term in TERM_NAMES:
            found[term] = _only(_row(values, sample, modality), left)
        elif term in others and not others[term]:
            found[term] = None
        elif term in others and (row := _row(values, sample, modality)).any():
            found[term] = _only(row, left)
    return found


def _only(values: Doubles, left: Bools | None) -> Doubles:
    """Values of the patches that were still there, NaN for the others."""
    return values if left is None else np.where(left, values, np.nan)


def _row(values: Tensor, sample: int, modality: int) -> Doubles:
    row: Doubles = values[sample, modality].detach().to("cpu", torch.float64).numpy()
    return row


def spread_over_pixels(
    values: NDArray[np.generic], grid: tuple[int, int], size: tuple[int, int]
) -> NDArray[np.generic]:
    """Values (N,) of the patches of a grid (down, across) -> (H, W): each pixel has that of its patch."""
    (rows, columns), (height, width) = grid, size
    down = np.arange(height) * rows // height
    across = np.arange(width) * columns // width
    spread: NDArray[np.generic] = values.reshape(grid)[down[:, None], across[None]]
    return spread


def brighten(pixels: Pixels) -> Pixels:
    """A dark image (H, W, 3) made up to four times brighter, so that dim parts of it can be told apart."""
    top = float(np.percentile(pixels, 99))
    gain = min(max(180 / max(top, 1.0), 1.0), 4.0)
    bright: Pixels = np.minimum(pixels * gain, 255).astype(np.uint8)
    return bright


def dim_dropped(pixels: Pixels, kept: Bools, grid: tuple[int, int], dim: float = DIM) -> Pixels:
    """An image (H, W, 3) in which kept patches are as they were and dropped ones dark."""
    bright = spread_over_pixels(kept, grid, pixels.shape[:2])[..., None]
    return np.where(bright, pixels, (pixels * dim).astype(np.uint8))


def heat_over(
    pixels: Pixels,
    values: Doubles,
    grid: tuple[int, int],
    colours: str = SCORE_COLOURS,
    alpha: float = 0.62,
) -> Pixels:
    """An image (H, W, 3) in grey under the colours of its patches, from the least value to the largest.

    Patches whose value is NaN were not there any more: they stay grey and dim.
    """
    known = np.isfinite(values)
    low, high = (values[known].min(), values[known].max()) if known.any() else (0.0, 1.0)
    shares = (np.where(known, values, low) - low) / (high - low) if high > low else np.zeros_like(values)
    colour = matplotlib.colormaps[colours](shares)[:, :3] * 255  # (N, 3)
    grey = pixels @ np.array([0.299, 0.587, 0.114])
    over = np.stack([spread_over_pixels(colour[:, c], grid, pixels.shape[:2]) for c in range(3)], axis=-1)
    mixed = (1 - alpha) * grey[..., None] + alpha * over
    there = spread_over_pixels(known, grid, pixels.shape[:2])[..., None]
    heat: Pixels = np.where(there, mixed, DIM * grey[..., None]).round().astype(np.uint8)
    return heat


def outlines(kept: Bools, grid: tuple[int, int], size: tuple[int, int]) -> list[list[tuple[float, float]]]:
    """The lines (x, y) in pixels between kept patches and others, the border of the image among them."""
    rows, columns = grid
    step_y, step_x = size[0] / rows, size[1] / columns
    area = np.pad(kept.reshape(grid), 1)
    above = np.argwhere(area[:-1, 1:-1] != area[1:, 1:-1]).tolist()
    beside = np.argwhere(area[1:-1, :-1] != area[1:-1, 1:]).tolist()
    lines = [[(c * step_x, r * step_y), ((c + 1) * step_x, r * step_y)] for r, c in above]
    return lines + [[(c * step_x, r * step_y), (c * step_x, (r + 1) * step_y)] for r, c in beside]
