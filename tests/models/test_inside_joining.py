"""Patches that join inside the backbone: what tokens count, what they are worth, and in which precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from inside_cases import GRID, NAMES, SIZE, N, images, slimmed_inside
from torch.testing import assert_close
from vit_cases import random_vit, small

from slimreid.errors import ModelError
from slimreid.models.inside import InsideSlimmer
from slimreid.models.layers import Attention
from slimreid.models.positions import patch_coordinates
from slimreid.models.reid_model import ReIDModel
from slimreid.models.summary import summarise
from slimreid.models.tokens import TokenState
from slimreid.profiling import profile_model
from slimreid.slimming import SlimmingOptions, pack_present
from slimreid.slimming.joining import joining_weights, likeness
from slimreid.slimming.slimmer import Slimmed

from reference import slimming as reference  # isort: skip  (found through vit_cases)

JOIN = {"leftover": "nearest", "redundancy": 1.0, "sources": ("own", "others"), "merge": "none"}
SOME = torch.tensor([[True, True, True], [True, False, True], [False, True, False]])


def stages(rows, **options):
    """Rows (R, 1 + N, 64) after all stages of a slimmer of one modality, with blocks that do nothing."""
    vit = random_vit(small("vit_b16", depth=5), SIZE)
    options = {**JOIN, "sources": ("own",), **options}
    slimmer = InsideSlimmer(vit, ("rgb",), SlimmingOptions(where="inside", **options)).eval()
    change = slimmer.between(pack_present(torch.ones(len(rows), 1, dtype=torch.bool)), N)
    state = TokenState(rows, 1, patch_coordinates(GRID).to(rows.dtype), grid=GRID)
    for block in range(5):
        state = change(block, state)
    return state


@pytest.mark.parametrize("weight", [0.0, 0.5, 5.0])
def test_the_pooled_mean_is_that_of_all_patches_where_blocks_do_nothing(weight):
    torch.manual_seed(0)
    rows = torch.randn(4, 1 + N, 64, dtype=torch.float64)
    state = stages(rows, schedule=((0.2, 0.7), (0.4, 0.4), (0.8, 0.1)), redundancy=weight)
    assert state.patches.shape[1] == 2
    assert state.size.sum(1).tolist() == [N] * 4
    assert state.index.min() >= 0, "each token is still known as a patch of the image"
    pooled = Slimmed(state.patches, (), (), size=state.size).pooled()
    assert_close(pooled, rows[:, 1:].mean(1))
    middle = (state.positions * state.size[..., None]).sum(1) / N
    assert_close(middle, torch.zeros(4, 2, dtype=torch.float64), atol=1e-7, rtol=0)
    assert_close(state.key_bias[:, 1:].exp(), state.size)
    assert (state.key_bias[:, 0] == 0).all()


def test_joining_equal_patches_loses_nothing():
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


@pytest.mark.parametrize("style", ["clip_vit_b16", "vit_b16", "dinov2_s14_reg", "dinov3_s16"])
def test_keeping_everything_changes_nothing_at_all(style):
    model = slimmed_inside(style, **{**JOIN, "schedule": ((0.5, 1.0),)})
    plain = ReIDModel(model.backbone, NAMES, 5, fusion="mean").eval()
    for mask in (None, SOME):
        with torch.no_grad():
            out, expected = model(images(), None, mask, with_slimmed=True), plain(images(), None, mask)
        assert torch.equal(out.features["original"], expected.features["original"])
        assert torch.equal(out.features["slimmed"], expected.features["fused"])
        assert out.slimmed.size is None


def test_the_trace_maps_back_to_the_image():
    model = slimmed_inside(**JOIN)
    with torch.no_grad():
        out = model(images(), None, SOME, with_slimmed=True)
        alone = model(images(), None, SOME)
    assert torch.equal(out.features["both"], alone.features["both"])
    first, second = out.slimmed.selections
    assert (first.kept.shape, second.kept.shape) == ((3, 3, 8, 64), (3, 3, 3, 64))
    assert first.leftover is None
    assert set(first.scores) == {"own", "redundancy", *NAMES}
    for b, m in SOME.nonzero().tolist():
        early, late = first.index[b, m].tolist(), second.index[b, m].tolist()
        assert set(late) < set(early) <= set(range(N))
        assert first.score[b, m][early].diff().le(0).all(), "best first"
        again = first.scores["redundancy"][b, m]
        assert again[early[0]] == again.min() == 0
        others = [
            first.scores[name][b, m] for name in NAMES if SOME[b, NAMES.index(name)] and name != NAMES[m]
        ]
        guided = first.scores["own"][b, m] + (sum(others) / len(others) if others else 0)
        assert_close(first.score[b, m], 0.5 * guided - again)
    assert (out.slimmed.size.sum(-1) == N * SOME).all()
    pooled = out.slimmed.pooled()
    assert (pooled[~SOME] == 0).all()
    found = torch.nn.functional.normalize(pooled[SOME], dim=-1)
    assert_close(out.features["slimmed"].view(3, 3, -1)[SOME], found)


@pytest.mark.parametrize("in_merge", [True, False])
def test_a_merge_counts_a_token_as_all_its_patches(in_merge, monkeypatch):
    """As if each kept token were there once for each of its patches."""
    options = {**JOIN, "merge": "single", "decision_in_merge": in_merge}
    model = slimmed_inside(schedule=((0.25, 0.6), (0.5, 0.4)), merge_ratio=0.5, **options)
    seen = []
    finish = model.inside.finish
    monkeypatch.setattr(model.inside, "finish", lambda *given: seen.append(given) or finish(*given))
    with torch.no_grad():
        model(images(2))
        encoded, packing = seen[0]
        slimmed = finish(encoded, packing)
    assert slimmed.size is None, "merged tokens count alike"
    for row in range(len(packing.modality)):
        merger = model.inside.mergers[NAMES[int(packing.modality[row])]]
        sizes = encoded.state.size[row].long()
        repeated = encoded.patches[row].repeat_interleave(sizes, dim=0)
        assert len(repeated) == N > len(sizes)
        expected = reference.merge(merger.weight, merger.scale.item(), repeated.tolist())
        assert_close(slimmed.tokens[row], torch.tensor(expected), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("extra", [{"soft_keys": True}, {"weigh_kept": True}, {"merge": "single"}])
def test_an_estimator_changes_gradients_but_no_value(extra):
    """D is 1, so that logits have the size of a token added and nothing else, at every stage."""
    options = {**JOIN, "sources": ("learned", "own"), "estimator": "soft_topk", **extra}
    model = slimmed_inside(**options).train()
    biases = []
    for block in model.backbone.blocks:
        block.register_forward_pre_hook(lambda _, inputs: biases.append(inputs[2]))
    out = model(images(4), with_slimmed=True)
    sum(logits.square().sum() for logits in out.logits.values()).backward()
    assert all(p.grad.abs().max() > 0 for n, p in model.inside.scorers.named_parameters() if "weight" in n)
    assert [None if bias is None else tuple(bias.shape) for bias in biases] == [
        None,
        (12, 9),
        (12, 4),
        (12, 4),
    ]
    assert_close(biases[2][:, 1:].exp().sum(1), torch.full((12,), float(N)))
    expected = slimmed_inside(**{**options, "soft_keys": False, "weigh_kept": False, "merge": "single"})
    features = expected.train()(images(4)).features["original"]
    assert_close(out.features["original"], features, atol=1e-5, rtol=1e-4)


def test_shares_that_shrink_begin_with_all_patches():
    model = slimmed_inside(**JOIN, keep_warmup_epochs=4).train()
    model.set_epoch(0)
    assert model(images(2), with_slimmed=True).slimmed.size is None
    model.set_epoch(2)
    size = model(images(2), with_slimmed=True).slimmed.size
    assert size.shape == (2, 3, 8)
    assert (size.sum(-1) == N).all()


def test_joined_tokens_and_places_are_as_precise_as_tokens_were():
    """Most tokens are one patch and must come through a stage unchanged, also under autocast."""
    torch.manual_seed(0)
    state = TokenState(torch.randn(2, 1 + N, 64), 1, patch_coordinates(GRID), grid=GRID)
    index = torch.arange(N - 1).expand(2, -1)
    with torch.autocast("cpu", torch.bfloat16):
        after = state.join(index, *joining_weights(likeness(state.patches), index))
    alone = after.size == 1
    assert alone.sum(1).tolist() == [N - 2] * 2
    assert torch.equal(after.patches[alone], state.patches[:, : N - 1][alone])
    assert torch.equal(after.positions[alone], state.positions.expand(2, -1, -1)[:, : N - 1][alone])


@pytest.mark.parametrize("style", ["vit_b16", "dinov3_s16"])
def test_whole_models_in_half_precision_and_images_without_content(style):
    model = slimmed_inside(style, **JOIN)
    blank = {name: torch.zeros(2, 3, *SIZE) for name in NAMES}
    with torch.no_grad():
        assert model(blank).features["both"].isfinite().all()
        model.bfloat16()
        for x in (blank, images(2)):
            out = model({name: image.bfloat16() for name, image in x.items()}, with_slimmed=True)
            assert out.features["both"].isfinite().all()
            assert (out.slimmed.size.sum(-1) == N).all()


@pytest.mark.parametrize("merge", ["none", "single"])
def test_summary_and_profile_count_it(merge):
    vit = random_vit(small("vit_b16", depth=4), SIZE)
    options = SlimmingOptions(where="inside", **{**JOIN, "merge": merge})
    model = ReIDModel(vit, NAMES, 5, slimming=options)
    result = summarise(model)
    assert result.block_tokens == (13, 7, 4, 4), "no token besides the kept patches"
    assert dict(result.tokens) == {"patches": N, "kept": 3, **({"merged": 1} if merge == "single" else {})}
    parts = {part.name: part.gflops for part in result.parts}
    W, H = 64, 96
    blocks = sum(T * (4 * W * W + 2 * W * H) + 2 * T * T * W for T in result.block_tokens)
    assert parts["backbone"] == pytest.approx(3 * (N * 3 * 64 * W + blocks) / 1e9, rel=1e-6)
    if merge == "none":
        guides = 3 * W * (N + 6)
        likenesses = W * (N * N + 6 * 6)
        joins = (W + 2) * (N * 6 + 6 * 3)  # tokens and places
        assert parts["inside"] == pytest.approx(3 * (guides + likenesses + joins) / 1e9, rel=1e-6)
    profile = profile_model(model, [1], repeats=1)
    assert profile.to_dict()["summary"]["block_tokens"] == [13, 7, 4, 4]


def test_sizes_must_fit_the_tokens():
    vit = random_vit(small("vit_b16", depth=2), SIZE)
    with pytest.raises(ModelError, match=r"before block 0: size must be \(1, 12\), not \(1, 3\)"):
        vit(torch.randn(1, 3, *SIZE), between=lambda i, s: replace(s, size=torch.ones(1, 3)))
