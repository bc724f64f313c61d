"""The whole model: one backbone for all modalities, token reduction, fusion, heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimreid.backbones.pretrained import load_pretrained
from slimreid.backbones.vit import ViT, ViTOutput
from slimreid.config import ModelConfig
from slimreid.config.backbones import vit_config
from slimreid.config.model import BOTH, ORIGINAL, ReIDOptions
from slimreid.data.batches import ModalBatch
from slimreid.devices import guard_amx
from slimreid.errors import ConfigError, ModelError
from slimreid.models.fusion import HDM, ATMoE
from slimreid.models.heads import GlobalLocal, HeadSet, ReIDOutput, fill_absent, join_blocks
from slimreid.token_reduction.after_backbone import AfterBackboneReducer, by_modality
from slimreid.token_reduction.in_backbone import InBackboneReducer
from slimreid.token_reduction.merge import ReducedTokens, mean_by_size
from slimreid.token_reduction.modality_packing import Packing, check_names, pack_images


class ReIDModel(nn.Module):
    """Embeds objects seen in any subset of `modalities`; one forward for training and test.

    `options.missing="skip"` leaves absent modalities out of computation, guidance and features; in test each
    modality's block of a feature is then L2-normalised and absent blocks are `missing_fill_scale` times the
    mean of the present ones. `missing="zeros"` computes them from zero images, as DeMo did, and leaves
    features raw.

    Args:
        backbone: Encodes the images of all modalities.
        modalities: Names of the modalities.
        num_classes: Identities that the heads tell apart while training.
        options: Token reduction, fusion and heads.
        merged_tokens: Tokens of the learned merge, where it does not follow from the backbone's patches.
    """

    def __init__(
        self,
        backbone: ViT,
        modalities: Sequence[str],
        num_classes: int,
        options: ReIDOptions | None = None,
        *,
        merged_tokens: int | None = None,
    ) -> None:
        super().__init__()
        check_names(modalities)
        if num_classes < 1:
            raise ConfigError(f"the number of classes must be at least 1, not {num_classes}")
        self.options = options = options or ReIDOptions()
        self.backbone = backbone
        self.modalities = names = tuple(modalities)
        self.num_classes = num_classes
        self.dim = C = backbone.config.out_width
        self.global_local = nn.ModuleDict({m: GlobalLocal(C) for m in names if options.global_local})
        self.after_backbone: AfterBackboneReducer | None = None
        self.in_backbone: InBackboneReducer | None = None
        self.hdm: HDM | None = None
        self.moe: ATMoE | None = None
        if options.reduction == "in_backbone":
            self.in_backbone = InBackboneReducer(backbone, names, options.in_backbone)
        elif options.reduction == "after_backbone":
            patches = backbone.grid[0] * backbone.grid[1]
            self.after_backbone = AfterBackboneReducer(
                C, names, options.after_backbone, num_patches=patches, merged_tokens=merged_tokens
            )
        blocks = len(names)
        if options.fusion in ("hdm", "hdm_atmoe"):
            self.hdm = HDM(C, names)
            blocks = len(self.hdm.subsets)
            self.moe = ATMoE(C, blocks, options.moe_heads) if options.fusion == "hdm_atmoe" else None
        self.sizes = {ORIGINAL: len(names) * C, **({self.second: blocks * C} if self.second else {})}
        """Channels of each feature."""
        split = {"direct": (), "split": (ORIGINAL,), "split_all": (ORIGINAL, self.second)}[options.heads]
        widths: dict[str, int] = {}
        for branch, width in self.sizes.items():
            widths |= {f"{branch}.{m}": C for m in names} if branch in split else {branch: width}
        self.heads = HeadSet(widths, num_classes)
        self.head_names = self.heads.names
        self.sizes[BOTH] = sum(self.sizes.values())
        self.branch_weights = {ORIGINAL: 1.0}
        if self.second:
            self.branch_weights[self.second] = options.fusion_weight
        self.gather: Callable[[Tensor], Tensor] | None = None
        """Joins tensors of all processes along the batch while training (set by the trainer), so that heads
        and losses see the global batch."""

    def set_epoch(self, epoch: int, epochs: int) -> None:
        """Set which epoch of training this is, from 0, and of how many: temperatures follow."""
        if self.after_backbone is not None:
            self.after_backbone.set_progress(epoch / (epochs - 1) if epochs > 1 else 1.0)

    @property
    def second(self) -> str | None:
        """Name of the feature of the second branch: `slimmed`, `fused`, or None without fusion."""
        return self.options.second

    def forward(
        self,
        images: Mapping[str, Tensor] | ModalBatch,
        cameras: Tensor | None = None,
        present: Tensor | None = None,
        *,
        all_tokens: bool = False,
        with_reduced: bool = False,
        generator: torch.Generator | None = None,
    ) -> ReIDOutput:
        """Embed images of any subset of the model's modalities.

        Args:
            images: {modality: (B, 3, H, W)}, or a `ModalBatch`, which has cameras and presence too.
            cameras: (B,) int64, from 0; −1 = unknown.
            present: (B, M) bool, which modalities each sample has, in the order of the model's; None = all
                that are given.
            all_tokens: Leave out token reduction in the backbone.
            with_reduced: Also return tokens and selections of the token reduction.
            generator: Seeds the noise of the token reduction.

        Raises:
            ModelError: When names, types or shapes do not fit, when a sample has no modality, or in training
                with a single sample.
        """
        if isinstance(images, ModalBatch):
            cameras = images.camera if cameras is None else cameras
            present = images.presence_of(self.modalities) if present is None else present
            images = images.images
        rows, packing = pack_images(images, present, self.modalities, zeros=self.options.missing == "zeros")
        if cameras is not None and (cameras.shape != (packing.batch,) or cameras.dtype != torch.int64):
            raise ModelError(
                f"cameras must be int64 ({packing.batch},), not {cameras.dtype} {tuple(cameras.shape)}"
            )
        reducer = None if all_tokens else self.in_backbone
        encoded = self._encode(rows, cameras, packing, reducer, generator, with_reduced)
        globals_ = self._globals(encoded, packing)  # (R, C)
        exists = packing.present()
        blocks, there = self._joined(packing.unpack(globals_), exists)  # (B, M, C)
        if self.training and len(blocks) < 2:
            raise ModelError(
                f"training needs at least two samples in a batch, not {len(blocks)}, because heads have a "
                "BatchNorm; call model.eval() to embed"
            )
        output = ReIDOutput({ORIGINAL: self._feature(ORIGINAL, blocks, there)}, present=there)
        branches = {ORIGINAL: blocks}
        reduced = reducer.tokens(encoded) if reducer else self._reduce(encoded, globals_, packing, generator)
        if self.second:
            second, some = self._fuse(encoded.patches, reduced, globals_, packing, exists)
            output.features[self.second] = self._feature(self.second, second, some)
            branches[self.second] = second
        if reduced is not None:
            output.ratio_loss = self._ratio_loss(reduced)
            output.reduced = reduced.unpack(packing) if with_reduced else None
        output.features[BOTH] = torch.cat(list(output.features.values()), dim=1)
        if self.training:
            self._classify(output, branches, there)
        return output

    def _joined(self, blocks: Tensor, exists: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Blocks (B, S, C) and their presence (B, S), over all processes if asked for; None = all present."""
        if not self.training or self.gather is None:
            return blocks, exists
        if exists is None:  # other processes may lack something: all must take part
            exists = torch.ones(blocks.shape[:2], dtype=torch.bool, device=blocks.device)
        blocks, exists = self.gather(blocks), self.gather(exists)
        return blocks, None if bool(exists.all()) else exists

    def _globals(self, encoded: ViTOutput, packing: Packing) -> Tensor:
        """Global features (R, C), with each modality's own global–local reduction if there is one."""
        if not self.global_local:
            return encoded.global_
        mean = mean_by_size(encoded.patches, None if encoded.state is None else encoded.state.size)
        vectors = by_modality(self.global_local, encoded.global_, packing.sizes)
        means = by_modality(self.global_local, mean, packing.sizes)
        return torch.cat([module(g, p) for (module, g), (_, p) in zip(vectors, means, strict=True)])

    def _encode(
        self,
        rows: Tensor,
        cameras: Tensor | None,
        packing: Packing,
        reducer: InBackboneReducer | None,
        generator: torch.Generator | None,
        trace: bool,
    ) -> ViTOutput:
        """Images of all rows through the backbone, with token reduction by `reducer` in it."""
        backbone, hook = self.backbone, None
        attention_blocks: tuple[int, ...] = ()
        if reducer is not None:
            height, width = backbone.config.grid((rows.shape[2], rows.shape[3]))
            hook = reducer.block_hook(packing, height * width, generator=generator, trace=trace)
            attention_blocks = reducer.attention_blocks
        elif self.after_backbone is not None and "attention" in self.after_backbone.options.score_terms:
            attention_blocks = (backbone.config.depth - 1,)
        of_rows = None if cameras is None else cameras[packing.sample]
        encoded: ViTOutput = backbone(rows, of_rows, hook, attention_blocks)
        return encoded

    def _reduce(
        self, encoded: ViTOutput, globals_: Tensor, packing: Packing, generator: torch.Generator | None
    ) -> ReducedTokens | None:
        """The tokens (R, T, C) that reduction after the backbone leaves, or None without."""
        if self.after_backbone is None:
            return None
        attention = None if encoded.state is None else encoded.state.attention
        if attention is not None:
            attention = attention[:, self.backbone.config.prefix :]
        return self.after_backbone.reduce_rows(
            encoded.patches, globals_, packing, attention=attention, generator=generator
        )

    def _ratio_loss(self, reduced: ReducedTokens) -> Tensor | None:
        """The ratio loss over the rows of all processes, where it has a weight."""
        share, reducer = reduced.kept_share, self.after_backbone
        if share is None or reducer is None or not reducer.options.ratio_loss_weight:
            return None
        return reducer.ratio_loss(share if self.gather is None else self.gather(share))

    def _fuse(
        self,
        patches: Tensor,
        reduced: ReducedTokens | None,
        globals_: Tensor,
        packing: Packing,
        present: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Blocks (B, S, C) of the second branch, and which of them exist (B, S)."""
        if self.hdm is None:
            pooled = patches.mean(dim=1) if reduced is None else reduced.pooled()
            return self._joined(packing.unpack(pooled), present)
        tokens, size = patches, None
        if reduced is not None:
            tokens = reduced.tokens
            if reduced.size is not None:  # the global token counts once
                size = packing.unpack(F.pad(reduced.size, (1, 0), value=1.0))
        tokens = packing.unpack(torch.cat([globals_[:, None], tokens], dim=1))
        subsets = None if present is None else self.hdm.subset_presence(present)
        blocks, there = self._joined(self.hdm(tokens, present, size, given=packing.given), subsets)
        if self.moe is None:
            return blocks, there
        return self.moe(blocks if there is None else fill_absent(blocks, there)), None

    def _feature(self, branch: str, blocks: Tensor, exists: Tensor | None) -> Tensor:
        """Blocks (B, S, D) of a branch to its feature (B, S·D); in test after the BNNeck if asked for."""
        weight = self.options.missing_fill_scale
        if self.training:
            return join_blocks(blocks, exists, normalise=False, missing_fill_scale=weight)
        if self.options.neck_feature == "after":
            blocks = self.heads.after_necks(branch, blocks, exists, weight)
        feature = join_blocks(
            blocks, exists, normalise=self.options.missing == "skip", missing_fill_scale=weight
        )
        scale = self.options.second_scale
        return feature if branch == ORIGINAL or scale == 1 else scale * feature

    def _classify(self, output: ReIDOutput, branches: Mapping[str, Tensor], exists: Tensor | None) -> None:
        """Run every head on its feature; `branches` have the blocks (B, S, D) of each."""
        for name in self.head_names:
            branch, _, modality = name.partition(".")
            feature, valid = output.features[branch], None
            if modality:
                m = self.modalities.index(modality)
                feature, valid = branches[branch][:, m], None if exists is None else exists[:, m]
            if valid is not None:
                output.valid[name] = valid
                if int(valid.sum()) < 2:  # a BatchNorm needs two rows: this head sits the step out
                    continue
            output.head_features[name] = feature
            output.neck_features[name], output.logits[name] = self.heads.head(name)(feature, valid)


def build_model(
    config: ModelConfig,
    image_size: tuple[int, int],
    modalities: Sequence[str],
    num_classes: int,
    num_cameras: int = 0,
    *,
    load_weights: bool = True,
) -> ReIDModel:
    """Build a model, with pretrained weights if configured.

    Args:
        config: Options of the model.
        image_size: Height and width in pixels.
        modalities: Names, in the order of the blocks of the feature.
        num_classes: Training identities.
        num_cameras: Training cameras, for the camera embedding.
        load_weights: Read `config.pretrained`; False for models that get all weights from a checkpoint.

    Raises:
        ConfigError: For options or counts that make no model.
        ModelError: For weights that do not fit.
    """
    guard_amx()  # before the model's first product, whatever its precision: later is too late
    if num_cameras < 0:
        raise ConfigError(f"the number of cameras must not be negative, not {num_cameras}")
    vit = replace(
        vit_config(config.backbone),
        stride=config.stride,
        drop_path=config.drop_path,
        grad_checkpointing=config.grad_checkpointing,
        cameras=num_cameras if config.camera_embedding else 0,
        camera_scale=config.camera_scale,
    )
    backbone = ViT(vit, image_size)
    if config.pretrained and load_weights:
        load_pretrained(backbone, config.pretrained)
    return ReIDModel(backbone, modalities, num_classes, config)
