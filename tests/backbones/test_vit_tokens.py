"""Changing the tokens between blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from reference import vit as reference
from slimreid.backbones.layers import mean_coordinates, patch_coordinates
from slimreid.backbones.tokens import TokenState
from slimreid.backbones.vit import ViT
from slimreid.errors import ModelError
from slimreid.token_reduction.tokens import keep_tokens, merge_tokens
from support.vit import random_vit, small

SIZE, GRID, N = (32, 24), (4, 3), 12
STYLES = ("clip_vit_b16", "vit_b16", "dinov2_s14_reg", "dinov3_s16")


def model(style: str, **changes: object) -> ViT:
    return random_vit(small(style, depth=3, **changes), SIZE)


def at(block: int, change: Callable[[TokenState], TokenState]) -> Callable[[int, TokenState], TokenState]:
    return lambda i, state: change(state) if i == block else state


@pytest.mark.parametrize("style", STYLES)
def test_identity_changes_nothing(style: str) -> None:
    vit, images = model(style), torch.randn(2, 3, *SIZE)
    blocks = []

    def look(i: int, state: TokenState) -> TokenState:
        blocks.append(i)
        assert state.prefix == vit.config.prefix
        assert state.patches.shape == (2, N, 64)
        assert_close(state.positions, patch_coordinates(GRID))
        return state

    plain, hooked = vit(images), vit(images, hook=look)
    assert blocks == [0, 1, 2]
    assert_close(hooked.patches, plain.patches, atol=1e-5, rtol=0)
    assert_close(hooked.global_, plain.global_, atol=1e-5, rtol=0)
    assert hooked.state.index is None


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("block", [0, 1, 2])
def test_keeping_all_in_another_order_changes_nothing_but_the_order(style: str, block: int) -> None:
    vit, images = model(style), torch.randn(2, 3, *SIZE)
    order = torch.stack([torch.randperm(N) for _ in range(2)])
    plain, out = vit(images), vit(images, hook=at(block, lambda s: keep_tokens(s, order)))
    expected = plain.patches.gather(1, order[..., None].expand(-1, -1, plain.patches.shape[2]))
    assert_close(out.patches, expected, atol=1e-5, rtol=0)
    assert_close(out.global_, plain.global_, atol=1e-5, rtol=0)
    assert torch.equal(out.state.index, order)


@pytest.mark.parametrize("style", STYLES)
def test_merging_by_a_permutation_matrix_is_keeping(style: str) -> None:
    vit, images = model(style), torch.randn(2, 3, *SIZE)
    order = torch.stack([torch.randperm(N)[:5] for _ in range(2)])
    weights = nn.functional.one_hot(order, N).float()
    kept = vit(images, hook=at(1, lambda s: keep_tokens(s, order)))
    merged = vit(images, hook=at(1, lambda s: merge_tokens(s, order, weights, torch.ones(2, 5))))
    assert_close(merged.patches, kept.patches, atol=1e-5, rtol=1e-5)
    assert_close(merged.state.positions, kept.state.positions)
    assert torch.equal(merged.state.index, order)


@pytest.mark.parametrize("style", STYLES)
def test_keeping_twice_follows_the_patches(style: str) -> None:
    vit, images = model(style), torch.randn(2, 3, *SIZE)
    first = torch.stack([torch.randperm(N)[:6] for _ in range(2)])
    second = torch.tensor([[5, 0, 3], [1, 2, 4]])

    def change(i: int, state: TokenState) -> TokenState:
        return keep_tokens(state, {1: first, 2: second}[i]) if i else state

    out = vit(images, hook=change)
    assert torch.equal(out.state.index, first.gather(1, second))
    assert out.patches.shape[1] == 3
    assert out.state.grid == GRID
    assert_close(out.state.positions, patch_coordinates(GRID)[0][out.state.index])


def test_rotary_follows_kept_merged_and_leftover_tokens() -> None:
    """The last block, spelt out: each token turns by its own coordinate."""
    vit = model("dinov3_s16", registers=1)
    images = torch.randn(1, 3, *SIZE)
    order = torch.tensor([[7, 2, 11]])
    dropped = torch.rand(1, 1, N).softmax(-1)
    seen: dict[str, Tensor] = {}

    def change(i: int, state: TokenState) -> TokenState:
        if i != 2:
            return state
        state = keep_tokens(state, order, dropped)
        seen["x"], seen["places"] = state.x, state.positions
        return state

    with torch.no_grad():
        out = vit(images, hook=change)
    centres = [((2 * y + 1) / 4 - 1, (2 * x + 1) / 3 - 1) for y in range(4) for x in range(3)]
    points = [centres[j] for j in order[0].tolist()]
    points.append(tuple(sum(float(dropped[0, 0, j]) * centres[j][a] for j in range(N)) for a in (0, 1)))
    assert_close(seen["places"][0], torch.tensor(points), atol=1e-5, rtol=1e-5)

    block, state = vit.blocks[2], vit.blocks[2].state_dict()
    angles = reference.rotary_angles(points, 2, 32, 100.0)
    x = seen["x"][0]
    bias = state["attn.qkv.bias"] * torch.tensor([1.0, 0.0, 1.0]).repeat_interleave(64)
    y = reference.layer_norm(x, state, "norm1", 1e-5)
    y = reference.attention(y, state["attn.qkv.weight"], bias, 2, angles)
    x = x + reference.linear(y, state, "attn.proj") * state["scale1"]
    x = x + block.mlp(block.norm2(x)) * state["scale2"]
    assert_close(out.patches[0], vit.final_norm(x)[2:], atol=1e-4, rtol=1e-4)
    assert out.state.index.tolist() == [[7, 2, 11, -1]]


def test_mean_coordinates_carry_no_gradient_into_the_weights() -> None:
    weights = torch.rand(1, 2, N, requires_grad=True)
    places = mean_coordinates(patch_coordinates(GRID), 5 * weights)
    assert not places.requires_grad
    assert_close(places, mean_coordinates(patch_coordinates(GRID), weights))  # need not sum to 1
    assert places.abs().max() <= 1


def test_fewer_tokens_reach_the_later_blocks() -> None:
    vit = model("vit_b16")
    lengths = []
    for block in vit.blocks:
        block.register_forward_hook(lambda _, inputs, __: lengths.append(inputs[0].shape[1]))
    keep = torch.arange(4).expand(2, 4)
    vit(torch.randn(2, 3, *SIZE), hook=at(1, lambda s: keep_tokens(s, keep)))
    assert lengths == [1 + N, 5, 5]


def test_gradients_pass_the_change_and_checkpointing_agrees() -> None:
    images, keep = torch.randn(2, 3, *SIZE), torch.tensor([[3, 1], [0, 9]])
    gradients = []
    for on in (False, True):
        vit = model("dinov3_s16", grad_checkpointing=on).train()
        vit(images, hook=at(1, lambda s: keep_tokens(s, keep))).patches.square().sum().backward()
        gradients.append({name: p.grad for name, p in vit.named_parameters()})
    assert_close(gradients[0], gradients[1])
    assert gradients[0]["patch_embed.weight"].abs().max() > 0


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda s: replace(s, x=s.x[:, :, :32]), "rows and channels"),
        (lambda s: replace(s, x=s.x[:1]), "rows and channels"),
        (lambda s: replace(s, prefix=0), "class and register tokens must stay"),
        (lambda s: replace(s, x=s.x[:, :5]), "need positions"),
        (lambda s: replace(s, index=torch.zeros(2, 3, dtype=torch.int64)), "index must be"),
        (lambda s: replace(s, key_bias=torch.zeros(2, 3)), "key_bias must be"),
    ],
)
def test_tokens_that_cannot_go_on_are_refused(change: Callable[[TokenState], TokenState], word: str) -> None:
    with pytest.raises(ModelError, match=word):
        model("vit_b16")(torch.randn(2, 3, *SIZE), hook=at(1, change))
