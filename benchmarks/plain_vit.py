"""The vision transformer one writes from ordinary torch modules, with the weights of ours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from slimreid.backbones.vit import ViT


class PlainBlock(nn.Module):
    """A pre-norm block of ordinary modules."""

    def __init__(self, width: int, heads: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, T, C) -> (B, T, C)."""
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class PlainViT(nn.Module):
    """A plain ViT for one image after the other; it shares the parameters of `vit`."""

    def __init__(self, vit: ViT) -> None:
        super().__init__()
        config = vit.config
        self.patch_embed = vit.patch_embed
        self.class_token, self.positions = vit.class_token, vit.position_embedding
        self.blocks = nn.Sequential(
            *(
                PlainBlock(config.width, config.heads, config.mlp_width, config.norm_eps)
                for _ in range(config.depth)
            )
        )
        self.norm = vit.final_norm
        for plain, ours in zip(self.blocks, vit.blocks, strict=True):
            plain.norm1, plain.norm2 = ours.norm1, ours.norm2
            plain.attention.in_proj_weight = ours.attn.qkv.weight
            plain.attention.in_proj_bias = ours.attn.qkv.bias
            plain.attention.out_proj.weight = ours.attn.proj.weight
            plain.attention.out_proj.bias = ours.attn.proj.bias
            plain.mlp[0], plain.mlp[2] = ours.mlp.fc1, ours.mlp.fc2

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) of one modality -> class token and patches (B, 1 + N, C)."""
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        tokens: Tensor = self.norm(self.blocks(x))
        return tokens
