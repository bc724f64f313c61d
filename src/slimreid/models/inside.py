"""Slimming inside the backbone: between two blocks, some patches go on, and what is left of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimreid.errors import ConfigError
from slimreid.models.tokens import Between, TokenState, original_patches, record_choice
from slimreid.models.vit import ViT, ViTOutput
from slimreid.slimming import (
    Packing,
    PatchMerger,
    PatchScorer,
    PatchScores,
    Slimmed,
    SlimmingOptions,
    check_names,
    decide,
    kept_count,
    merge_patches,
    merged_count,
    min_max,
    stable_top,
)
from slimreid.slimming.joining import joining_weights, likeness, redundancy
from slimreid.slimming.leftovers import leftover_weights, regions_of
from slimreid.slimming.multimodal import SHARED, by_module, name_guides, other_rows
from slimreid.slimming.option_checks import check_streams
from slimreid.slimming.random_scores import random_scores
from slimreid.slimming.selection import kept_mask
from slimreid.slimming.slimmer import guide_similarities, own_contrast, score_stream
from slimreid.slimming.stages import shrinking_share, stages_of
from slimreid.slimming.temperature import AnnealedTau


class InsideSlimmer(nn.Module):
    """Drops patches of M aligned streams at the stages of a schedule, each guided by all the others.

    Rows are (sample, modality) pairs. At each stage the tokens at that depth are scored by what
    `options.sources` names: a learned predictor per modality and stage (or one for all modalities with
    `shared`), the row's own class token, those of the sample's other modalities, the class token's attention,
    how far a patch is from the mean patch. Every row keeps the same number of patches, so tensors stay dense.

    With `leftover: nearest` dropped patches join the kept ones most like them, and a token counts as all its
    patches from there on.

    What is learned gets a gradient only through the weights of leftovers and, with an estimator, through
    D: in the attention of later blocks (`soft_keys`), in the tokens (`weigh_kept`) or in the merge. Raises
    `ConfigError` for options that do not fit the backbone.
    """

    def __init__(
        self, backbone: ViT, modalities: Sequence[str], options: SlimmingOptions, *, shared: bool = False
    ) -> None:
        super().__init__()
        check_names(modalities)
        config, grid = backbone.config, backbone.grid
        if options.where != "inside" or options.merge == "dual":
            raise ConfigError("slimming inside needs where 'inside' and merge 'single' or 'none'")
        if not config.class_token:
            raise ConfigError("slimming inside is guided by class tokens, and this backbone has none")
        if options.leftover == "regions" and (options.regions[0] > grid[0] or options.regions[1] > grid[1]):
            raise ConfigError(f"regions: {options.regions} are more than the {grid[0]}×{grid[1]} patches")
        check_streams(options, len(modalities))
        self.options, self.modalities = options, tuple(modalities)
        self.stages = stages_of(options.schedule, config.depth)
        self.stage_at = {stage.block: number for number, stage in enumerate(self.stages)}
        self.watched = tuple(s.block - 1 for s in self.stages if "attention" in options.sources)
        """Blocks whose class attention is needed."""
        groups = (SHARED,) if shared else self.modalities
        learned = self.stages if "learned" in options.sources else ()
        self.scorers = nn.ModuleList(
            nn.ModuleDict({g: PatchScorer(config.width) for g in groups}) for _ in learned
        )
        self.tau = AnnealedTau(options)
        count = merged_count(grid[0] * grid[1], options.merge_ratio, self.stages[-1].share)
        merging = groups if options.merge == "single" else ()
        self.mergers = nn.ModuleDict({g: PatchMerger(config.out_width, count) for g in merging})
        M = len(self.modalities)
        order = [[m, *(o for o in range(M) if o != m)] for m in range(M)]
        self.register_buffer("order", torch.tensor(order), persistent=False)
        self.progress = 1.0
        """How far the shares have shrunk from 1 to their values; counts only while training."""

    def set_epoch(self, epoch: float) -> None:
        """Let the shares shrink as the options say; `epoch` counts from 0."""
        length = self.options.keep_warmup_epochs
        self.progress = min(1.0, epoch / length) if length else 1.0

    def set_progress(self, progress: float) -> None:
        """How much of training is done, 0 to 1: the temperature follows."""
        self.tau.set_progress(progress)

    def counts(self, patches: int) -> tuple[int, ...]:
        """How many of the original patches each stage keeps now."""
        progress = self.progress if self.training else 1.0
        shape = self.options.keep_warmup_shape
        return tuple(kept_count(patches, shrinking_share(s.share, progress, shape)) for s in self.stages)

    def between(
        self,
        packing: Packing,
        patches: int,
        *,
        generator: torch.Generator | None = None,
        trace: bool = False,
    ) -> Between:
        """What the backbone calls between blocks, for the rows of `packing` with so many patches each.

        With `trace` the tokens bring along a `Selection` per stage, whose positions, decisions and scores
        are those of the original patches; the scores of patches that were dropped earlier are 0.
        """
        counts = self.counts(patches)

        def slim(block: int, state: TokenState) -> TokenState:
            number = self.stage_at.get(block)
            if number is None:
                return state
            slimmed: TokenState = self(number, counts[number], state, packing, generator, trace)
            return slimmed

        return slim

    def forward(
        self,
        number: int,
        count: int,
        state: TokenState,
        packing: Packing,
        generator: torch.Generator | None = None,
        trace: bool = False,
    ) -> TokenState:
        """Stage `number` (from 0): tokens of R rows in, tokens with `count` patches and leftovers out."""
        options, prefix = self.options, state.prefix
        n = state.patches.shape[1] - state.mixtures
        if count >= n and not trace:  # nothing to drop
            return state
        scores = self.score(number, state, packing, generator)
        alike = likeness(state.patches) if options.leftover == "nearest" and count < n else None
        if alike is not None and options.redundancy:
            again = redundancy(alike, scores.total)
            named = {**scores.sources, "redundancy": again}
            scores = PatchScores(scores.total - options.redundancy * again, named)
        score = scores.total if options.selection_gradient else scores.total.detach()
        if count >= n:  # the tokens stay in their order, and so does what is told of them
            everything = torch.arange(n, device=score.device).expand(len(score), n)
            return record_choice(state, state, scores, everything, None, self._names(scores, packing))
        index = stable_top(score, count)
        if not options.selection_gradient:
            state = replace(state, x=torch.cat([state.x[:, :prefix], state.patches.detach()], dim=1))
        if alike is None:
            weights, mass = self._leftover(state, score, index)
            after = replace(state.slim(index, weights), mass=mass)
        else:
            after = state.join(index, *joining_weights(alike, index, state.size))
        decision = None
        if self.training and options.estimator != "topk":
            decision = decide(
                score,
                index,
                estimator=options.estimator,
                tau=self.tau.value,
                noise=options.noise,
                training=True,
                generator=generator,
            )
            after = self._decided(state, after, decision, index)
        after = replace(after, key_bias=self._key_bias(after))
        if trace:
            after = record_choice(state, after, scores, index, decision, self._names(scores, packing))
        return after

    def _names(self, scores: PatchScores, packing: Packing) -> dict[str, Tensor]:
        """Scores (R, n) per source, guides under the names of their modalities."""
        return name_guides(scores.sources, cast(Tensor, self.order)[packing.modality], self.modalities)

    def score(
        self, number: int, state: TokenState, packing: Packing, generator: torch.Generator | None = None
    ) -> PatchScores:
        """Scores (R, n) of the patches that are left at a stage, with what they are made of."""
        options, sources = self.options, self.options.sources
        patches = state.patches[:, : state.patches.shape[1] - state.mixtures]
        n = patches.shape[1]
        if "random" in sources:
            origin = original_patches(state, n)
            drawn = random_scores(origin, packing.modality[:, None], number, self.training, generator)
            return PatchScores(drawn, {"random": drawn})
        order = cast(Tensor, self.order)[packing.modality]  # (R, M): own first, then the guides
        classes = packing.unpack(state.x[:, 0])  # (B, M, C), zero where absent
        guides = classes[packing.sample[:, None], order]  # (R, M, C)
        present = None
        if not packing.complete:
            exists = packing.unpack(packing.sample.new_ones(len(patches), dtype=torch.bool))
            present = exists[packing.sample[:, None], order][:, 1:]
        learned = None
        if self.scorers:
            # The stream between blocks has no norm yet; after the backbone tokens come normalised.
            normed = F.layer_norm(patches, patches.shape[-1:])
            modules = cast(nn.ModuleDict, self.scorers[number])
            learned = torch.cat([scorer(rows) for scorer, rows in by_module(modules, normed, packing.sizes)])
        if options.own == "mean":
            guides = torch.cat([patches.mean(1, keepdim=True), guides[:, 1:]], 1)
        return score_stream(
            patches,
            guide_similarities(patches, guides, options),
            options,
            learned=learned,
            attention=None if state.attention is None else state.attention[:, state.prefix :][:, :n],
            others_contrast=self._others_contrast(state, patches, packing, order, present),
            present=present,
            names=[str(g) for g in range(guides.shape[1] - 1)],
        )

    def _others_contrast(
        self, state: TokenState, patches: Tensor, packing: Packing, order: Tensor, present: Tensor | None
    ) -> Tensor | None:
        """(R, G, n): contrast of the same places in the other modalities; 0 where they dropped the patch."""
        if "others_contrast" not in self.options.sources or len(self.modalities) < 2:
            return None
        values = own_contrast(patches, self.options)
        if self.options.normalise == "minmax":
            values = min_max(values)
        origin = original_patches(state, patches.shape[1])
        total = patches.shape[1] if state.grid is None else state.grid[0] * state.grid[1]
        placed = values.new_zeros(len(values), total).scatter(1, origin, values)
        partners = other_rows(packing, order)  # (R, G)
        found = placed[partners].gather(2, origin[:, None].expand(-1, partners.shape[1], -1))
        return found if present is None else found.masked_fill(~present[..., None], 0.0)

    def _leftover(
        self, state: TokenState, score: Tensor, index: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """Weights (R, L, n + former L) that make the leftovers, and their log-weights (R, L)."""
        options = self.options
        if options.leftover == "none":
            return None, None
        region, count = None, 1
        if options.leftover == "regions":
            count = options.regions[0] * options.regions[1]
            region = regions_of(state.positions[:, : score.shape[1]], options.regions)
        return leftover_weights(score, kept_mask(score, index), region, count, state.mass)

    def _decided(self, before: TokenState, after: TokenState, decision: Tensor, index: Tensor) -> TokenState:
        """Carry the decision (R, n) on the kept patches along, and let it reach the tokens if asked."""
        kept = decision.gather(1, index)
        if self.options.weigh_kept:
            weights = F.pad(kept, (after.prefix, after.mixtures), value=1.0)
            after = replace(after, x=after.x * weights[..., None].to(after.x.dtype))
        if before.decision is not None:
            kept = kept * before.decision.gather(1, index)
        return replace(after, decision=kept)

    def _key_bias(self, state: TokenState) -> Tensor | None:
        """(R, T) to add to attention logits: log D if asked for, and log size, by which a token counts."""
        bias = None
        if self.options.soft_keys and state.decision is not None:
            bias = F.pad(state.decision.log(), (state.prefix, state.mixtures))
        if state.size is not None:
            sizes = F.pad(state.size.log(), (state.prefix, 0))
            bias = sizes if bias is None else bias + sizes
        return bias

    def finish(self, encoded: ViTOutput, packing: Packing) -> Slimmed:
        """Tokens (R, T, C) of the slimmed branch: patches that are left, merged if asked, and leftovers."""
        state = encoded.state
        assert state is not None
        if not self.mergers:
            return Slimmed(encoded.patches, state.chosen, (), size=state.size)
        n = encoded.patches.shape[1] - state.mixtures
        kept, leftover = encoded.patches[:, :n], encoded.patches[:, n:]
        modules: list[tuple[Any, Tensor]] = by_module(self.mergers, kept, packing.sizes)
        decision = state.decision if self.options.decision_in_merge else None
        if state.size is not None:  # a token has the weight of all its patches
            decision = state.size if decision is None else decision * state.size
        logits = torch.cat([merger.logits(rows) for merger, rows in modules])
        merged, weights = merge_patches(kept, logits, decision=decision)
        return Slimmed(torch.cat([merged, leftover], dim=1), state.chosen, (weights,))
