"""What several slimming tests share."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from slimreid.slimming import MultiModalSlimmer, PatchSlimmer

NAMES = ("rgb", "nir", "tir")


def streams(
    B: int = 3, M: int = 3, N: int = 10, C: int = 16, seed: int = 0, **kwargs
) -> tuple[Tensor, Tensor]:
    """Random patches (B, M, N, C) and global vectors (B, M, C)."""
    generator = torch.Generator().manual_seed(seed)
    patches = torch.randn(B, M, N, C, generator=generator)
    vectors = torch.randn(B, M, C, generator=generator)
    return patches.to(**kwargs), vectors.to(**kwargs)


def perturb(module: torch.nn.Module, seed: int = 1) -> None:
    """Move every parameter off its initial value, so that gains, biases and scales count in a comparison."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def load_demo(slimmer: MultiModalSlimmer, state: Mapping[str, Tensor]) -> None:
    """Fill a slimmer from the parameter names of the earlier host."""
    for name in slimmer.modalities:
        for module, prefix, old in (
            (slimmer.scorers[name], f"sdtps.{name}_sparse.", "score_predictor"),
            (slimmer.mergers[name], f"sdtps.{name}_aggr.", ""),
        ):
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            module.load_state_dict({k.replace(old, "mlp") if old else k: v for k, v in own.items()})


def one_stream(slimmer: MultiModalSlimmer, name: str) -> PatchSlimmer:
    """A `PatchSlimmer` with the options and parameters that one modality has in `slimmer`."""
    dim = slimmer.mergers[name].weight[0].normalized_shape[0]
    single = PatchSlimmer(dim, slimmer.options, merged_tokens=slimmer.merged_tokens)
    single.scorers[0].load_state_dict(slimmer.scorers[name].state_dict())
    single.merger.load_state_dict(slimmer.mergers[name].state_dict())
    return single.train(slimmer.training)
