"""Several aligned streams, each guided by all the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from slimreid.errors import ConfigError, ModelError
from slimreid.slimming.merging import PatchMerger, merge_patches
from slimreid.slimming.option_checks import check_streams
from slimreid.slimming.packing import Packing, pack_all, pack_present
from slimreid.slimming.presets import DEFAULT, SlimmingOptions, slimming_options
from slimreid.slimming.random_scores import random_scores
from slimreid.slimming.scoring import SOURCES, PatchScorer, PatchScores, min_max
from slimreid.slimming.selection import Selection
from slimreid.slimming.slimmer import (
    Slimmed,
    finish,
    guide_similarities,
    merge_decision,
    own_contrast,
    score_stream,
    select,
    token_count,
)
from slimreid.slimming.temperature import AnnealedTau

SHARED = "shared"


def check_names(modalities: Sequence[str]) -> None:
    """Raise `ConfigError` unless names are different and can name modules and scores of their own."""
    if not modalities or len(set(modalities)) != len(modalities):
        raise ConfigError(f"modalities: {list(modalities)} are not one or more different names")
    for name in modalities:
        if not name or "." in name or name in (*SOURCES, SHARED) or hasattr(nn.ModuleDict(), name):
            raise ConfigError(f"modalities: '{name}' cannot be the name of a modality; choose another word")


class Rows(NamedTuple):
    """R rows, sorted by modality, with all that a score may be made of."""

    patches: Tensor
    """(R, N, C)."""
    guides: Tensor
    """(R, M, C): the row's own vector, then those of the sample's other modalities."""
    order: Tensor
    """(R, M): the modality of each of them."""
    present: Tensor | None
    """(R, M − 1) bool: which of the others are there; None for all."""
    sizes: tuple[int, ...]
    """Rows of each modality."""
    partners: Tensor | None
    """(R, M − 1): rows of the others, where `others_contrast` is a source."""
    attention: Tensor | None
    """(R, N), where it is a source."""


class MultiModalSlimmer(nn.Module):
    """Slims M aligned streams at once; all modalities go through the same batched operations.

    Each modality has its own parameters, or all share one set (`shared=True`). Preset, options and
    the number of merged tokens are as for `PatchSlimmer`; a dual merge, which needs two named
    guides, is refused with `ConfigError`.
    """

    def __init__(
        self,
        dim: int,
        modalities: Sequence[str],
        preset: str | SlimmingOptions = DEFAULT,
        *,
        num_patches: int | None = None,
        merged_tokens: int | None = None,
        shared: bool = False,
        **changes: Any,
    ) -> None:
        super().__init__()
        self.options = options = slimming_options(preset, **changes)
        self.modalities = tuple(modalities)
        check_names(self.modalities)
        if options.merge == "dual":
            raise ConfigError("merge: 'dual' is for one stream with two guides; use PatchSlimmer")
        self.merged_tokens = token_count(options, num_patches, merged_tokens)
        check_streams(options, len(self.modalities))
        groups = (SHARED,) if shared else self.modalities
        self.scorers = nn.ModuleDict({g: PatchScorer(dim) for g in groups if "learned" in options.used})
        self.mergers = nn.ModuleDict(
            {g: PatchMerger(dim, self.merged_tokens) for g in groups if options.merge != "none"}
        )
        self.tau = AnnealedTau(options)
        M = len(self.modalities)
        order = [[m, *(o for o in range(M) if o != m)] for m in range(M)]
        self.register_buffer("order", torch.tensor(order), persistent=False)
        self._compiled: Callable[..., Slimmed] | None = None

    def forward(
        self,
        patches: Tensor,
        vectors: Tensor,
        present: Tensor | None = None,
        *,
        attention: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Slimmed:
        """patches (B, M, N, C), global vectors (B, M, C), present (B, M) bool or None for all.

        `attention` (B, M, N) is needed where it is a source of the score. Returns `Slimmed` with tokens
        (B, M, T, C), zero where a modality is absent. Patches are processed modality first, so memory in that
        order (a transposed view) spares a copy. Raises `ModelError` on shapes that do not fit.
        """
        if patches.ndim != 4 or patches.shape[1] != len(self.modalities) or patches.shape[2] == 0:
            raise ModelError(
                f"patches must be (B, {len(self.modalities)}, N, C) with N ≥ 1 for "
                f"{', '.join(self.modalities)}, not {tuple(patches.shape)}"
            )
        B, M, _, C = patches.shape
        if vectors.shape != (B, M, C) or (present is not None and present.shape != (B, M)):
            raise ModelError(
                f"global vectors must be ({B}, {M}, {C}) and present ({B}, {M}), not {tuple(vectors.shape)}"
                + ("" if present is None else f" and {tuple(present.shape)}")
            )
        packing = pack_all(B, M, patches.device) if present is None else pack_present(present)
        slimmed = self.slim_rows(
            packing.pack(patches),
            packing.pack(vectors),
            packing,
            attention=None if attention is None else packing.pack(attention),
            generator=generator,
        )
        return unpack(slimmed, packing)

    def slim_rows(
        self,
        patches: Tensor,
        vectors: Tensor,
        packing: Packing,
        *,
        attention: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Slimmed:
        """The same on packed rows: patches (R, N, C), vectors (R, C) -> `Slimmed` of R rows.

        For callers whose backbone already works on packed rows; `unpack` spreads the result.
        """
        stacked = packing.unpack(vectors)  # (B, M, C), zero where absent
        order = cast(Tensor, self.order)[packing.modality]  # (R, M): own first, then the guides
        guides = stacked[packing.sample[:, None], order]  # (R, M, C)
        present = None
        if not packing.complete:
            exists = packing.unpack(packing.sample.new_ones(len(patches), dtype=torch.bool))
            present = exists[packing.sample[:, None], order][:, 1:]
        partners = None
        if "others_contrast" in self.options.used:
            partners = other_rows(packing, order)
        core = self._compiled or self._core
        return core(Rows(patches, guides, order, present, packing.sizes, partners, attention), generator)

    def set_progress(self, progress: float) -> None:
        """How much of training is done, 0 to 1: the temperature follows."""
        self.tau.set_progress(progress)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the dense core in place, by `torch.compile`'s options; packing stays outside of it."""
        self._compiled = torch.compile(self._core, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_compiled": None}

    def _core(self, rows: Rows, generator: torch.Generator | None) -> Slimmed:
        """Rows -> `Slimmed` of rows; nothing here depends on the data but values."""
        options = self.options
        scores = self._score(rows, generator)
        selection = select(
            rows.patches, scores, options, self.tau.value, training=self.training, generator=generator
        )
        selection = replace(selection, scores=name_guides(selection.scores, rows.order, self.modalities))
        if options.merge == "none":
            return finish(selection.kept, (selection,), (), options)
        merged, weights = self._merge(selection, rows.sizes)
        return finish(merged, (selection,), (weights,), options)

    def _score(self, rows: Rows, generator: torch.Generator | None) -> PatchScores:
        """Scores (R, N) of the patches, with what they are made of."""
        options, patches, guides, partners = self.options, rows.patches, rows.guides, rows.partners
        R, N, _ = patches.shape
        if "random" in options.used:
            everything = torch.arange(N, device=patches.device).expand(R, N)
            drawn = random_scores(everything, rows.order[:, :1], 0, self.training, generator)
            return PatchScores(drawn, {"random": drawn})
        if options.own == "mean":
            guides = torch.cat([patches.mean(1, keepdim=True), guides[:, 1:]], 1)
        contrasts = None
        if partners is not None and partners.shape[1]:
            contrasts = of_others(own_contrast(patches, options), partners, rows.present, options.normalise)
        return score_stream(
            patches,
            guide_similarities(patches, guides, options),
            options,
            learned=self._learned(patches, rows.sizes),
            attention=rows.attention,
            others_contrast=contrasts,
            present=rows.present,
            names=[str(g) for g in range(guides.shape[1] - 1)],
        )

    def _learned(self, patches: Tensor, sizes: tuple[int, ...]) -> Tensor | None:
        """(R, N, C) -> (R, N), each row by the scorer of its modality."""
        if not self.scorers:
            return None
        return torch.cat([scorer(rows) for scorer, rows in by_module(self.scorers, patches, sizes)])

    def _merge(self, selection: Selection, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Kept (R, K, C) -> merged (R, N_c, C) and weights (R, N_c, K), by the merger of each modality."""
        logits = [merger.logits(rows) for merger, rows in by_module(self.mergers, selection.kept, sizes)]
        return merge_patches(
            selection.kept, torch.cat(logits), decision=merge_decision(selection, self.options)
        )


def name_guides(scores: Mapping[str, Tensor], order: Tensor, modalities: Sequence[str]) -> dict[str, Tensor]:
    """Scores (R, N) of guides `0`, `1`, … under the names of their modalities.

    order (R, M): the row's own modality, then those of its guides. Zero for the row's own modality; other
    sources stay as they are.
    """
    named = {name: scores[name] for name in SOURCES if name in scores}
    guides = [value for name, value in scores.items() if name not in SOURCES]
    if not guides:
        some = next(iter(named.values()))
        return {**named, **{name: torch.zeros_like(some) for name in modalities}}
    R, N = guides[0].shape
    spread = guides[0].new_zeros(R, len(modalities), N)
    spread = spread.scatter(1, order[:, 1:, None].expand(-1, -1, N), torch.stack(guides, 1))
    return {**named, **dict(zip(modalities, spread.unbind(1), strict=True))}


def by_module(modules: nn.ModuleDict, rows: Tensor, sizes: tuple[int, ...]) -> list[tuple[Any, Tensor]]:
    """Each module with its rows, which lie together: one product per modality is as fast as a batched one."""
    if SHARED in modules:
        return [(modules[SHARED], rows)]
    return list(zip(modules.values(), torch.split(rows, list(sizes)), strict=True))


def other_rows(packing: Packing, order: Tensor) -> Tensor:
    """(R, G): rows of the sample's other modalities, as in the order (R, M) of the guides; 0 if absent."""
    R = len(packing.sample)
    numbers = packing.unpack(torch.arange(R, device=order.device))  # (B, M)
    return numbers[packing.sample[:, None], order][:, 1:]


def of_others(values: Tensor, partners: Tensor, present: Tensor | None, normalise: str) -> Tensor:
    """What others say of the same places: values (R, N), partners (R, G) -> (R, G, N), zero where absent."""
    values = min_max(values) if normalise == "minmax" else values
    found = values[partners]
    return found if present is None else found.masked_fill(~present[..., None], 0.0)


def unpack(slimmed: Slimmed, packing: Packing) -> Slimmed:
    """Spread the rows of a result over (B, M, …), zero where a modality is absent."""

    def spread(selection: Selection) -> Selection:
        return Selection(
            index=packing.unpack(selection.index),
            kept=packing.unpack(selection.kept),
            decision=packing.unpack(selection.decision),
            score=packing.unpack(selection.score),
            leftover=None if selection.leftover is None else packing.unpack(selection.leftover),
            scores={name: packing.unpack(value) for name, value in selection.scores.items()},
        )

    return Slimmed(
        packing.unpack(slimmed.tokens),
        tuple(spread(s) for s in slimmed.selections),
        tuple(packing.unpack(w) for w in slimmed.weights),
        slimmed.ratio_loss,
        None if slimmed.size is None else packing.unpack(slimmed.size),
    )
