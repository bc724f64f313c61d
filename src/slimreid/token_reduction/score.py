"""Scores of patches (eq. 1–3): learned, similarity to global vectors, contrast, attention, or chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from slimreid.errors import ModelError
from slimreid.token_reduction.modality_packing import Guides

_EPS = 1e-8
_TINY_NORM = 1e-12
_MASK = 0xFFFFFFFF


class Evidence(NamedTuple):
    """What R rows of n patches each are scored by."""

    patches: Tensor
    """(R, n, C)."""
    guides: Guides
    """Global vectors of the row's own and of the sample's other modalities."""
    learned: Tensor | None = None
    """(R, n) in [0, 1], where it is a term."""
    attention: Tensor | None = None
    """(R, n), where it is a term."""
    origin: Tensor | None = None
    """(R, n): the patch of the image that each one is; None = all patches in order."""
    num_patches: int = 0
    """Patches of the whole image, where `origin` is given."""


@dataclass(frozen=True)
class PatchScores:
    """Score of every patch and the terms it is made of, all float32 (or float64) and (R, n)."""

    total: Tensor
    terms: dict[str, Tensor]
    """The terms that were used, each in [0, 1]; `cross` is in a field of its own."""
    cross: Tensor | None = None
    """(R, M − 1, n): similarity to each of the other modalities; zeros where one is absent."""

    def named(self, guides: Guides, modalities: Sequence[str]) -> dict[str, Tensor]:
        """All terms (R, n), `cross` under the names of the modalities; zeros for the row's own."""
        if self.cross is None:
            return dict(self.terms)
        R, G, n = self.cross.shape
        spread = self.cross.new_zeros(R, G + 1, n)
        spread = spread.scatter(1, guides.modality[:, 1:, None].expand(-1, -1, n), self.cross)
        return {**self.terms, **dict(zip(modalities, spread.unbind(1), strict=True))}


def score_patches(
    evidence: Evidence, terms: Sequence[str], *, beta: float = 0.25, gradient: bool = True
) -> PatchScores:
    """One score per patch from the given terms.

    The score is (1 − 2β)·learned + 2β·(sum of the other terms), each of them brought to [0, 1] over the
    patches of a row. `cross` and `cross_contrast` are means over the other modalities that are present and
    fall away where there is none. Without `gradient`, none flows through terms that have no parameters.

    Raises:
        ModelError: when attention or a learned score is a term and was not given, or shapes do not fit.
    """
    patches, guides = evidence.patches, evidence.guides
    vectors = guides.vectors
    if not gradient:
        patches, vectors = patches.detach(), vectors.detach()
    found: dict[str, Tensor] = {}
    cross = None
    if "learned" in terms:
        found["learned"] = _given(evidence.learned, "learned", patches)
    alone = "self" in terms
    crossed = "cross" in terms and vectors.shape[1] > 1
    if alone or crossed:  # one product for both
        sims = min_max(similarities(patches, vectors[:, 0 if alone else 1 : None if crossed else 1]))
        if alone:
            found["self"] = sims[:, 0]
        if crossed:
            cross = _present(sims[:, int(alone) :], guides)
    if "attention" in terms:
        attention = _given(evidence.attention, "attention", patches)
        found["attention"] = min_max(attention if gradient else attention.detach())
    if {"contrast", "cross_contrast"} & set(terms):
        standing_out = min_max(contrast(patches))
        if "contrast" in terms:
            found["contrast"] = standing_out
        if "cross_contrast" in terms and vectors.shape[1] > 1:
            found["cross_contrast"] = _mean_of_others(_same_places(standing_out, evidence), guides)
    return PatchScores(_weighted(found, cross, guides, beta, patches), found, cross)


def random_scores(
    origin: Tensor,
    modality: Tensor,
    stage: int,
    *,
    training: bool,
    generator: torch.Generator | None = None,
) -> PatchScores:
    """Scores by chance, a baseline: origin (R, n), modality (R,) -> (R, n).

    Drawn anew while training; in test a fixed function of patch, modality and stage, so that an embedding
    does not depend on the rest of the batch.
    """
    if training:
        drawn = torch.rand(origin.shape, device=origin.device, generator=generator)
    else:
        drawn = _hashed(origin, modality[:, None], stage)
    return PatchScores(drawn, {"random": drawn})


def _hashed(patch: Tensor, modality: Tensor, stage: int) -> Tensor:
    """Pseudo-random scores in [0, 1), float32, by an integer hash: no state, the same on every device."""
    mixed = (patch * 73856093 + 1) ^ (modality * 19349663) ^ ((stage + 1) * 83492791)
    for _ in range(3):
        mixed = ((mixed ^ (mixed >> 16)) & _MASK) * 0x45D9F3B & _MASK
    # 24 bits are what a float32 holds exactly.
    return (mixed >> 8).to(torch.float32) / 2**24


def _given(values: Tensor | None, term: str, patches: Tensor) -> Tensor:
    if values is None or values.shape != patches.shape[:2]:
        shape = None if values is None else tuple(values.shape)
        raise ModelError(f"score term '{term}' needs values {tuple(patches.shape[:2])}, not {shape}")
    return values


def _weighted(
    found: dict[str, Tensor], cross: Tensor | None, guides: Guides, beta: float, patches: Tensor
) -> Tensor:
    """The sum of eq. 3; zeros where no term has anything to say."""
    parts = [] if cross is None else [_mean_of_others(cross, guides)]
    parts += [value for name, value in found.items() if name != "learned"]
    dtype = torch.promote_types(patches.dtype, torch.float32)
    total = (
        2 * beta * sum(parts[1:], parts[0]) if parts else patches.new_zeros(patches.shape[:2], dtype=dtype)
    )
    return (1 - 2 * beta) * found["learned"] + total if "learned" in found else total


def _present(values: Tensor, guides: Guides) -> Tensor:
    """Values (R, M − 1, n), zero where the other modality is absent."""
    return values if guides.present is None else values.masked_fill(~guides.present[..., None], 0.0)


def _mean_of_others(values: Tensor, guides: Guides) -> Tensor:
    """(R, M − 1, n), zero where absent -> the mean over those present, (R, n)."""
    if guides.present is None:
        return values.sum(1) / values.shape[1]
    return values.sum(1) / guides.present.sum(1, keepdim=True).clamp_min(1)


def _same_places(values: Tensor, evidence: Evidence) -> Tensor:
    """Values (R, n) of the other modalities at the same places: (R, M − 1, n); 0 where they have none."""
    rows, origin = evidence.guides.rows, evidence.origin
    if origin is None:
        return _present(values[rows], evidence.guides)
    placed = values.new_zeros(values.shape[0], evidence.num_patches).scatter(1, origin, values)
    there = placed[rows].gather(2, origin[:, None].expand(-1, rows.shape[1], -1))
    return _present(there, evidence.guides)


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


class PatchScorer(nn.Module):
    """The learned score of a patch: sigmoid(Linear · GELU · Linear), (B, N, C) -> (B, N)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        hidden = max(1, dim // 4)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, patches: Tensor) -> Tensor:
        """Scores in [0, 1], in at least float32."""
        logits: Tensor = self.mlp(patches).squeeze(-1)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).sigmoid()
