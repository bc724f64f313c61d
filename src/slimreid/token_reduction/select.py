"""Which patches are kept; the dropped ones fused into a leftover token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from slimreid.errors import ConfigError, ModelError
from slimreid.token_reduction.estimators import Estimator, decide, logistic_noise, straight_through


@dataclass(frozen=True)
class Selection:
    """The choice of K out of N patches, and what it is based on.

    For several modalities every field has one more dimension M after B; rows of absent modalities
    are zero.
    """

    index: Tensor
    """(B, K) positions of the kept patches, best score first, lower position first on ties; at a stage in
    the backbone that drops nothing, in the order of the tokens."""
    kept: Tensor
    """(B, K, C) the kept patches in that order."""
    decision: Tensor
    """(B, N) the matrix D: 1 for kept, 0 for dropped; carries the estimator's gradient."""
    score: Tensor
    """(B, N) what the patches were ranked by."""
    leftover: Tensor | None
    """(B, 1, C) the dropped patches fused into one token (or more); None when nothing was dropped."""
    scores: Mapping[str, Tensor] = field(default_factory=dict)
    """(B, N) per score term: `learned`, `contrast`, …; `cross` under the names of the other modalities."""


def kept_count(num_patches: int, keep_ratio: float) -> int:
    """K = max(1, ceil(N · keep_ratio)); raises `ConfigError` for a share outside (0, 1]."""
    if not 0 < keep_ratio <= 1:
        raise ConfigError(f"keep_ratio: {keep_ratio} is not in (0, 1]")
    return max(1, math.ceil(num_patches * keep_ratio))


def stable_top(scores: Tensor, k: int) -> Tensor:
    """Positions of the k largest scores, best first, the lower position first on ties.

    (B, N) -> (B, k). `torch.topk` alone leaves the order of equal scores open, so the position is
    packed into the low half of an integer key whose high half orders like the float.
    """
    N = scores.shape[-1]
    scores = scores.detach()
    if torch.compiler.is_exporting():  # ONNX has no bits of floats, but its TopK breaks ties like this
        return scores.topk(k, dim=-1).indices
    if scores.dtype == torch.float64:  # no room for the position beside 64 bits of score
        return scores.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    bits = scores.float().masked_fill(scores == 0, 0.0).view(torch.int32)  # −0.0 equals 0.0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    position = torch.arange(N - 1, -1, -1, device=scores.device)
    return ((ordered.long() << 32) | position).topk(k, dim=-1).indices


def take(patches: Tensor, index: Tensor) -> Tensor:
    """patches (B, N, C) at index (B, K) -> (B, K, C); whole rows are copied, unlike with `gather`."""
    B, N, C = patches.shape
    return patches.reshape(B * N, C).index_select(0, flat_index(index, N)).reshape(B, index.shape[1], C)


def flat_index(index: Tensor, num_patches: int) -> Tensor:
    """Positions (B, K) within samples -> positions (B·K,) within the flattened batch."""
    offset = torch.arange(index.shape[0], device=index.device)[:, None] * num_patches
    return (index + offset).flatten()


def split_patches(patches: Tensor, score: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """The kept patches, and the dropped ones fused by a softmax over their scores.

    patches (B, N, C), score (B, N), index (B, K) with K < N -> kept (B, K, C), leftover (B, 1, C).
    Kept patches get weight zero in one product over all, which spares copying the dropped ones.
    """
    weights = score.masked_fill(kept_mask(score, index), -math.inf).softmax(-1)
    return take_and_mix(patches, index, weights[:, None])


def kept_mask(score: Tensor, index: Tensor) -> Tensor:
    """Whether each patch is kept: score (B, N), index (B, K) -> (B, N) bool."""
    return torch.zeros_like(score, dtype=torch.bool).scatter(1, index, True)


def take_and_mix(tokens: Tensor, index: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens at some positions, and weighted sums of all, from one pass back over the gradients.

    tokens (B, N, C), index (B, K), weights (B, L, N) -> (B, K, C), (B, L, C).
    """
    with torch.autocast(tokens.device.type, enabled=False):
        pair: tuple[Tensor, Tensor] = _Split.apply(  # type: ignore[no-untyped-call]
            tokens, index, weights.to(tokens.dtype)
        )
    return pair


class _Split(torch.autograd.Function):
    """Take rows and sum all rows by weights; the gradients meet in one buffer instead of two."""

    @staticmethod
    def forward(ctx: Any, patches: Tensor, index: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(patches, index, weights)
        return take(patches, index), torch.bmm(weights, patches)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        patches, index, weights = ctx.saved_tensors
        B, N, C = patches.shape
        to_kept, to_mixed = grads
        to_patches = to_weights = None
        if ctx.needs_input_grad[0]:
            to_patches = torch.bmm(weights.transpose(1, 2), to_mixed)
            to_patches.view(B * N, C).index_add_(0, flat_index(index, N), to_kept.reshape(-1, C))
        if ctx.needs_input_grad[2]:
            to_weights = torch.bmm(to_mixed, patches.transpose(1, 2))
        return to_patches, None, to_weights


def keep_top_patches(
    patches: Tensor,
    score: Tensor,
    keep_ratio: float,
    *,
    estimator: Estimator | None = None,
    generator: torch.Generator | None = None,
    gate: bool = False,
    zero_leftover: bool = False,
) -> Selection:
    """Keep the best max(1, ceil(N · keep_ratio)) patches and fuse the others into one token.

    patches (B, N, C), score (B, N) -> `Selection`.

    Args:
        patches: Patch tokens.
        score: What they are ranked by.
        keep_ratio: Share to keep, in (0, 1].
        estimator: Gradient of the decision; None in test.
        generator: Seeds the estimator's noise.
        gate: Multiply kept patches by their decision, which is 1 but has a gradient.
        zero_leftover: Give a zero token where nothing is dropped, instead of none.

    Raises:
        ModelError: when shapes do not fit or there is no patch.
    """
    _check_shapes(patches, score)
    B, N, C = patches.shape
    index = stable_top(score, kept_count(N, keep_ratio))
    decision = decide(score, index, estimator, generator)
    leftover: Tensor | None
    if index.shape[1] < N:
        kept, leftover = split_patches(patches, score, index)
    else:
        kept, leftover = take(patches, index), patches.new_zeros(B, 1, C) if zero_leftover else None
    if gate:
        kept = kept * decision.gather(1, index)[..., None].to(kept.dtype)
    return Selection(index, kept, decision, score, leftover)


def weigh_all_patches(patches: Tensor, score: Tensor, mask: Tensor) -> Selection:
    """A choice that drops nothing: every patch is kept by its weight in `mask`, and left over by the rest.

    patches (B, N, C), score and mask (B, N), mask in [0, 1] -> `Selection` of all N patches in their order,
    with D = mask. The leftover is the softmax over the scores plus log(1 − mask): for a mask of zeros and
    ones it is that of the hard choice.
    """
    B, N, _ = patches.shape
    tiny, near = torch.finfo(mask.dtype).tiny, 1 - torch.finfo(mask.dtype).eps
    # Held off 0 and 1, where the logarithm of one side is infinite and has no gradient.
    mask = mask.clamp(tiny, near)
    weights = (score + torch.log1p(-mask)).softmax(-1)
    everything = torch.arange(N, device=patches.device).expand(B, N)
    leftover = torch.bmm(weights[:, None].to(patches.dtype), patches)
    return Selection(everything, patches, mask, score, leftover)


def keep_by_threshold(
    patches: Tensor,
    score: Tensor,
    logits: Tensor,
    max_keep_ratio: float = 1.0,
    *,
    noise: bool = True,
    generator: torch.Generator | None = None,
    gate: bool = False,
) -> Selection:
    """Decide patch by patch, while training: a patch is kept where logit + logistic noise is over 0.

    patches (B, N, C), score and logits (B, N) -> `Selection` with a buffer of K = ceil(N · max_keep_ratio)
    places, the highest logits first. How many of them are kept differs between samples: D is 1 for those and
    0 for the others, which are left over. At least one patch is kept. The gradient of D is that of the binary
    concrete variable sigmoid(logit + noise) of Maddison, Mnih and Teh (2017, arXiv:1611.00712).
    """
    _check_shapes(patches, score)
    N = patches.shape[1]
    if noise:
        logits = logits + logistic_noise(logits, generator)
    index = stable_top(logits, kept_count(N, max_keep_ratio))
    over = logits.detach().gather(1, index) > 0
    first = torch.arange(index.shape[1], device=index.device) == 0
    hard = torch.zeros_like(logits, requires_grad=False).scatter(1, index, (over | first).to(logits.dtype))
    decision = straight_through(hard, logits.sigmoid())
    nothing = hard.all(1, keepdim=True)  # dropped: an empty softmax would be NaN
    weights = score.masked_fill((hard > 0) & ~nothing, -math.inf).softmax(-1).masked_fill(nothing, 0.0)
    kept, leftover = take_and_mix(patches, index, weights[:, None])
    if gate:
        kept = kept * decision.gather(1, index)[..., None].to(kept.dtype)
    return Selection(index, kept, decision, score, leftover)


def _check_shapes(patches: Tensor, score: Tensor) -> None:
    if patches.ndim != 3 or score.shape != patches.shape[:2] or patches.shape[1] == 0:
        raise ModelError(
            f"patches must be (B, N, C) with N ≥ 1 and scores (B, N), "
            f"not {tuple(patches.shape)} and {tuple(score.shape)}"
        )
