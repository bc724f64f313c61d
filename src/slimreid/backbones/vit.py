"""One vision transformer for CLIP, ImageNet, DINOv2 and DINOv3 weights."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from slimreid.backbones.layers import Block, Rotary, patch_coordinates, resample_positions, rotary_table
from slimreid.backbones.tokens import BlockHook, TokenState, check_change
from slimreid.config.backbones import ViTConfig
from slimreid.errors import ModelError, SlimReIDWarning


@dataclass
class ViTOutput:
    """What the ViT makes of R images; C is `config.out_width`."""

    patches: Tensor
    """(R, n, C): the patch tokens; all those of the images unless the caller changed the tokens."""
    global_: Tensor
    """(R, C): the class token, or the mean of the patches without one."""
    state: TokenState | None = None
    """The tokens before final norm and projection with their history, when the caller could change them."""


class ViT(nn.Module):
    """Vision transformer over rows of images, whichever modality they are of.

    Learned positions are held for `image_size` (height, width); images of another size are accepted and
    the positions resampled for their grid. A camera that is not known (or `cameras=None`) gets the mean
    of the learned camera embeddings, with one warning.
    """

    class_token: nn.Parameter | None
    register_tokens: nn.Parameter | None
    position_embedding: nn.Parameter | None
    camera_embedding: nn.Parameter | None

    def __init__(self, config: ViTConfig, image_size: tuple[int, int]) -> None:
        super().__init__()
        self.config = config
        self.image_size = image_size
        self.grid = config.grid(image_size)
        width, steps = config.width, config.steps
        self.patch_embed = nn.Conv2d(3, width, config.patch_size, stride=steps, bias=config.conv_bias)
        cells = self.grid[0] * self.grid[1] + int(config.class_token)
        self._add("class_token", config.class_token, (1, 1, width))
        self._add("register_tokens", config.registers > 0, (1, config.registers, width))
        self._add("position_embedding", config.positions == "learned", (1, cells, width))
        self._add("camera_embedding", config.cameras > 0, (config.cameras, 1, width))
        self.pre_norm = nn.LayerNorm(width, eps=config.norm_eps) if config.pre_norm else nn.Identity()
        drops = [config.drop_path * i / max(1, config.depth - 1) for i in range(config.depth)]
        self.blocks = nn.ModuleList(Block(config, drop) for drop in drops)
        self.final_norm = nn.LayerNorm(width, eps=config.norm_eps)
        self.projection = (
            nn.Linear(width, config.projection, bias=False) if config.projection else nn.Identity()
        )
        self._warned = False
        self._reset()

    def _add(self, name: str, wanted: bool, shape: tuple[int, ...]) -> None:
        self.register_parameter(name, nn.Parameter(torch.empty(shape)) if wanted else None)

    def _reset(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for _, parameter in self.named_parameters(recurse=False):  # tokens, positions, cameras
            nn.init.trunc_normal_(parameter, std=0.02)
        if isinstance(self.projection, nn.Linear):
            nn.init.normal_(self.projection.weight, std=self.config.width**-0.5)

    def forward(
        self,
        images: Tensor,
        cameras: Tensor | None = None,
        hook: BlockHook | None = None,
        attention_blocks: Collection[int] = (),
    ) -> ViTOutput:
        """Encode images (R, 3, H, W), with cameras (R,) int64 if the model knows cameras.

        `hook(i, state)` is called before block i (from 0) and returns the tokens to go on with, see
        `TokenState`; `attention_blocks` are those after which it gets the class token's attention. Raises
        `ModelError` when shapes do not fit.
        """
        x, grid = self._embed(images, cameras)
        if hook is None and not attention_blocks and self.config.positions != "rotary":
            for block in self.blocks:
                x, _ = self._run(block, x)
            return self._output(x)
        return self._walk(x, grid, hook, attention_blocks)

    def _walk(
        self, x: Tensor, grid: tuple[int, int], hook: BlockHook | None, attention_blocks: Collection[int]
    ) -> ViTOutput:
        """Through the blocks with places and changes of the tokens."""
        state = TokenState(x, self.config.prefix, patch_coordinates(grid, x.device), grid=grid)
        rotary = places = None
        for i, block in enumerate(self.blocks):
            if hook is not None:
                before, state = state, hook(i, state)
                check_change(i, before, state)
            if self.config.positions == "rotary" and state.positions is not places:
                places = state.positions
                rotary = self._rotary(places)
            x, attention = self._run(block, state.x, rotary, state.key_bias, i in attention_blocks)
            state = replace(state, x=x, attention=attention)
        return self._output(state.x, state)

    def _output(self, x: Tensor, state: TokenState | None = None) -> ViTOutput:
        x = self.projection(self.final_norm(x))
        patches = x[:, self.config.prefix :]
        return ViTOutput(patches, x[:, 0] if self.config.class_token else patches.mean(dim=1), state)

    def _embed(self, images: Tensor, cameras: Tensor | None) -> tuple[Tensor, tuple[int, int]]:
        """Images to tokens (R, prefix + N, width) with positions and cameras, and the grid they come from."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ModelError(f"images must be (R, 3, H, W), not {tuple(images.shape)}")
        if cameras is not None and cameras.shape != images.shape[:1]:
            raise ModelError(
                f"{len(images)} images need cameras ({len(images)},), not {tuple(cameras.shape)}"
            )
        R, _, height, width = images.shape
        if min(height, width) < self.config.patch_size:
            raise ModelError(
                f"images {height}×{width} are smaller than one patch of {self.config.patch_size}"
            )
        x = self.patch_embed(images)  # (R, width, h, w)
        grid: tuple[int, int] = (x.shape[2], x.shape[3])
        x = x.flatten(2).transpose(1, 2)
        leading: list[Tensor] = [] if self.class_token is None else [self.class_token]
        if self.position_embedding is not None:
            table = self._positions(grid)
            x = x + table[:, len(leading) :]
            leading = [token + table[:, :1] for token in leading]
        camera = self._camera(R, cameras)  # (R, 1, width) or None
        if camera is not None and self.config.camera_style == "class":
            leading = [token + camera for token in leading]
        if self.register_tokens is not None:
            leading.append(self.register_tokens)
        x = torch.cat([*(token.expand(R, -1, -1).to(x.dtype) for token in leading), x], dim=1)
        if camera is not None and self.config.camera_style == "all":
            x = x + camera
        x = self.pre_norm(x)
        return x, grid

    def _positions(self, grid: tuple[int, int]) -> Tensor:
        assert self.position_embedding is not None
        return resample_positions(self.position_embedding, self.grid, grid, self.config.position_resampling)

    def _rotary(self, positions: Tensor) -> Rotary:
        config = self.config
        return rotary_table(positions, config.prefix, config.head_width, config.rotary_base)

    def _camera(self, rows: int, cameras: Tensor | None) -> Tensor | None:
        """Scaled camera embedding (rows or 1, 1, width); the mean one for cameras that are not known."""
        if self.camera_embedding is None:
            return None
        known = len(self.camera_embedding)
        mean = self.camera_embedding.mean(dim=0, keepdim=True)
        if cameras is None:
            self._warn("no camera was given")
            return mean * self.config.camera_scale
        unknown = (cameras < 0) | (cameras >= known)
        # Looking at the values waits for the device, so training on an accelerator goes without.
        if not self._warned and not torch.compiler.is_compiling():
            free = cameras.device.type == "cpu" or not (self.training or cameras.is_meta)
            if free and bool(unknown.any()):
                self._warn(f"camera {int(cameras[unknown][0])} is not among the {known} of training")
        table = torch.cat([self.camera_embedding, mean])
        return table[torch.where(unknown, known, cameras)] * self.config.camera_scale

    def _warn(self, what: str) -> None:
        if not self._warned and not torch.compiler.is_compiling():
            self._warned = True
            warnings.warn(f"{what}; the mean camera embedding is used", SlimReIDWarning, stacklevel=2)

    def _run(
        self,
        block: nn.Module,
        x: Tensor,
        rotary: Rotary | None = None,
        key_bias: Tensor | None = None,
        class_attention: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        out: tuple[Tensor, Tensor | None]
        if self.config.grad_checkpointing and self.training and torch.is_grad_enabled():
            out = checkpoint(block, x, rotary, key_bias, class_attention, use_reentrant=False)
        else:
            out = block(x, rotary, key_bias, class_attention)
        return out
