"""The whole model: one backbone for all spectra, fusion or slimming, heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from slimreid.errors import ConfigError, ModelError
from slimreid.models.fusion import HDM, ATMoE
from slimreid.models.heads import GlobalLocal, HeadSet, fill_absent, join_blocks
from slimreid.models.inside import InsideSlimmer
from slimreid.models.output import BOTH, FUSED, ORIGINAL, SLIMMED, ReIDOutput, second_branch
from slimreid.models.rows import batch_presence, pack_images
from slimreid.models.vit import ViT, ViTOutput
from slimreid.slimming import MultiModalSlimmer, Packing, Slimmed, SlimmingOptions, check_names, unpack
from slimreid.types import ModalBatch

Fusion = Literal["none", "mean", "sdtps", "hdm", "hdm_atmoe"]
Heads = Literal["direct", "split"]
Missing = Literal["skip", "zeros"]
NeckFeature = Literal["before", "after"]
FUSIONS: tuple[Fusion, ...] = get_args(Fusion)

__all__ = ["BOTH", "FUSED", "FUSIONS", "ORIGINAL", "SLIMMED", "ReIDModel", "ReIDOutput"]


class ReIDModel(nn.Module):
    """Embeds objects seen in any subset of `modalities`; one forward for training and test.

    `missing="skip"` leaves absent modalities out of computation, guidance and features; in test each
    modality's block of a feature is then L2-normalised and absent blocks are `absent_weight` times the mean
    of the present ones. `missing="zeros"` computes them from zero images, as earlier code did, and leaves
    features raw.
    """

    def __init__(
        self,
        backbone: ViT,
        modalities: Sequence[str],
        num_classes: int,
        *,
        fusion: Fusion = "sdtps",
        heads: Heads = "direct",
        global_local: bool = False,
        slimming: SlimmingOptions | None = None,
        shared_slimmer: bool = False,
        merged_tokens: int | None = None,
        moe_heads: int = 4,
        missing: Missing = "skip",
        absent_weight: float = 0.1,
        neck_feature: NeckFeature = "before",
        original_weight: float = 1.0,
        fusion_weight: float = 1.0,
    ) -> None:
        super().__init__()
        check_names(modalities)
        _check_choices(num_classes, fusion, heads, missing, neck_feature)
        self.backbone = backbone
        self.modalities = tuple(modalities)
        self.num_classes, self.fusion, self.missing = num_classes, fusion, missing
        self.neck_feature, self.absent_weight = neck_feature, absent_weight
        C, M = backbone.config.out_width, len(self.modalities)
        self.dim = C
        names = self.modalities
        self.global_local = nn.ModuleDict({m: GlobalLocal(C) for m in names if global_local})
        self.slimmer: MultiModalSlimmer | None = None
        self.inside: InsideSlimmer | None = None
        self.hdm: HDM | None = None
        self.moe: ATMoE | None = None
        blocks = M
        options = slimming or SlimmingOptions()
        if fusion == "sdtps" and options.where == "inside":
            self.inside = InsideSlimmer(backbone, names, options, shared=shared_slimmer)
        elif fusion == "sdtps":
            patches = backbone.grid[0] * backbone.grid[1]
            self.slimmer = MultiModalSlimmer(
                C, names, options, num_patches=patches, merged_tokens=merged_tokens, shared=shared_slimmer
            )
        elif fusion in ("hdm", "hdm_atmoe"):
            self.hdm = HDM(C, names)
            blocks = len(self.hdm.subsets)
            self.moe = ATMoE(C, blocks, moe_heads) if fusion == "hdm_atmoe" else None
        widths = {ORIGINAL: M * C} if heads == "direct" else {f"{ORIGINAL}.{m}": C for m in names}
        if self.second:
            widths[self.second] = blocks * C
        self.heads = HeadSet(widths, num_classes)
        self.head_names = self.heads.names
        self.sizes = {ORIGINAL: M * C, **({self.second: blocks * C} if self.second else {})}
        self.sizes[BOTH] = sum(self.sizes.values())
        self.gather: Callable[[Tensor], Tensor] | None = None
        """Joins tensors of all processes along the batch while training (set by the trainer), so that heads
        and losses see the global batch."""
        self.branch_weights = {ORIGINAL: original_weight}
        if self.second:
            self.branch_weights[self.second] = fusion_weight

    def set_epoch(self, epoch: int, epochs: int | None = None) -> None:
        """Tell what depends on it which epoch of training this is, from 0, and of how many."""
        if self.inside is not None:
            self.inside.set_epoch(epoch)
        slimmer = self.inside or self.slimmer
        if slimmer is not None and epochs is not None:
            slimmer.set_progress(epoch / (epochs - 1) if epochs > 1 else 1.0)

    @property
    def second(self) -> str | None:
        """Name of the second branch: `slimmed`, `fused`, or None without fusion."""
        return second_branch(self.fusion)

    def forward(
        self,
        images: Mapping[str, Tensor] | ModalBatch,
        cameras: Tensor | None = None,
        present: Tensor | None = None,
        *,
        with_slimmed: bool = False,
        generator: torch.Generator | None = None,
    ) -> ReIDOutput:
        """Embed images {modality: (B, 3, H, W)}, any subset of the model's modalities.

        `present` (B, M) bool says which each sample has, in the order of the model's modalities
        (default: all that are given); `cameras` (B,) int64 count from 0. A `ModalBatch` brings all of
        these. `generator` seeds the noise of the slimming's estimator. Raises `ModelError` when names,
        types or shapes do not fit, when a sample has no modality, or in training with a single sample.
        """
        if isinstance(images, ModalBatch):
            cameras = images.camera if cameras is None else cameras
            present = batch_presence(images, self.modalities) if present is None else present
            images = images.images
        rows, packing = pack_images(images, present, self.modalities, zeros=self.missing == "zeros")
        if cameras is not None and (cameras.shape != (packing.batch,) or cameras.dtype != torch.int64):
            raise ModelError(
                f"cameras must be int64 ({packing.batch},), not {cameras.dtype} {tuple(cameras.shape)}"
            )
        encoded = self._encode(rows, cameras, packing, generator, with_slimmed)
        globals_ = self._globals(encoded.global_, encoded.patches, packing)  # (R, C)
        exists = None if packing.complete else packing.unpack(packing.sample.new_ones(len(rows)) > 0)
        blocks, there = self._joined(packing.unpack(globals_), exists)  # (B, M, C)
        if self.training and len(blocks) < 2:
            raise ModelError(
                f"training needs at least two samples in a batch, not {len(blocks)}, because heads have a "
                "BatchNorm; call model.eval() to embed"
            )
        output = ReIDOutput({ORIGINAL: self._feature(ORIGINAL, blocks, there)}, present=there)
        if self.second:
            second, slimmed, some = self._second(encoded, globals_, packing, exists, generator)
            output.features[self.second] = self._feature(self.second, second, some)
            if slimmed is not None:
                output.ratio_loss = slimmed.ratio_loss
                output.slimmed = unpack(slimmed, packing) if with_slimmed else None
        output.features[BOTH] = torch.cat(list(output.features.values()), dim=1)
        if self.training:
            self._classify(output, blocks, there)
        return output

    def _joined(self, blocks: Tensor, exists: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Blocks (B, S, C) and their presence (B, S), over all processes if asked for; None = all present."""
        if not self.training or self.gather is None:
            return blocks, exists
        if exists is None:  # other processes may lack something: all must take part
            exists = torch.ones(blocks.shape[:2], dtype=torch.bool, device=blocks.device)
        blocks, exists = self.gather(blocks), self.gather(exists)
        return blocks, None if bool(exists.all()) else exists

    def _globals(self, global_: Tensor, patches: Tensor, packing: Packing) -> Tensor:
        """Global features (R, C), with each modality's own global–local reduction if there is one."""
        if not self.global_local:
            return global_
        parts = zip(
            self.global_local.values(),
            torch.split(global_, list(packing.sizes)),
            torch.split(patches, list(packing.sizes)),
            strict=True,
        )
        return torch.cat([module(g, p) for module, g, p in parts])

    def _encode(
        self,
        rows: Tensor,
        cameras: Tensor | None,
        packing: Packing,
        generator: torch.Generator | None,
        trace: bool,
    ) -> ViTOutput:
        """Images of all rows through the backbone, with fewer and fewer patches if slimmed inside."""
        backbone = self.backbone
        of_rows = None if cameras is None else cameras[packing.sample]
        encoded: ViTOutput
        if self.inside is None:
            # Attention is a source of slimming behind the backbone too: that of the last block.
            watched = self.slimmer is not None and "attention" in self.slimmer.options.used
            encoded = backbone(rows, of_rows, None, (backbone.config.depth - 1,) if watched else ())
        else:
            height, width = backbone.config.grid((rows.shape[2], rows.shape[3]))
            between = self.inside.between(packing, height * width, generator=generator, trace=trace)
            encoded = backbone(rows, of_rows, between, self.inside.watched)
        return encoded

    def _second(
        self,
        encoded: ViTOutput,
        globals_: Tensor,
        packing: Packing,
        present: Tensor | None,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Slimmed | None, Tensor | None]:
        """Blocks (B, S, C) of the second branch, how they were slimmed, and which blocks exist (B, S)."""
        patches = encoded.patches
        if self.hdm is None:
            slimmed = None
            if self.slimmer is not None:
                attention = None if encoded.state is None else encoded.state.attention
                if attention is not None:
                    attention = attention[:, self.backbone.config.prefix :]
                slimmed = self.slimmer.slim_rows(
                    patches, globals_, packing, attention=attention, generator=generator
                )
            elif self.inside is not None:
                slimmed = self.inside.finish(encoded, packing)
            pooled = patches.mean(dim=1) if slimmed is None else slimmed.pooled()
            blocks, there = self._joined(packing.unpack(pooled), present)
            return blocks, slimmed, there
        tokens = packing.unpack(torch.cat([globals_[:, None], patches], dim=1))
        subsets = None if present is None else self.hdm.subset_presence(present)
        blocks, there = self._joined(self.hdm(tokens, present), subsets)
        if self.moe is None:
            return blocks, None, there
        filled = blocks if there is None else fill_absent(blocks, there)
        return self.moe(filled), None, None

    def _feature(self, branch: str, blocks: Tensor, exists: Tensor | None) -> Tensor:
        """Blocks (B, S, D) of a branch to its feature (B, S·D); in test after the BNNeck if asked for."""
        weight = self.absent_weight
        if self.training:
            return join_blocks(blocks, exists, normalise=False, absent_weight=weight)
        if self.neck_feature == "after":
            blocks = self.heads.after_necks(branch, blocks, exists, weight)
        return join_blocks(blocks, exists, normalise=self.missing == "skip", absent_weight=weight)

    def _classify(self, output: ReIDOutput, blocks: Tensor, exists: Tensor | None) -> None:
        """Run every head on its feature."""
        for name in self.head_names:
            branch, _, modality = name.partition(".")
            feature, valid = output.features[branch], None
            if modality:
                m = self.modalities.index(modality)
                feature, valid = blocks[:, m], None if exists is None else exists[:, m]
            if valid is not None:
                output.valid[name] = valid
                if int(valid.sum()) < 2:  # a BatchNorm needs two rows: this head sits the step out
                    continue
            output.head_features[name] = feature
            output.neck_features[name], output.logits[name] = self.heads.head(name)(feature, valid)


def _check_choices(num_classes: int, fusion: str, heads: str, missing: str, neck_feature: str) -> None:
    """Raise `ConfigError` for a choice that is unknown."""
    if num_classes < 1:
        raise ConfigError(f"the number of classes must be at least 1, not {num_classes}")
    if fusion not in FUSIONS or heads not in get_args(Heads) or missing not in get_args(Missing):
        raise ConfigError(f"unknown fusion '{fusion}', heads '{heads}' or missing '{missing}'")
    if neck_feature not in get_args(NeckFeature):
        raise ConfigError(f"unknown neck_feature '{neck_feature}'; use 'before' or 'after'")
