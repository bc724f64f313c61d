"""The whole model: one backbone for all spectra, fusion or slimming, heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from slimreid.errors import ConfigError, ModelError
from slimreid.models.fusion import HDM, ATMoE
from slimreid.models.heads import BNNeckHead, GlobalLocal, fill_absent, join_blocks
from slimreid.models.vit import ViT
from slimreid.slimming import (
    MultiModalSlimmer,
    Packing,
    Slimmed,
    SlimmingOptions,
    check_names,
    pack_all,
    pack_present,
    unpack,
)
from slimreid.types import ModalBatch

Fusion = Literal["none", "sdtps", "hdm", "hdm_atmoe"]
Heads = Literal["direct", "split"]
Missing = Literal["skip", "zeros"]
FUSIONS: tuple[Fusion, ...] = get_args(Fusion)

ORIGINAL, SLIMMED, FUSED, BOTH = "original", "slimmed", "fused", "both"


@dataclass
class ReIDOutput:
    """What the model says of a batch of B samples."""

    features: dict[str, Tensor]
    """`original` (B, M·C, or M·2C with the mean of the patches), then `slimmed` or `fused`, then `both`; before any BNNeck."""
    logits: dict[str, Tensor] = field(default_factory=dict)
    """Class scores (B, classes) per head, while training: `original` or `original.<modality>`, ..."""
    head_features: dict[str, Tensor] = field(default_factory=dict)
    """The feature (B, D) that each head sees, for metric losses."""
    valid: dict[str, Tensor] = field(default_factory=dict)
    """(B,) bool: the rows that count, for heads of a modality that some samples lack."""
    ratio_loss: Tensor | None = None
    """Ratio loss of the slimming, if asked for."""
    slimmed: Slimmed | None = None
    """On request: tokens, choices of patches and merge weights, each (B, M, ...)."""
    present: Tensor | None = None
    """(B, M) bool: what was computed; None = everything."""


class ReIDModel(nn.Module):
    """Embeds objects seen in any subset of `modalities`; one forward for training and test.

    `missing="skip"` leaves absent modalities out of computation, guidance and features; in test each
    modality's block of a feature is then L2-normalised and absent blocks are the mean of the present
    ones. `missing="zeros"` computes them from zero images, as earlier code did, and leaves features raw.
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
        patch_mean: bool = False,
        slimming: SlimmingOptions | None = None,
        shared_slimmer: bool = False,
        merged_tokens: int | None = None,
        moe_heads: int = 4,
        missing: Missing = "skip",
        original_weight: float = 1.0,
        fusion_weight: float = 1.0,
    ) -> None:
        super().__init__()
        check_names(modalities)
        if num_classes < 1:
            raise ConfigError(f"the number of classes must be at least 1, not {num_classes}")
        if fusion not in FUSIONS or heads not in get_args(Heads) or missing not in get_args(Missing):
            raise ConfigError(f"unknown fusion '{fusion}', heads '{heads}' or missing '{missing}'")
        self.backbone = backbone
        self.modalities = tuple(modalities)
        self.num_classes, self.fusion, self.missing = num_classes, fusion, missing
        C, M = backbone.config.out_width, len(self.modalities)
        self.dim = C
        self.patch_mean = patch_mean
        D = 2 * C if patch_mean else C
        names = self.modalities
        self.global_local = nn.ModuleDict({m: GlobalLocal(C) for m in names if global_local})
        self.slimmer: MultiModalSlimmer | None = None
        self.hdm: HDM | None = None
        self.moe: ATMoE | None = None
        blocks = M
        if fusion == "sdtps":
            patches = backbone.grid[0] * backbone.grid[1]
            options = slimming or SlimmingOptions()
            self.slimmer = MultiModalSlimmer(
                C, names, options, num_patches=patches, merged_tokens=merged_tokens, shared=shared_slimmer
            )
        elif fusion in ("hdm", "hdm_atmoe"):
            self.hdm = HDM(C, names)
            blocks = len(self.hdm.subsets)
            self.moe = ATMoE(C, blocks, moe_heads) if fusion == "hdm_atmoe" else None
        widths = {ORIGINAL: M * D} if heads == "direct" else {f"{ORIGINAL}.{m}": D for m in names}
        if self.second:
            widths[self.second] = blocks * C
        # A dot is not allowed in module names.
        self.heads = nn.ModuleDict(
            {n.replace(".", "_"): BNNeckHead(w, num_classes) for n, w in widths.items()}
        )
        self.head_names = tuple(widths)
        self.sizes = {ORIGINAL: M * D, **({self.second: blocks * C} if self.second else {})}
        self.sizes[BOTH] = sum(self.sizes.values())
        self.gather: Callable[[Tensor], Tensor] | None = None
        """Joins tensors of all processes along the batch while training (set by the trainer), so that heads
        and losses see the global batch."""
        self.branch_weights = {ORIGINAL: original_weight}
        if self.second:
            self.branch_weights[self.second] = fusion_weight

    @property
    def second(self) -> str | None:
        """Name of the second branch: `slimmed`, `fused`, or None without fusion."""
        return {"none": None, "sdtps": SLIMMED}.get(self.fusion, FUSED)

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
            present = self._batch_presence(images) if present is None else present
            images = images.images
        rows, packing = self._pack(images, present)
        if cameras is not None and (cameras.shape != (packing.batch,) or cameras.dtype != torch.int64):
            raise ModelError(
                f"cameras must be int64 ({packing.batch},), not {cameras.dtype} {tuple(cameras.shape)}"
            )
        encoded = self.backbone(rows, None if cameras is None else cameras[packing.sample])
        globals_ = self._globals(encoded.global_, encoded.patches, packing)  # (R, C)
        exists = None if packing.complete else packing.unpack(packing.sample.new_ones(len(rows)) > 0)
        vectors = globals_
        if self.patch_mean:
            vectors = torch.cat([globals_, encoded.patches.mean(dim=1)], dim=1)  # (R, 2C)
        blocks, there = self._joined(packing.unpack(vectors), exists)  # (B, M, C or 2C)
        if self.training and len(blocks) < 2:
            raise ModelError(
                f"training needs at least two samples in a batch, not {len(blocks)}, because heads have a "
                "BatchNorm; call model.eval() to embed"
            )
        normalise = self.missing == "skip" and not self.training
        output = ReIDOutput({ORIGINAL: join_blocks(blocks, there, normalise)}, present=there)
        if self.second:
            second, slimmed, some = self._second(encoded.patches, globals_, packing, exists, generator)
            output.features[self.second] = join_blocks(second, some, normalise)
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

    def _batch_presence(self, batch: ModalBatch) -> Tensor:
        """Columns of the batch's presence mask in the order of the model's modalities."""
        B = len(batch)
        absent = torch.zeros(B, dtype=torch.bool, device=batch.present.device)
        column = {name: batch.present[:, m] for m, name in enumerate(batch.modalities)}
        return torch.stack([column.get(name, absent) for name in self.modalities], 1)

    def _pack(self, images: Mapping[str, Tensor], present: Tensor | None) -> tuple[Tensor, Packing]:
        """Images of all present (sample, modality) pairs as rows (R, 3, H, W), and where they belong."""
        unknown = [name for name in images if name not in self.modalities]
        if unknown or not images:
            raise ModelError(
                f"images of {unknown or 'nothing'}; the model knows {', '.join(self.modalities)}"
            )
        shapes = {name: tuple(image.shape) for name, image in images.items()}
        if len(set(shapes.values())) > 1:
            raise ModelError(f"images of all modalities must have one shape, not {shapes}")
        for name, image in images.items():
            if not image.is_floating_point():
                raise ModelError(
                    f"images of '{name}' must be floating-point, not {image.dtype}; scale them first"
                )
        first = next(iter(images.values()))
        B, M = len(first), len(self.modalities)
        if present is None and len(images) == M:
            return torch.cat([images[name] for name in self.modalities]), pack_all(B, M, first.device)
        given = torch.tensor([name in images for name in self.modalities], device=first.device)
        present = given.expand(B, M) if present is None else present
        if present.shape != (B, M) or present.dtype != torch.bool:
            raise ModelError(f"present must be bool ({B}, {M}), not {present.dtype} {tuple(present.shape)}")
        present = present & given
        empty = (~present.any(1)).nonzero()
        if len(empty):
            raise ModelError(f"sample {int(empty[0])} of the batch has no image of any modality")
        if self.missing == "zeros":
            full = [images.get(name, torch.zeros_like(first)) for name in self.modalities]
            keep = present.t()[:, :, None, None, None].to(first.dtype)
            return torch.cat([x * k for x, k in zip(full, keep, strict=True)]), pack_all(B, M, first.device)
        packing = pack_present(present)
        if packing.complete and len(images) == M:
            return torch.cat([images[name] for name in self.modalities]), packing
        some = [images[n][present[:, m]] for m, n in enumerate(self.modalities) if n in images]
        return torch.cat(some), packing

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

    def _second(
        self,
        patches: Tensor,
        globals_: Tensor,
        packing: Packing,
        present: Tensor | None,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Slimmed | None, Tensor | None]:
        """Blocks (B, S, C) of the second branch, how they were slimmed, and which blocks exist (B, S)."""
        if self.slimmer is not None:
            slimmed = self.slimmer.slim_rows(patches, globals_, packing, generator=generator)
            blocks, there = self._joined(packing.unpack(slimmed.tokens.mean(dim=1)), present)
            return blocks, slimmed, there
        hdm = cast(HDM, self.hdm)
        tokens = packing.unpack(torch.cat([globals_[:, None], patches], dim=1))
        subsets = None if present is None else hdm.subset_presence(present)
        blocks, there = self._joined(hdm(tokens, present), subsets)
        if self.moe is None:
            return blocks, None, there
        filled = blocks if there is None else fill_absent(blocks, there)
        return self.moe(filled), None, None

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
            output.logits[name] = self.heads[name.replace(".", "_")](feature, valid)
