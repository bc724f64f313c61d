"""Slimming inside the backbone against plain loops, with any subset of modalities."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from inside_cases import GRID, NAMES, SIZE, N, images, looped, slimmed_inside
from torch.testing import assert_close
from vit_cases import random_vit, small

from slimreid.errors import ConfigError, ModelError
from slimreid.modalities import all_subsets
from slimreid.models.inside import InsideSlimmer
from slimreid.models.layers import Attention
from slimreid.models.positions import patch_coordinates
from slimreid.models.reid_model import ReIDModel
from slimreid.models.summary import summarise
from slimreid.models.tokens import TokenState
from slimreid.slimming import SlimmingOptions, pack_present

from reference import inside as reference  # isort: skip  (found through vit_cases)

LEFTOVERS = (
    {},
    {"leftover": "regions", "regions": (2, 3)},
    {"leftover": "none", "sources": ("own", "others")},
    {"leftover": "nearest", "sources": ("own", "others")},
    {"leftover": "nearest", "sources": ("own", "others"), "redundancy": 1.5},
)
ALL_SOURCES = {**LEFTOVERS[1], "sources": ("learned", "own", "others", "attention")}
JOINED = {
    "leftover": "nearest",
    "sources": ("attention", "contrast", "others_contrast"),
    "redundancy": 1.0,
    "merge": "none",
}
VARIANTS = (
    {},
    ALL_SOURCES,
    LEFTOVERS[2],
    {"sources": ("attention",)},
    {"sources": ("learned",), "merge": "none"},
    {"sources": ("contrast", "others_contrast")},
    {**LEFTOVERS[3], "merge": "none"},
    JOINED,
)


def name_of(options: dict[str, object]) -> str:
    return "-".join(f"{k}={v}" for k, v in options.items()) or "default"


@pytest.mark.parametrize(
    ("style", "options"),
    [
        *(("vit_b16", options) for options in VARIANTS),
        *(("dinov3_s16", options) for options in ({}, ALL_SOURCES, JOINED)),
    ],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_the_batched_forward_equals_the_loops(style, options):
    """Real blocks, learned and rotary positions, all modality subsets in one batch."""
    model = slimmed_inside(style, **options)
    subsets = all_subsets(NAMES)
    x = images(len(subsets))
    present = torch.tensor([[name in subset for name in NAMES] for subset in subsets])
    for m, name in enumerate(NAMES):
        x[name][~present[:, m]] = float("nan")
    with torch.no_grad():
        out = model(x, None, present, with_slimmed=True)
    vit = model.backbone
    for b in range(len(subsets)) if style == "vit_b16" else (5,):
        subset = subsets[b]
        streams = looped(model, {name: x[name][b] for name in subset})
        for name in subset:
            m, stream = NAMES.index(name), streams[name]
            for stage, selection in enumerate(out.slimmed.selections):
                assert selection.index[b, m].tolist() == stream.choices[stage]
                for patch in range(N):
                    expected = stream.scores[stage].get(patch, 0.0)
                    assert float(selection.score[b, m, patch]) == pytest.approx(expected, abs=1e-4)
                assert selection.decision[b, m].nonzero()[:, 0].tolist() == sorted(stream.choices[stage])
            final = vit.projection(vit.final_norm(torch.tensor(stream.tokens())))
            block = out.features["original"].view(len(subsets), 3, -1)[b, m]
            assert_close(block, F.normalize(final[0], dim=0), atol=1e-4, rtol=1e-3)
            if model.inside.options.merge == "none":
                tokens, counts = final[vit.config.prefix :], stream.counts()[vit.config.prefix :]
                assert_close(out.slimmed.tokens[b, m], tokens, atol=1e-3, rtol=1e-3)
                if model.inside.options.leftover == "nearest":
                    assert out.slimmed.size[b, m].tolist() == counts
                    assert sum(counts) == N
                pooled = sum(count * token for count, token in zip(counts, tokens, strict=True))
                block = out.features["slimmed"].view(len(subsets), 3, -1)[b, m]
                assert_close(block, F.normalize(pooled, dim=0), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("options", LEFTOVERS, ids=name_of)
def test_tokens_without_attention_equal_the_loops(options):
    """Blocks that treat every token on its own: what differs can only come from the slimming."""
    model = slimmed_inside(depth=5, schedule=((0.2, 0.75), (0.4, 0.5), (0.8, 0.1)), **options).double()
    torch.manual_seed(5)
    matrices = [torch.randn(64, 64, dtype=torch.float64) / 8 for _ in range(5)]
    rows = torch.randn(6, 1 + N, 64, dtype=torch.float64)
    present = torch.tensor([[True, True, False], [True, True, True], [False, False, True]])
    packing = pack_present(present)
    change = model.inside.between(packing, N)
    state = TokenState(rows, 1, patch_coordinates(GRID).double(), grid=GRID)
    with torch.no_grad():
        for i, matrix in enumerate(matrices):
            state = change(i, state)
            state = replace(state, x=torch.tanh(state.x @ matrix))
    torch.set_default_dtype(torch.float64)
    try:
        for b in range(3):
            mine = [r for r in range(6) if packing.sample[r] == b]
            streams = reference.slim(
                {NAMES[int(packing.modality[r])]: rows[r] for r in mine},
                1,
                GRID,
                [lambda x, *_, w=w: (torch.tanh(x @ w), []) for w in matrices],
                {s.block: s.share for s in model.inside.stages},
                lambda number, name: model.inside.scorers[number][name].mlp if model.inside.scorers else None,
                **options,
            )
            for r in mine:
                stream = streams[NAMES[int(packing.modality[r])]]
                assert_close(state.x[r], torch.tensor(stream.tokens()), atol=1e-8, rtol=1e-7)
                assert_close(state.positions[r], torch.tensor(stream.places()), atol=1e-6, rtol=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("style", ["clip_vit_b16", "vit_b16", "dinov2_s14_reg", "dinov3_s16"])
def test_keeping_everything_changes_nothing_at_all(style):
    model = slimmed_inside(
        style, schedule=((0.5, 1.0),), leftover="none", sources=("own", "others"), merge="none"
    )
    plain = ReIDModel(model.backbone, NAMES, 5, fusion="none").eval()
    x = images()
    present = torch.tensor([[True, True, True], [True, False, True], [False, True, False]])
    for mask in (None, present):
        with torch.no_grad():
            out, expected = model(x, None, mask, with_slimmed=True), plain(x, None, mask)
        assert torch.equal(out.features["original"], expected.features["original"])
        assert out.slimmed.selections[0].leftover is None
        there = torch.ones(3, 3, dtype=torch.bool) if mask is None else mask
        assert out.slimmed.selections[0].index[there].tolist() == [list(range(N))] * int(there.sum())


def test_a_stage_that_drops_nothing_tells_its_patches_in_the_order_of_the_tokens():
    """So that columns of the merge weights, and the kept patches, are those that the index names."""
    model = slimmed_inside(schedule=((0.25, 1.0), (0.5, 0.5), (0.75, 0.45)))
    with torch.no_grad():
        slimmed = model(images(), with_slimmed=True).slimmed
    whole, half, same = slimmed.selections
    assert (half.index.shape, same.index.shape) == ((3, 3, 6), (3, 3, 6)), "both shares are six patches"
    assert whole.index.tolist() == [[list(range(N))] * 3] * 3
    assert torch.equal(same.index, half.index)
    assert slimmed.weights[0].shape[-1] == 6


def test_samples_do_not_depend_on_their_batch():
    for options in (*VARIANTS, {"sources": ("random",)}):
        model = slimmed_inside(**options)
        x = images()
        with torch.no_grad():
            whole = model(x).features["both"]
            for b in range(3):
                alone = model({name: image[b : b + 1] for name, image in x.items()}).features["both"]
                assert_close(whole[b : b + 1], alone, atol=1e-5, rtol=1e-4)


def test_missing_modalities_as_zero_images_are_computed():
    model = slimmed_inside(missing="zeros")
    x = images()
    present = torch.tensor([[True, False, True]] * 3)
    with torch.no_grad():
        expected = model({**x, "nir": torch.zeros_like(x["nir"])}).features["both"]
        assert_close(model(x, None, present).features["both"], expected)


def test_other_modalities_guide_the_choice():
    """The choice for one modality moves when another one's image does, and only if it is a source."""
    x, y = images(8), images(8, seed=2)
    for sources, moves in ((("own", "others"), True), (("own",), False)):
        model = slimmed_inside(sources=sources)
        with torch.no_grad():
            one = model(x, with_slimmed=True).slimmed.selections[0].score[:, 0]
            other = model({**x, "tir": y["tir"]}, with_slimmed=True).slimmed.selections[0].score[:, 0]
        assert torch.equal(one, other) != moves


def test_the_trace_maps_back_to_the_image():
    model = slimmed_inside(leftover="regions", sources=("learned", "own", "others", "attention"))
    present = torch.tensor([[True, True, True], [True, False, True], [False, True, False]])
    with torch.no_grad():
        slimmed = model(images(), None, present, with_slimmed=True).slimmed
    first, second = slimmed.selections
    assert (first.index.shape, second.index.shape) == ((3, 3, 8), (3, 3, 3))
    assert first.kept.shape == (3, 3, 8, 64)
    assert first.leftover.shape == second.leftover.shape == (3, 3, 4, 64)
    assert set(first.scores) == {"learned", "own", "attention", *NAMES}
    for b, m in present.nonzero().tolist():
        early, late = first.index[b, m].tolist(), second.index[b, m].tolist()
        assert set(late) < set(early) <= set(range(N))
        assert first.decision[b, m].nonzero()[:, 0].tolist() == sorted(early)
        assert second.decision[b, m].nonzero()[:, 0].tolist() == sorted(late)
        dropped = [p for p in range(N) if p not in early]
        assert (second.score[b, m, dropped] == 0).all()
        assert first.score[b, m][early].diff().le(0).all(), "best first"
        assert (first.scores[NAMES[m]][b, m] == 0).all(), "no guide of its own"
    assert slimmed.weights[0].shape[-1] == 3
    assert model(images()).slimmed is None


def test_features_of_both_branches():
    for merge, tokens in (("single", 1), ("none", 3)):
        model = slimmed_inside(merge=merge)
        x = images(4)
        out = model.train()(x, with_slimmed=True)
        assert {n: f.shape[1] for n, f in out.features.items()} == model.sizes
        assert list(out.logits) == ["original", "slimmed"]
        assert out.slimmed.tokens.shape == (4, 3, tokens + 1, 64)
        assert_close(out.features["slimmed"], out.slimmed.tokens.mean(2).flatten(1))


def test_shared_parameters_and_one_modality():
    vit = random_vit(small("vit_b16", depth=4), SIZE)
    model = ReIDModel(vit, NAMES, 5, slimming=SlimmingOptions(where="inside"), shared_slimmer=True)
    assert [list(stage) for stage in model.inside.scorers] == [["shared"]] * 2
    assert model.eval()(images()).features["both"].isfinite().all()
    alone = slimmed_inside(names=("rgb",))
    assert alone(images(names=("rgb",)), with_slimmed=True).slimmed.selections[1].index.shape == (3, 1, 3)
    assert slimmed_inside().eval()(images(0)).features["both"].shape == (0, model.sizes["both"])


def test_another_image_size_and_fewer_cells_than_regions():
    model = slimmed_inside(leftover="regions", regions=(4, 3))
    generator = torch.Generator().manual_seed(0)
    for size, kept in (((48, 40), 8), ((16, 16), 1)):
        x = {name: torch.randn(2, 3, *size, generator=generator) for name in NAMES}
        with torch.no_grad():
            out = model(x, with_slimmed=True)
        assert out.slimmed.selections[1].index.shape == (2, 3, kept)
        assert out.features["both"].isfinite().all()


def test_random_choices():
    model = slimmed_inside(sources=("random",))
    x = images(4)
    with torch.no_grad():
        one, two = (model(x, with_slimmed=True).slimmed.selections[0].index for _ in range(2))
    assert torch.equal(one, two), "fixed in test"
    assert not torch.equal(one[:, 0], one[:, 1]), "but another one for each modality"
    model.train()

    def drawn(seed):
        generator = torch.Generator().manual_seed(seed)
        return model(x, with_slimmed=True, generator=generator).slimmed.selections[1].index

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    assert not torch.equal(drawn(1)[0], drawn(1)[1]), "each sample its own while training"


def test_class_attention_is_what_the_block_attends_to():
    torch.manual_seed(0)
    attention = Attention(small("vit_b16")).eval()
    x = torch.randn(2, 7, 64)
    _, seen = attention(x, watch=True)
    q, k, _ = (
        F.linear(x, attention.qkv.weight, attention.qkv.bias).view(2, 7, 3, 2, 32).permute(2, 0, 3, 1, 4)
    )
    expected = (q @ k.transpose(-1, -2) / 32**0.5).softmax(-1)[:, :, 0].mean(1)
    assert_close(seen, expected)
    assert_close(seen.sum(1), torch.ones(2))
    assert attention(x)[1] is None


@pytest.mark.parametrize("options", [{}, ALL_SOURCES, JOINED], ids=name_of)
def test_compiled_forward_gives_the_same(options):
    model = slimmed_inside(**options)
    x = images()
    with torch.no_grad():
        expected = model(x).features["both"]
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert_close(compiled(x).features["both"], expected)


def test_a_compiled_backbone_takes_a_mixed_batch_and_gives_the_same_gradients():
    x = images(4)
    present = torch.tensor(
        [[True, True, True], [True, False, True], [False, True, False], [True, True, False]]
    )
    gradients = []
    for compiled in (False, True):
        model = slimmed_inside(depth=2, merge="none").train()
        if compiled:
            model.backbone.compile(backend="aot_eager", fullgraph=True)
        out = model(x, None, present)
        sum(logits.square().sum() for logits in out.logits.values()).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("fusion", ["none", "inside", "regions"])
def test_summary_counts_every_block_by_its_tokens(fusion):
    vit = random_vit(small("vit_b16", depth=4), SIZE)
    leftovers = {"inside": 1, "regions": 4}.get(fusion, 0)
    if fusion == "none":
        model = ReIDModel(vit, NAMES, 5, fusion="none")
    else:
        kind = "single" if fusion == "inside" else fusion
        model = ReIDModel(
            vit, NAMES, 5, slimming=SlimmingOptions(where="inside", leftover=kind, merge="none")
        )
    result = summarise(model)
    tokens = (13, 1 + 6 + leftovers, 1 + 3 + leftovers, 1 + 3 + leftovers) if leftovers else (13,) * 4
    assert result.block_tokens == tokens
    W, H = 64, 96
    macs = N * 3 * 64 * W + sum(T * (4 * W * W + 2 * W * H) + 2 * T * T * W for T in tokens)
    parts = {part.name: part.gflops for part in result.parts}
    assert parts["backbone"] == pytest.approx(3 * macs / 1e9, rel=1e-6)
    assert result.gflops == pytest.approx(sum(parts.values()), rel=1e-6)
    if leftovers:
        scorers = N * (64 * 16 + 16) + 6 * (64 * 16 + 16)
        guides = 3 * 64 * (N + 6)
        mixing = leftovers * (64 * (13 + 1 + 6 + leftovers) + 2 * (N + 6 + leftovers))  # tokens and places
        assert parts["inside"] == pytest.approx(3 * (scorers + guides + mixing) / 1e9, rel=1e-6)
        stages = {"patches": N, "kept": 3, "with leftover": 3 + leftovers}
        assert dict(result.tokens) == stages
        assert result.to_dict()["block_tokens"] == list(tokens)


def test_what_does_not_fit_is_refused():
    vit = random_vit(small("vit_b16", depth=4), SIZE)
    inside = SlimmingOptions(where="inside")
    with pytest.raises(ConfigError, match="class token"):
        InsideSlimmer(random_vit(small("vit_b16", class_token=False), SIZE), NAMES, inside)
    with pytest.raises(ConfigError, match=r"more than the 4×3 patches"):
        InsideSlimmer(vit, NAMES, replace(inside, leftover="regions", regions=(5, 2)))
    with pytest.raises(ConfigError, match="where 'inside'"):
        InsideSlimmer(vit, NAMES, SlimmingOptions())
    with pytest.raises(ConfigError, match="'others' alone"):
        InsideSlimmer(vit, ("rgb",), replace(inside, sources=("others",)))
    with pytest.raises(ConfigError, match="at least two blocks"):
        InsideSlimmer(random_vit(small("vit_b16", depth=1), SIZE), NAMES, inside)
    state = TokenState(torch.randn(2, 1 + N, 8), 1, patch_coordinates(GRID))
    with pytest.raises(ModelError, match=r"index to keep must be \(2, K\)"):
        state.slim(torch.zeros(3, 2, dtype=torch.int64), None)
    with pytest.raises(ModelError, match=r"weights to mix must be \(2, L, 12\)"):
        state.slim(torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 1, 5))
    with pytest.raises(ModelError, match="key_bias must be"):
        vit(torch.randn(1, 3, *SIZE), between=lambda i, s: replace(s, key_bias=torch.zeros(1, 3)))


def test_slim_is_keep_merge_and_append_in_one():
    torch.manual_seed(0)
    state = TokenState(torch.randn(2, 1 + N, 8), 1, patch_coordinates(GRID))
    index = torch.tensor([[3, 7], [0, 11]])
    weights = torch.rand(2, 2, N).softmax(-1)
    mixed = state.merge(weights)
    expected = state.keep(index).append(mixed.patches, mixed.positions)
    found = state.slim(index, weights)
    assert_close(found.x, expected.x)
    assert_close(found.positions, expected.positions)
    assert torch.equal(found.index, expected.index)
    assert found.mixtures == 2
