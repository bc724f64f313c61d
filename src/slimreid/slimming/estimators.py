"""Decision matrices: 1 for kept patches, 0 for dropped ones, with a gradient into the scores.

A hard choice of K patches has no gradient. Both estimators here keep the hard choice in the forward
pass and borrow the gradient of a soft mask (straight through), only while training:

- `gumbel`: the Gumbel–softmax of the noisy scores, which sums to 1;
- `soft_topk`: the Limited Multi-Label projection, which sums to K.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from slimreid.errors import ConfigError

ESTIMATORS = ("topk", "gumbel", "soft_topk")

Temperature = float | Tensor
"""τ: a number, or a tensor of one element where it changes during training (compiled code then stays)."""


def gumbel_noise(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard Gumbel noise of the shape of `like`: −log of an exponential variable.

    The exponential may be drawn as exactly zero, so it is kept at or above the least normal number;
    the noise then stays under 88 in float32 and 709 in float64 instead of reaching infinity.
    """
    draw = torch.empty_like(like, requires_grad=False).exponential_(generator=generator)
    return -draw.clamp_min(torch.finfo(like.dtype).tiny).log()


def gumbel_softmax(
    scores: Tensor, tau: Temperature, generator: torch.Generator | None = None, *, noise: bool = True
) -> Tensor:
    """Soft mask softmax((s + gumbel)/τ), or softmax(s/τ) without noise, (B, N) -> (B, N); rows sum to 1."""
    noisy = scores + gumbel_noise(scores, generator) if noise else scores
    return (noisy / tau).softmax(-1)


def soft_topk(scores: Tensor, k: int, tau: Temperature = 1.0) -> Tensor:
    """Soft mask in [0, 1] whose rows sum to `k`, (B, N) -> (B, N).

    The projection of s/τ onto {0 ≤ p ≤ 1, Σp = k} regularised by the binary entropy of p, from
    Amos, Koltun and Kolter, "The Limited Multi-Label Projection Layer" (2019, arXiv:1906.08707):
    p_i = sigmoid((s_i − ν)/τ) with the one ν for which the sum is k. Its gradient follows from the
    implicit function theorem: with w_i = p_i(1 − p_i)/τ,

        dp_i = w_i (ds_i − Σ_j w_j ds_j / Σ_j w_j).

    With k = N there is nothing to choose: the mask is one everywhere and has no gradient.
    """
    N = scores.shape[-1]
    if k >= N:
        return torch.ones_like(scores)
    mask: Tensor = _SoftTopK.apply(scores, k, tau)  # type: ignore[no-untyped-call]
    return mask


def _threshold(scores: Tensor, k: int, tau: Temperature) -> Tensor:
    """ν with Σ sigmoid((s − ν)/τ) = k, by bisection, (B, N) -> (B, 1)."""
    N = scores.shape[-1]
    # At the largest (least) score shifted by τ·logit(k/N) no (every) term is over k/N.
    shift = tau * math.log(k / (N - k))
    low, high = scores.amin(-1, keepdim=True) - shift, scores.amax(-1, keepdim=True) - shift
    for _ in range(60 if scores.dtype == torch.float64 else 30):
        middle = (low + high) / 2
        too_many = ((scores - middle) / tau).sigmoid().sum(-1, keepdim=True) > k
        low, high = torch.where(too_many, middle, low), torch.where(too_many, high, middle)
    return (low + high) / 2


class _SoftTopK(torch.autograd.Function):
    """`soft_topk` with its implicit gradient, so that the bisection is not unrolled."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, k: int, tau: Temperature) -> Tensor:
        mask = ((scores - _threshold(scores, k, tau)) / tau).sigmoid()
        ctx.save_for_backward(mask)
        ctx.tau = tau
        return mask

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        slope = mask * (1 - mask) / ctx.tau
        # Where every entry is saturated the slopes vanish together, and so does the gradient.
        total = slope.sum(-1, keepdim=True).clamp_min(torch.finfo(slope.dtype).tiny)
        mean = (slope * grads[0]).sum(-1, keepdim=True) / total
        return slope * (grads[0] - mean), None, None


def soft_mask(
    scores: Tensor,
    k: int,
    estimator: str,
    tau: Temperature,
    *,
    noise: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The soft mask of `gumbel` or `soft_topk`, scores (B, N) -> (B, N).

    Raises `ConfigError` for an estimator without one, or a temperature not over 0.
    """
    if estimator not in ESTIMATORS[1:]:
        raise ConfigError(f"estimator: '{estimator}' has no soft mask (known: {', '.join(ESTIMATORS[1:])})")
    if not isinstance(tau, Tensor) and not 0 < tau < math.inf:
        raise ConfigError(f"tau: {tau} is not a finite number over 0")
    if estimator == "gumbel":
        return gumbel_softmax(scores, tau, generator, noise=noise)
    return soft_topk(scores, k, tau)


def decide(
    scores: Tensor,
    index: Tensor,
    *,
    estimator: str = "topk",
    tau: Temperature = 1.0,
    noise: bool = True,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Decision matrix D: exactly 1 at the kept indices and 0 elsewhere, with the estimator's gradient.

    scores (B, N), index (B, K) -> (B, N). Outside training every estimator is the plain top-K. Raises
    `ConfigError` for an estimator that is not one of `ESTIMATORS`, or a temperature not over 0.
    """
    if estimator not in ESTIMATORS:
        raise ConfigError(f"estimator: '{estimator}' is unknown (known: {', '.join(ESTIMATORS)})")
    if not isinstance(tau, Tensor) and not 0 < tau < math.inf:
        raise ConfigError(f"tau: {tau} is not a finite number over 0")
    hard = torch.zeros_like(scores, requires_grad=False).scatter(1, index, 1.0)
    if estimator == "topk" or not training:
        return hard
    soft = soft_mask(scores, index.shape[1], estimator, tau, noise=noise, generator=generator)
    # The brackets make the forward value exact: the difference is zero before it is added.
    return hard + (soft - soft.detach())


def annealed(first: float, last: float, progress: float) -> float:
    """τ on its way from `first` (progress 0) to `last` (progress 1), in equal ratios."""
    return first * math.pow(last / first, min(max(progress, 0.0), 1.0))
