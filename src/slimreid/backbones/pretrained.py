"""Load public weights into a ViT, and refuse whatever does not fit."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimreid.backbones.layers import resample_positions
from slimreid.backbones.vit import ViT
from slimreid.backbones.weight_conversion import ConvertedWeights, convert_state_dict
from slimreid.backbones.weight_files import read_weights
from slimreid.errors import ModelError

logger = logging.getLogger(__name__)

NOT_IN_PUBLIC_WEIGHTS = ("camera_embedding",)
"""Parameters that no public weights have; they keep their initial values without further permission."""


@dataclass(frozen=True)
class LoadReport:
    """What became of every key."""

    family: str
    loaded: tuple[str, ...]
    """Parameters of the model that were set."""
    missing: tuple[str, ...]
    """Parameters of the model that keep their values, as allowed."""
    unexpected: tuple[str, ...]
    """Keys of the file that were ignored, as allowed."""
    mismatched: tuple[str, ...]
    """Parameters of the model that keep their values because the shape differs, as allowed."""
    extras: tuple[str, ...]
    """Keys of the file that are known not to belong to the backbone (heads, text tower)."""
    resampled: tuple[tuple[int, int], tuple[int, int]] | None
    """Grids between which the positions were resampled, or None."""


def load_pretrained(
    vit: ViT,
    source: str | Path | Mapping[str, Any],
    *,
    family: str | None = None,
    source_grid: tuple[int, int] | None = None,
    resampling: str | None = None,
    allow_missing: Sequence[str] = NOT_IN_PUBLIC_WEIGHTS,
    allow_unexpected: Sequence[str] = (),
    allow_mismatched: Sequence[str] = (),
) -> LoadReport:
    """Load weights from a file, folder, `hf://organisation/name[/file]` or state dict into `vit`, in place.

    Args:
        vit: Model to load into.
        source: Where the weights are.
        family: Format of the weights; None = detected from the keys.
        source_grid: Patches down and across for which learned positions were made; None = square, as in all
            public weights.
        resampling: How learned positions are resampled to the grid of `vit`; None = the model's own.
        allow_missing: Names or patterns (`blocks.11.*`) of parameters that the source may lack.
        allow_unexpected: Names or patterns of keys of the source that are ignored.
        allow_mismatched: Names or patterns of parameters that may have another shape in the source.

    Raises:
        ModelError: Naming every key that is missing, unexpected or of another shape and not allowed; nothing
            is changed then.
    """
    if isinstance(source, Mapping):
        where, state = "the weights given", source
    else:
        where, state = str(source), read_weights(source)
    try:
        converted = convert_state_dict(state, family)
        tensors, resampled = _fit_positions(vit, converted, source_grid, resampling)
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from error
    own = dict(vit.named_parameters())
    missing = [name for name in own if name not in tensors]
    foreign = [key for name in tensors if name not in own for key in converted.sources[name]]
    unexpected = [*converted.unexpected, *foreign]
    shapes = {
        name: f"{name}: {tuple(tensor.shape)} in the file, {tuple(own[name].shape)} in the model"
        for name, tensor in tensors.items()
        if name in own and tensor.shape != own[name].shape
    }
    problems = {
        "missing": _not_allowed(missing, allow_missing),
        "unexpected": _not_allowed(unexpected, allow_unexpected),
        "mismatched": [shapes[name] for name in _not_allowed(shapes, allow_mismatched)],
    }
    if any(problems.values()):
        raise ModelError(_complaint(where, converted.family, problems))
    loaded = [name for name in own if name in tensors and name not in shapes]
    with torch.no_grad():
        for name in loaded:
            own[name].copy_(tensors[name])  # also to the model's dtype and device
    report = LoadReport(
        converted.family,
        tuple(loaded),
        tuple(missing),
        tuple(unexpected),
        tuple(shapes),
        converted.extras,
        resampled,
    )
    logger.info("%s: %d tensors of family %s loaded", where, len(loaded), converted.family)
    return report


def _fit_positions(
    vit: ViT, converted: ConvertedWeights, source_grid: tuple[int, int] | None, resampling: str | None
) -> tuple[dict[str, Tensor], tuple[tuple[int, int], tuple[int, int]] | None]:
    """The converted tensors with the positions in the grid of `vit`, and the two grids if they differ."""
    tensors = dict(converted.tensors)
    table = tensors.get("position_embedding")
    if table is None or vit.position_embedding is None or table.ndim != 3:
        return tensors, None
    leading = ("class_token" in tensors) + ("dist_token" in converted.unexpected)
    grid = source_grid or _square_grid(table.shape[1], leading)
    prefix = table.shape[1] - grid[0] * grid[1]
    if not 0 <= prefix <= leading:
        raise ModelError(f"{table.shape[1]} positions do not fit a grid of {grid[0]}×{grid[1]} patches")
    cells = resample_positions(
        table[:, prefix:], grid, vit.grid, resampling or vit.config.position_resampling
    )
    # Some files give the class token no position of its own; for the sum that is a position of zeros.
    wanted = int(vit.config.class_token)
    lead = table.new_zeros(1, wanted, table.shape[2])
    lead[:, : min(wanted, prefix)] = table[:, : min(wanted, prefix)]
    tensors["position_embedding"] = torch.cat([lead, cells], dim=1)
    return tensors, (grid, vit.grid) if grid != vit.grid else None


def _square_grid(count: int, leading: int) -> tuple[int, int]:
    side = math.isqrt(count - leading)
    if side * side != count - leading:
        raise ModelError(
            f"{count} positions, {leading} of them for special tokens, do not make a square grid; "
            "give source_grid=(patches down, patches across)"
        )
    return side, side


def _not_allowed(names: Iterable[str], allowed: Sequence[str]) -> list[str]:
    return [name for name in names if not any(fnmatchcase(name, pattern) for pattern in allowed)]


def _complaint(where: str, family: str, problems: Mapping[str, Sequence[str]]) -> str:
    """Message with every refused key and the option that allows it."""
    lines = [f"{where}: weights of family '{family}' do not fit this model"]
    for kind, names in problems.items():
        if names:
            lines.append(f"  {kind} ({len(names)}; in Python, allow_{kind} lets them pass):")
            lines.extend(f"    {name}" for name in names)
    return "\n".join(lines)
