"""Patches merged in the backbone: how tokens count, and in which precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from slimreid.backbones.layers import Attention, patch_coordinates
from slimreid.backbones.tokens import TokenState
from slimreid.config.token_reduction import InBackboneConfig
from slimreid.errors import ModelError
from slimreid.profiling.profile import profile_model
from slimreid.token_reduction import InBackboneReducer, ReducedTokens, pack_present
from slimreid.token_reduction.merge import nearest_weights, patch_similarity
from slimreid.token_reduction.tokens import merge_tokens
from support.in_backbone import GRID, NAMES, SIZE, N, images, reduced_in_backbone
from support.vit import random_vit, small

MERGED = {"score_terms": ("self", "cross"), "redundancy": 1.0}
SOME = torch.tensor([[True, True, True], [True, False, True], [False, True, False]])


def stages(rows, **options):
    """Rows (R, 1 + N, 64) after all stages of a reducer of one modality, with blocks that do nothing."""
    vit = random_vit(small("vit_b16", depth=5), SIZE)
    config = InBackboneConfig(**{**MERGED, "score_terms": ("self",), **options})
    reducer = InBackboneReducer(vit, ("rgb",), config).eval()
    hook = reducer.block_hook(pack_present(torch.ones(len(rows), 1, dtype=torch.bool)), N)
    state = TokenState(rows, 1, patch_coordinates(GRID).to(rows.dtype), grid=GRID)
    for block in range(5):
        state = hook(block, state)
    return state


@pytest.mark.parametrize("weight", [0.0, 0.5, 5.0])
def test_the_pooled_mean_is_that_of_all_patches_where_blocks_do_nothing(weight):
    torch.manual_seed(0)
    rows = torch.randn(4, 1 + N, 64, dtype=torch.float64)
    state = stages(rows, schedule=((0.2, 0.7), (0.4, 0.4), (0.8, 0.1)), redundancy=weight)
    assert state.patches.shape[1] == 2
    assert state.size.sum(1).tolist() == [N] * 4
    assert state.index.min() >= 0, "each token is still known as a patch of the image"
    pooled = ReducedTokens(state.patches, (), size=state.size).pooled()
    assert_close(pooled, rows[:, 1:].mean(1))
    middle = (state.positions * state.size[..., None]).sum(1) / N
    assert_close(middle, torch.zeros(4, 2, dtype=torch.float64), atol=1e-7, rtol=0)
    assert_close(state.key_bias[:, 1:].exp(), state.size)
    assert (state.key_bias[:, 0] == 0).all()


def test_merging_equal_patches_loses_nothing():
    """Attention to one token of two equal patches is attention to both of them."""
    torch.manual_seed(1)
    rows = torch.randn(3, 1 + N // 2, 64)
    rows = torch.cat([rows, rows[:, 1:]], dim=1)
    state = stages(rows, schedule=((0.5, 0.5),), redundancy=10.0)
    assert state.size.tolist() == [[2.0] * (N // 2)] * 3
    assert [sorted(i % 6 for i in row) for row in state.index.tolist()] == [list(range(6))] * 3
    attention = Attention(small("vit_b16")).eval()
    with torch.no_grad():
        whole = attention(rows)[0]
        joined = attention(state.x, key_bias=state.key_bias)[0]
    assert_close(joined[:, 0], whole[:, 0], atol=1e-5, rtol=1e-4)
    patches = whole[:, 1:].gather(1, state.index[..., None].expand(-1, -1, 64))
    assert_close(joined[:, 1:], patches, atol=1e-5, rtol=1e-4)


def test_the_trace_maps_back_to_the_image():
    model = reduced_in_backbone(**MERGED)
    with torch.no_grad():
        out = model(images(), None, SOME, with_reduced=True)
        alone = model(images(), None, SOME)
    assert torch.equal(out.features["both"], alone.features["both"])
    first, second = out.reduced.selections
    assert (first.kept.shape, second.kept.shape) == ((3, 3, 8, 64), (3, 3, 3, 64))
    assert first.leftover is None
    assert set(first.scores) == {"self", "redundancy", *NAMES}
    for b, m in SOME.nonzero().tolist():
        early, late = first.index[b, m].tolist(), second.index[b, m].tolist()
        assert set(late) < set(early) <= set(range(N))
        assert first.score[b, m][early].diff().le(0).all(), "best first"
        again = first.scores["redundancy"][b, m]
        assert again[early[0]] == again.min() == 0
        others = [
            first.scores[name][b, m] for name in NAMES if SOME[b, NAMES.index(name)] and name != NAMES[m]
        ]
        guided = first.scores["self"][b, m] + (sum(others) / len(others) if others else 0)
        assert_close(first.score[b, m], 0.5 * guided - again)
    assert (out.reduced.size.sum(-1) == N * SOME).all()
    pooled = out.reduced.pooled()
    assert (pooled[~SOME] == 0).all()
    found = torch.nn.functional.normalize(pooled[SOME], dim=-1)
    assert_close(out.features["slimmed"].view(3, 3, -1)[SOME], found)


def test_attention_counts_a_token_by_its_size_at_every_stage():
    model = reduced_in_backbone(**MERGED).train()
    biases = []
    for block in model.backbone.blocks:
        block.register_forward_pre_hook(lambda _, inputs: biases.append(inputs[2]))
    model(images(4))
    shapes = [None if bias is None else tuple(bias.shape) for bias in biases]
    assert shapes == [None, (12, 9), (12, 4), (12, 4)]
    for bias in biases[1:]:
        assert_close(bias[:, 1:].exp().sum(1), torch.full((12,), float(N)))
        assert (bias[:, 0] == 0).all()


def test_merged_tokens_and_places_are_as_precise_as_tokens_were():
    """Most tokens are one patch and must come through a stage unchanged, also under autocast."""
    torch.manual_seed(0)
    state = TokenState(torch.randn(2, 1 + N, 64), 1, patch_coordinates(GRID), grid=GRID)
    index = torch.arange(N - 1).expand(2, -1)
    with torch.autocast("cpu", torch.bfloat16):
        after = merge_tokens(state, index, *nearest_weights(patch_similarity(state.patches), index))
    alone = after.size == 1
    assert alone.sum(1).tolist() == [N - 2] * 2
    assert torch.equal(after.patches[alone], state.patches[:, : N - 1][alone])
    assert torch.equal(after.positions[alone], state.positions.expand(2, -1, -1)[:, : N - 1][alone])


@pytest.mark.parametrize("style", ["vit_b16", "dinov3_s16"])
def test_whole_models_in_half_precision_and_images_without_content(style):
    model = reduced_in_backbone(style, **MERGED)
    blank = {name: torch.zeros(2, 3, *SIZE) for name in NAMES}
    with torch.no_grad():
        assert model(blank).features["both"].isfinite().all()
        model.bfloat16()
        for x in (blank, images(2)):
            out = model({name: image.bfloat16() for name, image in x.items()}, with_reduced=True)
            assert out.features["both"].isfinite().all()
            assert (out.reduced.size.sum(-1) == N).all()


def test_a_profile_counts_the_tokens_of_every_block():
    profile = profile_model(reduced_in_backbone(), [1], repeats=1)
    assert profile.to_dict()["summary"]["block_tokens"] == [13, 9, 4, 4]


def test_sizes_must_fit_the_tokens():
    vit = random_vit(small("vit_b16", depth=2), SIZE)
    with pytest.raises(ModelError, match=r"before block 0: size must be \(1, 12\), not \(1, 3\)"):
        vit(torch.randn(1, 3, *SIZE), hook=lambda i, s: replace(s, size=torch.ones(1, 3)))
