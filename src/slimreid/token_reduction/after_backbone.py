"""Token reduction after the backbone: patches of several modalities, each guided by all the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from slimreid.config.token_reduction import AfterBackboneConfig, check_modalities
from slimreid.errors import ConfigError, ModelError
from slimreid.token_reduction.estimators import AnnealedTau, Estimator, ratio_loss
from slimreid.token_reduction.merge import PatchMerger, ReducedTokens, merge_patches, merged_count
from slimreid.token_reduction.modality_packing import (
    SHARED,
    Guides,
    Packing,
    check_names,
    pack_all,
    pack_present,
)
from slimreid.token_reduction.score import Evidence, PatchScorer, PatchScores, random_scores, score_patches
from slimreid.token_reduction.select import (
    Selection,
    keep_by_threshold,
    keep_top_patches,
    kept_count,
    weigh_all_patches,
)

THRESHOLD = 0.5
"""Score over which `binary_concrete` keeps a patch before anything is learned."""


class Rows(NamedTuple):
    """R rows, sorted by modality, and what they are scored by."""

    patches: Tensor
    """(R, N, C)."""
    guides: Guides
    sizes: tuple[int, ...]
    """Rows of each modality."""
    attention: Tensor | None
    """(R, N), where it is a score term."""


class AfterBackboneReducer(nn.Module):
    """Reduces the patches of M modalities to a few tokens each, all in the same batched operations.

    Each modality has its own parameters, or all share one set (`options.shared`).

    Args:
        dim: Channels of the patches.
        modalities: Names of the modalities.
        options: How patches are scored, kept and merged.
        num_patches: Patches per image, from which the number of merged tokens follows.
        merged_tokens: That number itself, instead; at run time the number of patches may differ.

    Raises:
        ConfigError: when names or options make no reducer.
    """

    def __init__(
        self,
        dim: int,
        modalities: Sequence[str],
        options: AfterBackboneConfig | None = None,
        *,
        num_patches: int | None = None,
        merged_tokens: int | None = None,
    ) -> None:
        super().__init__()
        self.options = options = options or AfterBackboneConfig()
        self.modalities = tuple(modalities)
        check_names(self.modalities)
        check_modalities("model.after_backbone.score_terms", options.score_terms, len(self.modalities))
        self.merged_tokens = _token_count(options, num_patches, merged_tokens)
        groups = (SHARED,) if options.shared else self.modalities
        learned, merging = "learned" in options.score_terms, options.merge == "learned"
        self.scorers = nn.ModuleDict({g: PatchScorer(dim) for g in groups if learned})
        self.mergers = nn.ModuleDict({g: PatchMerger(dim, self.merged_tokens) for g in groups if merging})
        by_threshold = options.estimator == "binary_concrete"
        self.thresholds = nn.ParameterDict(
            {g: nn.Parameter(torch.tensor(THRESHOLD)) for g in groups if by_threshold}
        )
        self.tau = AnnealedTau(options.tau, options.tau_final)
        self._compiled: Callable[..., ReducedTokens] | None = None

    def forward(
        self,
        patches: Tensor,
        vectors: Tensor,
        present: Tensor | None = None,
        *,
        attention: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> ReducedTokens:
        """Reduce patches (B, M, N, C), guided by global vectors (B, M, C).

        Patches are processed modality first, so memory in that order (a transposed view) spares a copy.

        Args:
            patches: Patch tokens of all modalities.
            vectors: Their global vectors.
            present: (B, M) bool, which modalities each sample has; None for all.
            attention: (B, M, N), where it is a score term.
            generator: Seeds the noise of the estimator.

        Returns:
            Tokens (B, M, T, C), zero where a modality is absent.

        Raises:
            ModelError: on shapes that do not fit.
        """
        packing = self._check(patches, vectors, present)
        reduced = self.reduce_rows(
            packing.pack(patches),
            packing.pack(vectors),
            packing,
            attention=None if attention is None else packing.pack(attention),
            generator=generator,
        )
        return reduced.unpack(packing)

    def reduce_rows(
        self,
        patches: Tensor,
        vectors: Tensor,
        packing: Packing,
        *,
        attention: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> ReducedTokens:
        """The same on packed rows: patches (R, N, C), vectors (R, C) -> tokens of R rows."""
        rows = Rows(patches, packing.guides(vectors), packing.sizes, attention)
        return (self._compiled or self._core)(rows, generator)

    def ratio_loss(self, kept_share: Tensor) -> Tensor:
        """The weighted ratio loss, a scalar, of the shares kept (R,) in all rows."""
        return self.options.ratio_loss_weight * ratio_loss(kept_share, self.options.keep_ratio)

    def set_progress(self, progress: float) -> None:
        """Set how much of training is done, 0 to 1: the temperature follows."""
        self.tau.set_progress(progress)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the dense core in place, by `torch.compile`'s options; packing stays outside of it."""
        self._compiled = torch.compile(self._core, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_compiled": None}

    def _check(self, patches: Tensor, vectors: Tensor, present: Tensor | None) -> Packing:
        M = len(self.modalities)
        if patches.ndim != 4 or patches.shape[1] != M or patches.shape[2] == 0:
            raise ModelError(
                f"patches must be (B, {M}, N, C) with N ≥ 1 for {', '.join(self.modalities)}, "
                f"not {tuple(patches.shape)}"
            )
        B, _, _, C = patches.shape
        if vectors.shape != (B, M, C) or (present is not None and present.shape != (B, M)):
            raise ModelError(
                f"global vectors must be ({B}, {M}, {C}) and present ({B}, {M}), not {tuple(vectors.shape)}"
                + ("" if present is None else f" and {tuple(present.shape)}")
            )
        return pack_all(B, M, patches.device) if present is None else pack_present(present)

    def _core(self, rows: Rows, generator: torch.Generator | None) -> ReducedTokens:
        """Rows -> tokens of rows; nothing here depends on the data but values."""
        scores = self._score(rows, generator)
        selection = self._select(rows, scores.total, generator)
        selection = replace(selection, scores=scores.named(rows.guides, self.modalities))
        tokens, weights = selection.kept, None
        if self.mergers:
            tokens, weights = self._merge(selection, rows.sizes)
        size = self._size(selection, tokens.shape[1])
        if selection.leftover is not None:
            tokens = torch.cat([tokens, selection.leftover], dim=1)
        share = None if size is None else selection.decision.mean(1)
        return ReducedTokens(tokens, (selection,), () if weights is None else (weights,), share, size)

    def _score(self, rows: Rows, generator: torch.Generator | None) -> PatchScores:
        """Scores (R, N) of the patches."""
        options, patches = self.options, rows.patches
        if "random" in options.score_terms:
            R, N, _ = patches.shape
            everything = torch.arange(N, device=patches.device).expand(R, N)
            own = rows.guides.modality[:, 0]
            return random_scores(everything, own, 0, training=self.training, generator=generator)
        learned = None
        if self.scorers:
            learned = torch.cat([scorer(x) for scorer, x in by_modality(self.scorers, patches, rows.sizes)])
        evidence = Evidence(patches, rows.guides, learned, rows.attention)
        return score_patches(
            evidence, options.score_terms, beta=options.beta, gradient=options.score_gradient
        )

    def _select(self, rows: Rows, score: Tensor, generator: torch.Generator | None) -> Selection:
        """Which patches are kept: the K best in test, as the estimator says while training."""
        options, patches = self.options, rows.patches
        tau, gate = self.tau.value, options.straight_through_gate
        estimator = None
        if self.training and self.thresholds:
            logits = (score - self._threshold(rows)) / tau
            return keep_by_threshold(
                patches, score, logits, options.max_keep_ratio,
                noise=options.noise, generator=generator, gate=gate,
            )  # fmt: skip
        if self.training and options.estimator in ("gumbel", "soft_topk"):
            estimator = Estimator(options.estimator, tau, options.noise)
            K = kept_count(patches.shape[1], options.keep_ratio)
            if options.selection == "soft" and patches.shape[1] > K:
                return weigh_all_patches(patches, score, estimator.soft_mask(score, K, generator))
        return keep_top_patches(
            patches, score, options.keep_ratio,
            estimator=estimator, generator=generator, gate=gate, zero_leftover=options.zero_leftover,
        )  # fmt: skip

    def _threshold(self, rows: Rows) -> Tensor:
        """The learned threshold of each row's modality: (R, 1), or a single one."""
        if SHARED in self.thresholds:
            threshold: Tensor = self.thresholds[SHARED]
            return threshold
        thresholds = torch.stack([self.thresholds[name] for name in self.modalities])
        return thresholds[rows.guides.modality[:, :1]]

    def _merge(self, selection: Selection, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Kept (R, K, C) -> merged (R, N_c, C) and weights (R, N_c, K), by the merger of each modality."""
        pairs = by_modality(self.mergers, selection.kept, sizes)
        logits = torch.cat([merger.logits(rows) for merger, rows in pairs])
        decision = None
        if self.training and self.options.estimator != "topk":  # otherwise 1, without a gradient
            decision = selection.decision.gather(1, selection.index)
            decision = decision if self.options.decision_in_merge else decision.detach()
        return merge_patches(selection.kept, logits, decision=decision)

    def _size(self, selection: Selection, tokens: int) -> Tensor | None:
        """(R, T): 1 for tokens and 0 for empty places, where the number kept differs; None = all count."""
        if not (self.training and self.thresholds):
            return None
        hard = selection.decision.detach()
        places = hard.new_ones(len(hard), tokens) if self.mergers else hard.gather(1, selection.index)
        leftover = (hard == 0).any(1, keepdim=True).to(hard.dtype)
        return torch.cat([places, leftover], dim=1)


def _token_count(options: AfterBackboneConfig, num_patches: int | None, merged_tokens: int | None) -> int:
    """N_c, given as it is or through the usual number of patches."""
    if merged_tokens is not None:
        if merged_tokens < 1:
            raise ConfigError(f"merged_tokens: {merged_tokens} is not at least 1")
        return merged_tokens
    if num_patches is None and options.merge != "none":
        raise ConfigError("the size of the merge is fixed at construction: give num_patches or merged_tokens")
    return merged_count(num_patches or 1, options.merge_ratio, options.keep_ratio)


def by_modality(modules: nn.ModuleDict, rows: Tensor, sizes: tuple[int, ...]) -> list[tuple[Any, Tensor]]:
    """Each module with its rows, which lie together: one product per modality is as fast as a batched one.

    While exporting, modalities without rows are left out. Otherwise their modules take part with no rows, so
    that all parameters have gradients in every process.
    """
    if SHARED in modules:
        return [(modules[SHARED], rows)]
    pairs = list(zip(modules.values(), torch.split(rows, list(sizes)), strict=True))
    if not torch.compiler.is_exporting():
        return pairs
    return [pair for pair, size in zip(pairs, sizes, strict=True) if size != 0]
