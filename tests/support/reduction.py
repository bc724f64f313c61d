"""What several tests of token reduction share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from slimreid.config.token_reduction import AfterBackboneConfig
from slimreid.token_reduction import AfterBackboneReducer

NAMES = ("rgb", "nir", "tir")
COSINE = ("learned", "self", "cross")
"""The score terms of eq. 3."""


def streams(
    B: int = 3, M: int = 3, N: int = 10, C: int = 16, seed: int = 0, **kwargs
) -> tuple[Tensor, Tensor]:
    """Random patches (B, M, N, C) and global vectors (B, M, C)."""
    generator = torch.Generator().manual_seed(seed)
    patches = torch.randn(B, M, N, C, generator=generator)
    vectors = torch.randn(B, M, C, generator=generator)
    return patches.to(**kwargs), vectors.to(**kwargs)


def make_reducer(
    names: Sequence[str] = NAMES, C: int = 16, N: int = 10, terms: Sequence[str] = COSINE, **options
) -> AfterBackboneReducer:
    """A reducer in eval mode whose every parameter matters."""
    torch.manual_seed(0)
    config = AfterBackboneConfig(score_terms=tuple(terms), **options)
    reducer = AfterBackboneReducer(C, names, config, num_patches=N).eval()
    perturb(reducer)
    return reducer


def perturb(module: torch.nn.Module, seed: int = 1) -> None:
    """Move every parameter off its initial value, so that gains, biases and scales count in a comparison."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def load_demo(reducer: AfterBackboneReducer, state: Mapping[str, Tensor]) -> None:
    """Fill a reducer from the parameter names of the earlier host."""
    for name in reducer.modalities:
        for module, prefix, old in (
            (reducer.scorers[name], f"sdtps.{name}_sparse.", "score_predictor"),
            (reducer.mergers[name], f"sdtps.{name}_aggr.", ""),
        ):
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            module.load_state_dict({k.replace(old, "mlp") if old else k: v for k, v in own.items()})


def some_modalities(reducer: AfterBackboneReducer, names: Sequence[str]) -> AfterBackboneReducer:
    """A reducer of some modalities only, with the parameters that they have in `reducer`."""
    dim = next(iter(reducer.mergers.values())).weight[0].normalized_shape[0]
    part = AfterBackboneReducer(dim, names, reducer.options, merged_tokens=reducer.merged_tokens)
    part.to(next(reducer.parameters()).dtype)
    for name in names:
        part.mergers[name].load_state_dict(reducer.mergers[name].state_dict())
        if reducer.scorers:
            part.scorers[name].load_state_dict(reducer.scorers[name].state_dict())
    return part.train(reducer.training)
