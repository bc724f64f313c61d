"""Token reduction in the backbone: between two blocks, patches are dropped or merged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from slimreid.backbones.tokens import BlockHook, TokenState
from slimreid.backbones.vit import ViT, ViTOutput
from slimreid.config.token_reduction import InBackboneConfig, Schedule, check_modalities, check_schedule
from slimreid.errors import ConfigError
from slimreid.token_reduction.merge import (
    ReducedTokens,
    leftover_weights,
    nearest_weights,
    patch_similarity,
    redundancy,
)
from slimreid.token_reduction.modality_packing import Packing, check_names
from slimreid.token_reduction.score import Evidence, PatchScores, random_scores, score_patches
from slimreid.token_reduction.select import kept_count, kept_mask, stable_top
from slimreid.token_reduction.tokens import keep_tokens, merge_tokens, original_patches, record_selection


@dataclass(frozen=True)
class Stage:
    """Patches are dropped once, before one block."""

    block: int
    """Number of the block (from 0) before which patches are dropped: so many blocks see them all."""
    share: float
    """Share of the original patches that stay, in (0, 1]."""


def stages_of(schedule: Schedule, depth: int) -> tuple[Stage, ...]:
    """The stages of a schedule in a stack of `depth` blocks.

    A position p means that round(p · depth) blocks are done before; at least one is, and at least one
    follows. Where a shallow stack brings two stages before the same block, the smaller share counts.
    Raises `ConfigError` for a schedule that is none, or a stack of fewer than two blocks.
    """
    check_schedule(schedule)
    if depth < 2:
        raise ConfigError(f"token reduction in the backbone needs at least two blocks, not {depth}")
    found: dict[int, float] = {}
    for position, share in schedule:
        block = min(max(math.floor(position * depth + 0.5), 1), depth - 1)
        found[block] = share
    return tuple(Stage(block, share) for block, share in found.items())


class InBackboneReducer(nn.Module):
    """Drops or merges patches of M modalities at the stages of a schedule, each guided by all the others.

    Rows are (sample, modality) pairs. At each stage the tokens at that depth are scored by the terms of
    `options.score_terms`, with the class tokens at that depth as guides. Every row keeps the same number of
    patches, so tensors stay dense. Nothing here is learned.

    Raises `ConfigError` for options that do not fit the backbone.
    """

    def __init__(self, backbone: ViT, modalities: Sequence[str], options: InBackboneConfig) -> None:
        super().__init__()
        check_names(modalities)
        if not backbone.config.class_token:
            raise ConfigError("token reduction in the backbone needs a class token; this backbone has none")
        check_modalities("model.in_backbone.score_terms", options.score_terms, len(modalities))
        self.options, self.modalities = options, tuple(modalities)
        depth = backbone.config.depth
        self.test_stages = stages_of(options.schedule, depth)
        self.train_stages = stages_of(options.train_schedule or options.schedule, depth)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the mode, training or test."""
        return self.train_stages if self.training else self.test_stages

    @property
    def attention_blocks(self) -> tuple[int, ...]:
        """Blocks whose class attention is needed."""
        needed = "attention" in self.options.score_terms
        return tuple(stage.block - 1 for stage in self.stages if needed)

    def block_hook(
        self,
        packing: Packing,
        num_patches: int,
        *,
        generator: torch.Generator | None = None,
        trace: bool = False,
    ) -> BlockHook:
        """What the backbone calls between blocks, for the rows of `packing` with so many patches each.

        With `trace` the tokens bring along a `Selection` per stage, whose positions, decisions and scores
        are those of the original patches; the scores of patches that were dropped earlier are 0.
        """
        stage_at = {stage.block: (number, stage.share) for number, stage in enumerate(self.stages)}

        def reduce(block: int, state: TokenState) -> TokenState:
            if block not in stage_at:
                return state
            number, share = stage_at[block]
            count = kept_count(num_patches, share)
            reduced: TokenState = self(number, count, state, packing, generator, trace)
            return reduced

        return reduce

    def forward(
        self,
        number: int,
        count: int,
        state: TokenState,
        packing: Packing,
        generator: torch.Generator | None = None,
        trace: bool = False,
    ) -> TokenState:
        """Reduce the tokens of R rows to `count` patches, and a leftover if so configured.

        Args:
            number: Stage, from 0.
            count: Patches to keep per row.
            state: Tokens before the stage.
            packing: Which sample and modality each row is.
            generator: Seeds the scores of `random`.
            trace: Record the selection in the returned state.
        """
        n = state.patches.shape[1] - state.leftovers
        if count >= n and not trace:  # nothing to drop
            return state
        guides = packing.guides(state.x[:, 0])
        scores = self._score(number, state, Evidence(state.patches[:, :n], guides), packing, generator)
        score, terms = scores.total, scores.named(guides, self.modalities)
        if count >= n:  # the tokens stay in their order, and so does what is recorded of them
            everything = torch.arange(n, device=score.device).expand(score.shape[0], n)
            return record_selection(state, state, score, terms, everything)
        if self.options.dropped == "merge":
            similarity = patch_similarity(state.patches)
            if self.options.redundancy:
                terms["redundancy"] = redundancy(similarity, score)
                score = score - self.options.redundancy * terms["redundancy"]
            index = stable_top(score, count)
            after = merge_tokens(state, index, *nearest_weights(similarity, index, state.size))
        else:
            index = stable_top(score, count)
            after = self._keep(state, score, index)
        return record_selection(state, after, score, terms, index) if trace else after

    def _score(
        self,
        number: int,
        state: TokenState,
        evidence: Evidence,
        packing: Packing,
        generator: torch.Generator | None,
    ) -> PatchScores:
        """Scores (R, n) of the patches that are left at a stage."""
        n = evidence.patches.shape[1]
        origin = original_patches(state, n)
        if "random" in self.options.score_terms:
            return random_scores(
                origin, packing.modality, number, training=self.training, generator=generator
            )
        total = n if state.grid is None else state.grid[0] * state.grid[1]
        attention = None if state.attention is None else state.attention[:, state.prefix :][:, :n]
        evidence = evidence._replace(attention=attention, origin=origin, num_patches=total)
        return score_patches(evidence, self.options.score_terms)

    def _keep(self, state: TokenState, score: Tensor, index: Tensor) -> TokenState:
        """Keep the patches at `index`; the others go on as one leftover token, or not."""
        if self.options.dropped == "discard":
            return keep_tokens(state, index)
        weights, mass = leftover_weights(score, kept_mask(score, index), state.leftover_mass)
        return replace(keep_tokens(state, index, weights), leftover_mass=mass)

    def tokens(self, encoded: ViTOutput) -> ReducedTokens:
        """The tokens (R, T, C) that are left after the last block, with their sizes and the trace."""
        state = encoded.state
        assert state is not None
        return ReducedTokens(encoded.patches, state.trace, size=state.size)
