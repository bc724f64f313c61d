"""Gradients of the selection.

A hard choice of K patches has no gradient. Estimators make the hard choice in the forward pass and take the
gradient of a soft mask (straight through), only while training:

- `gumbel`: the Gumbel–softmax of the noisy scores, which sums to 1;
- `soft_topk`: the Limited Multi-Label projection, which sums to K;
- `binary_concrete`: decides patch by patch, so that the number kept follows the image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from slimreid.errors import ConfigError

Temperature = float | Tensor
"""τ: a number, or a tensor of one element where it changes during training (compiled code then stays)."""


@dataclass(frozen=True)
class Estimator:
    """Which soft mask of K patches gives the gradient: `gumbel` or `soft_topk`.

    Raises `ConfigError` for another name, or a temperature that is not over 0.
    """

    name: str
    tau: Temperature = 1.0
    noise: bool = True
    """With `gumbel`: whether the mask is that of noisy scores."""

    def __post_init__(self) -> None:
        if self.name not in ("gumbel", "soft_topk"):
            raise ConfigError(f"estimator: '{self.name}' has no soft mask of K patches (gumbel, soft_topk)")
        if not isinstance(self.tau, Tensor) and not 0 < self.tau < math.inf:
            raise ConfigError(f"tau: {self.tau} is not a finite number over 0")

    def soft_mask(self, scores: Tensor, k: int, generator: torch.Generator | None = None) -> Tensor:
        """The soft mask of the K best, scores (B, N) -> (B, N)."""
        if self.name == "gumbel":
            return gumbel_softmax(scores, self.tau, generator, noise=self.noise)
        return soft_topk(scores, k, self.tau)


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """The value of `hard` with the gradient of `soft`."""
    # The brackets make the forward value exact: the difference is zero before it is added.
    return hard + (soft - soft.detach())


def decide(
    scores: Tensor,
    index: Tensor,
    estimator: Estimator | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Decision matrix D: exactly 1 at the kept indices and 0 elsewhere, with the estimator's gradient.

    scores (B, N), index (B, K) -> (B, N); without an estimator, as in test, there is no gradient.
    """
    hard = torch.zeros_like(scores, requires_grad=False).scatter(1, index, 1.0)
    if estimator is None:
        return hard
    return straight_through(hard, estimator.soft_mask(scores, index.shape[1], generator))


def logistic_noise(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard logistic noise of the shape of `like`: the difference of two Gumbel variables."""
    return gumbel_noise(like, generator) - gumbel_noise(like, generator)


def ratio_loss(kept_share: Tensor, target: float) -> Tensor:
    """(target − mean share kept)², a scalar, from the shares (R,) of all rows; without rows there is none."""
    return (target - kept_share.mean()) ** 2 if kept_share.numel() else kept_share.sum()


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


def annealed(first: float, last: float, progress: float) -> float:
    """τ on its way from `first` (progress 0) to `last` (progress 1), in equal ratios."""
    return first * math.pow(last / first, min(max(progress, 0.0), 1.0))


class AnnealedTau(nn.Module):
    """τ over training: a number, or a tensor that `set_progress` moves from `first` to `last`.

    A tensor, because compiled code would otherwise be compiled again whenever it changes. It is not part
    of the saved state: it follows from the epoch.
    """

    def __init__(self, first: float, last: float | None = None) -> None:
        super().__init__()
        self.first, self.last = first, last
        if last is not None:
            self.register_buffer("moving", torch.tensor(first), persistent=False)

    @property
    def value(self) -> Temperature:
        """τ at the present progress of training."""
        return self.first if self.last is None else cast(Tensor, self.moving)

    def set_progress(self, progress: float) -> None:
        """Set how much of training is done: 0 in the first epoch, 1 in the last."""
        if self.last is not None:
            cast(Tensor, self.moving).fill_(annealed(self.first, self.last, progress))
