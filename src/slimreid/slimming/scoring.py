"""How much each patch matters: a learned score and its similarity to guiding vectors (eq. 1–3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from slimreid.errors import ConfigError, ModelError

SOURCES = ("learned", "own", "attention", "contrast", "others_contrast", "random", "redundancy")
"""Parts of a score that are no guides; no guide may have such a name."""
_EPS = 1e-8
_TINY_NORM = 1e-12


@dataclass(frozen=True)
class PatchScores:
    """Score of every patch and the parts it is made of, all float32 (or float64) and (B, N)."""

    total: Tensor
    sources: dict[str, Tensor]
    """What of `SOURCES` was used, and one entry per guide; zeros where a guide is absent."""


def inverse_norm(vectors: Tensor) -> Tensor:
    """1/‖v‖ over the last dimension in at least float32, and 0 with zero gradient for a null vector."""
    dtype = torch.promote_types(vectors.dtype, torch.float32)
    norm: Tensor = torch.linalg.vector_norm(vectors, dim=-1, dtype=dtype)
    null = norm < _TINY_NORM
    # The inner fill keeps 1/0 out of the backward pass, where an outer mask alone would give 0 · inf.
    return norm.masked_fill(null, 1.0).reciprocal().masked_fill(null, 0.0)


def similarities(patches: Tensor, vectors: Tensor, kind: str = "cosine") -> Tensor:
    """Similarity of each patch to each guiding vector, from one batched product.

    patches (B, N, C), vectors (B, G, C) -> (B, G, N) in at least float32; the product itself is in
    the precision of the patches, also under autocast, since ranks hang on small differences. `kind`
    is `cosine`, or `dot` for v·e / C. Raises `ModelError` when the shapes do not fit each other.
    """
    B, _, C = patches.shape
    if vectors.ndim != 3 or vectors.shape[0] != B or vectors.shape[2] != C:
        raise ModelError(
            f"guides must be ({B}, G, {C}) for patches {tuple(patches.shape)}, not {tuple(vectors.shape)}"
        )
    with torch.autocast(patches.device.type, enabled=False):
        if kind == "cosine":
            directions = vectors * inverse_norm(vectors)[..., None]
            cosine: Tensor = _Cosine.apply(patches, directions.to(patches.dtype))  # type: ignore[no-untyped-call]
            return cosine
        products = torch.bmm(vectors.to(patches.dtype), patches.transpose(1, 2))  # (B, G, N)
        return products.to(torch.promote_types(products.dtype, torch.float32)) / C


def contrast(patches: Tensor) -> Tensor:
    """How far each patch is from the mean patch of its image, (B, N, C) -> (B, N) in at least float32.

    Most patches show the background, so the mean does, and what stands out from it is the object.
    """
    with torch.autocast(patches.device.type, enabled=False):
        apart = patches - patches.mean(1, keepdim=True)
        dtype = torch.promote_types(patches.dtype, torch.float32)
        length: Tensor = torch.linalg.vector_norm(apart, dim=-1, dtype=dtype)
        return length


class _Cosine(torch.autograd.Function):
    """Product of patches and unit vectors over the length of the patches, (B, N, C), (B, G, C) -> (B, G, N).

    Scaling the products instead of the patches spares a normalised copy of all patches; the gradient
    is written out because autograd would pass over all patches seven times instead of two.
    With r = 1/‖v‖ and c the cosine: ∂c/∂v = r·u − c·r²·v and ∂c/∂u = r·v.
    """

    @staticmethod
    def forward(ctx: Any, patches: Tensor, directions: Tensor) -> Tensor:
        products = torch.bmm(directions, patches.transpose(1, 2))
        scale = inverse_norm(patches)[:, None]  # (B, 1, N)
        cosine = products * scale
        ctx.save_for_backward(patches, directions, scale, cosine)
        return cosine

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        patches, directions, scale, cosine = ctx.saved_tensors
        scaled = (grads[0] * scale).to(patches.dtype)  # (B, G, N)
        to_patches = to_directions = None
        if ctx.needs_input_grad[0]:
            along = -(grads[0] * cosine).sum(1, keepdim=True) * scale**2  # (B, 1, N)
            to_patches = torch.bmm(scaled.transpose(1, 2), directions)
            to_patches = to_patches.addcmul_(patches, along.transpose(1, 2).to(patches.dtype))
        if ctx.needs_input_grad[1]:
            to_directions = torch.bmm(scaled, patches)
        return to_patches, to_directions


def min_max(values: Tensor) -> Tensor:
    """Bring values to [0, 1] over the last dimension; equal values all become 0.

    (..., N) -> (..., N). Raises `ModelError` when there is no value.
    """
    if values.shape[-1] == 0:
        raise ModelError(f"there is no patch to compare: values are {tuple(values.shape)}")
    low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    return (values - low) / (high - low + _EPS)


def check_presence(present: Tensor, B: int, G: int) -> None:
    """Raise `ModelError` unless `present` is bool (B, G)."""
    if present.shape != (B, G) or present.dtype != torch.bool:
        raise ModelError(
            f"presence of {G} guides must be bool ({B}, {G}), not {present.dtype} {tuple(present.shape)}"
        )


def score_patches(
    learned: Tensor | None,
    own: Tensor | None,
    guides: Tensor,
    *,
    attention: Tensor | None = None,
    contrast: Tensor | None = None,
    others_contrast: Tensor | None = None,
    present: Tensor | None = None,
    names: Sequence[str] = (),
    beta: float = 0.25,
    normalise: str = "minmax",
    combine: str = "weighted",
) -> PatchScores:
    """Combine the sources of evidence into one score per patch.

    learned (B, N) in [0, 1]; own, attention and contrast (B, N) raw; each of them or None.
    guides (B, G, N) raw similarities, present (B, G) bool or None for all; others_contrast (B, G', N), the
    contrast of the same places in the others, already normalised and zero where absent. `weighted`:
    (1 − 2β)·learned + 2β·(mean of the guides present + mean of the others' contrasts + own + attention +
    contrast), where a term without a source falls away; `sum`: the plain sum of all sources. `normalise` is
    `minmax` or `none`; `names` label the guides (`guide0`, … by default). Raises `ModelError` on shapes that
    do not fit, and `ConfigError` on names that clash.
    """
    B, G, N = guides.shape
    labels = list(names) or [f"guide{g}" for g in range(G)]
    if len(labels) != G or len({*labels, *SOURCES}) != G + len(SOURCES):
        raise ConfigError(
            f"names of {G} guides must be as many different ones, and not {' or '.join(SOURCES)}: {labels}"
        )
    singles = {"learned": learned, "own": own, "attention": attention, "contrast": contrast}
    given = {name: value for name, value in singles.items() if value is not None}
    if any(value.shape != (B, N) for value in given.values()):
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in given.items())
        raise ModelError(f"own and learned scores must be ({B}, {N}) like the guides, not {shapes}")
    count = max(G, 0 if others_contrast is None else others_contrast.shape[1])
    present = present if count else None
    if present is not None:
        check_presence(present, B, count)
    if normalise == "minmax":
        guides = min_max(guides)
        given = {n: v if n == "learned" else min_max(v) for n, v in given.items()}
    weighted = combine == "weighted"
    if present is not None and G:
        guides = guides.masked_fill(~present[..., None], 0.0)
    if others_contrast is not None:
        given["others_contrast"] = _over_guides(others_contrast, present, weighted)
    total = _over_guides(guides, present if G else None, weighted)
    for name in given:
        total = total if name == "learned" else total + given[name]
    if weighted:
        total = 2 * beta * total
    if learned is not None:
        total = (1 - 2 * beta) * learned + total if weighted else total + learned
    return PatchScores(total, {**given, **dict(zip(labels, guides.unbind(1), strict=True))})


def _over_guides(values: Tensor, present: Tensor | None, mean: bool) -> Tensor:
    """Mean over the guides present, or the sum: (B, G, N), zero where absent -> (B, N)."""
    total = values.sum(1)
    if not mean:
        return total
    return total / (max(values.shape[1], 1) if present is None else present.sum(1, keepdim=True).clamp_min(1))


class PatchScorer(nn.Module):
    """The learned score of a patch: sigmoid(Linear · GELU · Linear), (B, N, C) -> (B, N)."""

    def __init__(self, dim: int, hidden: int | None = None) -> None:
        super().__init__()
        hidden = max(1, dim // 4) if hidden is None else hidden
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, patches: Tensor) -> Tensor:
        """Scores in [0, 1], in at least float32."""
        logits: Tensor = self.mlp(patches).squeeze(-1)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).sigmoid()
