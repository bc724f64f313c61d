"""From images per modality to rows of (sample, modality) pairs, whatever is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from slimreid.errors import ModelError
from slimreid.slimming import Packing, pack_all, pack_present
from slimreid.types import ModalBatch


def batch_presence(batch: ModalBatch, modalities: Sequence[str]) -> Tensor:
    """Columns of the batch's presence mask in the order of `modalities`: (B, M) bool."""
    B = len(batch)
    absent = torch.zeros(B, dtype=torch.bool, device=batch.present.device)
    column = {name: batch.present[:, m] for m, name in enumerate(batch.modalities)}
    return torch.stack([column.get(name, absent) for name in modalities], 1)


def pack_images(
    images: Mapping[str, Tensor],
    present: Tensor | None,
    modalities: Sequence[str],
    *,
    zeros: bool = False,
) -> tuple[Tensor, Packing]:
    """Images of all present (sample, modality) pairs as rows (R, 3, H, W), and where they belong.

    images {modality: (B, 3, H, W)}, any subset of `modalities`; present (B, M) bool, or None for all that
    are given. With `zeros` every modality has its rows, and absent ones are zero images. Raises `ModelError`
    when names, types or shapes do not fit, or a sample has no modality.
    """
    _check_images(images, modalities)
    first = next(iter(images.values()))
    B, M = len(first), len(modalities)
    if present is None and len(images) == M:
        return torch.cat([images[name] for name in modalities]), pack_all(B, M, first.device)
    given = torch.tensor([name in images for name in modalities], device=first.device)
    present = given.expand(B, M) if present is None else present
    if present.shape != (B, M) or present.dtype != torch.bool:
        raise ModelError(f"present must be bool ({B}, {M}), not {present.dtype} {tuple(present.shape)}")
    present = present & given
    empty = (~present.any(1)).nonzero()
    if len(empty):
        raise ModelError(f"sample {int(empty[0])} of the batch has no image of any modality")
    if zeros:
        full = [images.get(name, torch.zeros_like(first)) for name in modalities]
        keep = present.t()[:, :, None, None, None].to(first.dtype)
        return torch.cat([x * k for x, k in zip(full, keep, strict=True)]), pack_all(B, M, first.device)
    packing = pack_present(present)
    if packing.complete and len(images) == M:
        return torch.cat([images[name] for name in modalities]), packing
    some = [images[n][present[:, m]] for m, n in enumerate(modalities) if n in images]
    return torch.cat(some), packing


def _check_images(images: Mapping[str, Tensor], modalities: Sequence[str]) -> None:
    """Raise `ModelError` unless the images are floating-point, of one shape, and of known modalities."""
    unknown = [name for name in images if name not in modalities]
    if unknown or not images:
        raise ModelError(f"images of {unknown or 'nothing'}; the model knows {', '.join(modalities)}")
    shapes = {name: tuple(image.shape) for name, image in images.items()}
    if len(set(shapes.values())) > 1:
        raise ModelError(f"images of all modalities must have one shape, not {shapes}")
    for name, image in images.items():
        if not image.is_floating_point():
            raise ModelError(
                f"images of '{name}' must be floating-point, not {image.dtype}; scale them first"
            )
