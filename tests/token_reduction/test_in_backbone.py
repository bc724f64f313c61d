"""Token reduction in the backbone against plain loops, with any subset of modalities."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from slimreid.backbones.layers import Attention, patch_coordinates
from slimreid.backbones.tokens import TokenState
from slimreid.config.model import ReIDOptions
from slimreid.config.token_reduction import InBackboneConfig
from slimreid.errors import ConfigError, ModelError
from slimreid.modalities import all_subsets
from slimreid.models.reid_model import ReIDModel
from slimreid.profiling.cost import summarise
from slimreid.token_reduction import InBackboneReducer, pack_present
from slimreid.token_reduction.tokens import keep_tokens, merge_tokens
from support.in_backbone import GRID, NAMES, SIZE, N, images, looped, reduced_in_backbone
from support.vit import random_vit, small

from reference import in_backbone as reference  # isort: skip  (found through vit_cases)

COSINE = ("self", "cross")
DROPPED = (
    {"dropped": "leftover", "score_terms": COSINE},
    {"dropped": "discard", "score_terms": COSINE},
    {"score_terms": COSINE},
    {"score_terms": COSINE, "redundancy": 0.0},
)
ALL_TERMS = {
    "dropped": "leftover",
    "score_terms": ("self", "cross", "attention", "contrast", "cross_contrast"),
}
VARIANTS = (
    {},
    ALL_TERMS,
    *DROPPED,
    {"score_terms": ("attention",)},
    {"score_terms": ("contrast", "cross_contrast"), "redundancy": 0.5},
)


def name_of(options: dict[str, object]) -> str:
    return "-".join(f"{k}={v}" for k, v in options.items()) or "default"


@pytest.mark.parametrize(
    ("style", "options"),
    [
        *(("vit_b16", options) for options in VARIANTS),
        *(("dinov3_s16", options) for options in ({}, ALL_TERMS)),
    ],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_the_batched_forward_equals_the_loops(style, options):
    """Real blocks, learned and rotary positions, all modality subsets in one batch."""
    model = reduced_in_backbone(style, **options)
    subsets = all_subsets(NAMES)
    x = images(len(subsets))
    present = torch.tensor([[name in subset for name in NAMES] for subset in subsets])
    for m, name in enumerate(NAMES):
        x[name][~present[:, m]] = float("nan")
    with torch.no_grad():
        out = model(x, None, present, with_reduced=True)
    vit = model.backbone
    for b in range(len(subsets)) if style == "vit_b16" else (5,):
        subset = subsets[b]
        streams = looped(model, {name: x[name][b] for name in subset})
        for name in subset:
            m, stream = NAMES.index(name), streams[name]
            for stage, selection in enumerate(out.reduced.selections):
                assert selection.index[b, m].tolist() == stream.choices[stage]
                for patch in range(N):
                    expected = stream.scores[stage].get(patch, 0.0)
                    assert float(selection.score[b, m, patch]) == pytest.approx(expected, abs=1e-4)
                assert selection.decision[b, m].nonzero()[:, 0].tolist() == sorted(stream.choices[stage])
            final = vit.projection(vit.final_norm(torch.tensor(stream.tokens())))
            block = out.features["original"].view(len(subsets), 3, -1)[b, m]
            assert_close(block, F.normalize(final[0], dim=0), atol=1e-4, rtol=1e-3)
            tokens, counts = final[vit.config.prefix :], stream.counts()[vit.config.prefix :]
            assert_close(out.reduced.tokens[b, m], tokens, atol=1e-3, rtol=1e-3)
            if model.in_backbone.options.dropped == "merge":
                assert out.reduced.size[b, m].tolist() == counts
                assert sum(counts) == N
            pooled = sum(count * token for count, token in zip(counts, tokens, strict=True))
            block = out.features["slimmed"].view(len(subsets), 3, -1)[b, m]
            assert_close(block, F.normalize(pooled, dim=0), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("options", DROPPED, ids=name_of)
def test_tokens_without_attention_equal_the_loops(options):
    """Blocks that treat every token on its own: what differs can only come from the token reduction."""
    model = reduced_in_backbone(depth=5, schedule=((0.2, 0.75), (0.4, 0.5), (0.8, 0.1)), **options).double()
    torch.manual_seed(5)
    matrices = [torch.randn(64, 64, dtype=torch.float64) / 8 for _ in range(5)]
    rows = torch.randn(6, 1 + N, 64, dtype=torch.float64)
    present = torch.tensor([[True, True, False], [True, True, True], [False, False, True]])
    packing = pack_present(present)
    change = model.in_backbone.block_hook(packing, N)
    state = TokenState(rows, 1, patch_coordinates(GRID).double(), grid=GRID)
    with torch.no_grad():
        for i, matrix in enumerate(matrices):
            state = change(i, state)
            state = replace(state, x=torch.tanh(state.x @ matrix))
    torch.set_default_dtype(torch.float64)
    try:
        for b in range(3):
            mine = [r for r in range(6) if packing.sample[r] == b]
            streams = reference.reduce(
                {NAMES[int(packing.modality[r])]: rows[r] for r in mine},
                1,
                GRID,
                [lambda x, *_, w=w: (torch.tanh(x @ w), []) for w in matrices],
                {s.block: s.share for s in model.in_backbone.stages},
                **{{"score_terms": "terms"}.get(name, name): value for name, value in options.items()},
            )
            for r in mine:
                stream = streams[NAMES[int(packing.modality[r])]]
                assert_close(state.x[r], torch.tensor(stream.tokens()), atol=1e-8, rtol=1e-7)
                assert_close(state.positions[r], torch.tensor(stream.places()), atol=1e-6, rtol=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)


def test_training_may_have_a_schedule_of_its_own():
    model = reduced_in_backbone(schedule=((0.5, 0.5),), train_schedule=((0.25, 0.75), (0.75, 0.25)))
    kept = {}
    for training in (True, False):
        selections = model.train(training)(images(), with_reduced=True).reduced.selections
        kept[training] = [int(one.decision[0, 0].sum()) for one in selections]
    assert kept == {True: [9, 3], False: [6]}  # of 12
    with pytest.raises(ConfigError, match=r"in_backbone\.train_schedule: shares must fall"):
        InBackboneConfig(train_schedule=((0.25, 0.5), (0.5, 0.75)))


@pytest.mark.parametrize("dropped", ["merge", "leftover", "discard"])
@pytest.mark.parametrize("style", ["clip_vit_b16", "vit_b16", "dinov2_s14_reg", "dinov3_s16"])
def test_keeping_everything_changes_nothing_at_all(style, dropped):
    model = reduced_in_backbone(style, schedule=((0.5, 1.0),), dropped=dropped)
    plain = ReIDModel(model.backbone, NAMES, 5, ReIDOptions(reduction="none")).eval()
    x = images()
    present = torch.tensor([[True, True, True], [True, False, True], [False, True, False]])
    for mask in (None, present):
        with torch.no_grad():
            out, expected = model(x, None, mask, with_reduced=True), plain(x, None, mask)
        assert torch.equal(out.features["original"], expected.features["original"])
        assert torch.equal(out.features["slimmed"], expected.features["fused"])
        assert out.reduced.selections[0].leftover is None
        assert out.reduced.size is None
        there = torch.ones(3, 3, dtype=torch.bool) if mask is None else mask
        assert out.reduced.selections[0].index[there].tolist() == [list(range(N))] * int(there.sum())


def test_a_stage_that_drops_nothing_tells_its_patches_in_the_order_of_the_tokens():
    model = reduced_in_backbone(schedule=((0.25, 1.0), (0.5, 0.5), (0.75, 0.45)))
    with torch.no_grad():
        whole, half, same = model(images(), with_reduced=True).reduced.selections
    assert (half.index.shape, same.index.shape) == ((3, 3, 6), (3, 3, 6)), "both shares are six patches"
    assert whole.index.tolist() == [[list(range(N))] * 3] * 3
    assert torch.equal(same.index, half.index)


def test_samples_do_not_depend_on_their_batch():
    for options in (*VARIANTS, {"score_terms": ("random",)}):
        model = reduced_in_backbone(**options)
        x = images()
        with torch.no_grad():
            whole = model(x).features["both"]
            for b in range(3):
                alone = model({name: image[b : b + 1] for name, image in x.items()}).features["both"]
                assert_close(whole[b : b + 1], alone, atol=1e-5, rtol=1e-4)


def test_missing_modalities_as_zero_images_are_computed():
    model = reduced_in_backbone(missing="zeros")
    x = images()
    present = torch.tensor([[True, False, True]] * 3)
    with torch.no_grad():
        expected = model({**x, "nir": torch.zeros_like(x["nir"])}).features["both"]
        assert_close(model(x, None, present).features["both"], expected)


def test_other_modalities_guide_the_choice():
    """The choice for one modality moves when another one's image does, and only if it is a term."""
    x, y = images(8), images(8, seed=2)
    for terms, moves in (
        (("self", "cross"), True),
        (("self",), False),
        (("contrast", "cross_contrast"), True),
    ):
        model = reduced_in_backbone(score_terms=terms)
        with torch.no_grad():
            one = model(x, with_reduced=True).reduced.selections[0].score[:, 0]
            other = model({**x, "tir": y["tir"]}, with_reduced=True).reduced.selections[0].score[:, 0]
        assert torch.equal(one, other) != moves


def test_the_trace_maps_back_to_the_image():
    model = reduced_in_backbone(**ALL_TERMS)
    present = torch.tensor([[True, True, True], [True, False, True], [False, True, False]])
    with torch.no_grad():
        reduced = model(images(), None, present, with_reduced=True).reduced
    first, second = reduced.selections
    assert (first.index.shape, second.index.shape) == ((3, 3, 8), (3, 3, 3))
    assert first.kept.shape == (3, 3, 8, 64)
    assert first.leftover.shape == second.leftover.shape == (3, 3, 1, 64)
    assert set(first.scores) == {"self", "attention", "contrast", "cross_contrast", *NAMES}
    for b, m in present.nonzero().tolist():
        early, late = first.index[b, m].tolist(), second.index[b, m].tolist()
        assert set(late) < set(early) <= set(range(N))
        assert first.decision[b, m].nonzero()[:, 0].tolist() == sorted(early)
        assert second.decision[b, m].nonzero()[:, 0].tolist() == sorted(late)
        dropped = [p for p in range(N) if p not in early]
        assert (second.score[b, m, dropped] == 0).all()
        assert first.score[b, m][early].diff().le(0).all(), "best first"
        assert (first.scores[NAMES[m]][b, m] == 0).all(), "no guide of its own"
    assert model(images()).reduced is None


def test_features_of_both_branches():
    model = reduced_in_backbone()
    out = model.train()(images(4), with_reduced=True)
    assert {n: f.shape[1] for n, f in out.features.items()} == model.sizes
    assert list(out.logits) == ["original", "slimmed"]
    assert out.reduced.tokens.shape == (4, 3, 3, 64)
    assert_close(out.features["slimmed"], out.reduced.pooled().flatten(1))
    assert not list(model.in_backbone.parameters()), "nothing is learned"


def test_without_fusion_there_is_the_original_feature_only():
    model = reduced_in_backbone(fusion="none")
    whole = reduced_in_backbone()
    with torch.no_grad():
        out = model(images(), with_reduced=True)
        expected = whole(images())
    assert list(out.features) == ["original", "both"]
    assert torch.equal(out.features["original"], expected.features["original"])
    assert out.reduced.tokens.shape == (3, 3, 3, 64), "what is left can still be looked at"


@pytest.mark.parametrize("fusion", ["hdm", "hdm_atmoe"])
def test_fusion_attends_to_the_tokens_that_are_left_by_their_size(fusion):
    """As if every token were there once for each of its patches."""
    model = reduced_in_backbone(fusion=fusion)
    assert model.second == "fused"
    seen = []
    model.hdm.register_forward_hook(lambda _, inputs, out: seen.append((*inputs, out)))
    with torch.no_grad():
        model(images(2))
        (tokens, present, size, found) = seen[0]
        assert present is None
        assert (size[..., 1:].sum(-1) == N).all()
        assert (size[..., 0] == 1).all()
        for b in range(2):
            whole = [tokens[b, m].repeat_interleave(size[b, m].long(), dim=0) for m in range(3)]
            assert_close(model.hdm(torch.stack(whole)[None])[0], found[b], atol=1e-5, rtol=1e-4)


def test_one_modality_and_an_empty_batch():
    alone = reduced_in_backbone(names=("rgb",))
    assert alone(images(names=("rgb",)), with_reduced=True).reduced.selections[1].index.shape == (3, 1, 3)
    model = reduced_in_backbone()
    assert model(images(0)).features["both"].shape == (0, model.sizes["both"])


def test_another_image_size():
    model = reduced_in_backbone()
    generator = torch.Generator().manual_seed(0)
    for size, kept in (((48, 40), 8), ((16, 16), 1)):
        x = {name: torch.randn(2, 3, *size, generator=generator) for name in NAMES}
        with torch.no_grad():
            out = model(x, with_reduced=True)
        assert out.reduced.selections[1].index.shape == (2, 3, kept)
        assert out.features["both"].isfinite().all()


def test_random_choices():
    model = reduced_in_backbone(score_terms=("random",))
    x = images(4)
    with torch.no_grad():
        one, two = (model(x, with_reduced=True).reduced.selections[0].index for _ in range(2))
    assert torch.equal(one, two), "fixed in test"
    assert not torch.equal(one[:, 0], one[:, 1]), "but another one for each modality"
    model.train()

    def drawn(seed):
        generator = torch.Generator().manual_seed(seed)
        return model(x, with_reduced=True, generator=generator).reduced.selections[1].index

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    assert not torch.equal(drawn(1)[0], drawn(1)[1]), "each sample its own while training"


def test_class_attention_is_what_the_block_attends_to():
    torch.manual_seed(0)
    attention = Attention(small("vit_b16")).eval()
    x = torch.randn(2, 7, 64)
    _, seen = attention(x, class_attention=True)
    q, k, _ = (
        F.linear(x, attention.qkv.weight, attention.qkv.bias).view(2, 7, 3, 2, 32).permute(2, 0, 3, 1, 4)
    )
    expected = (q @ k.transpose(-1, -2) / 32**0.5).softmax(-1)[:, :, 0].mean(1)
    assert_close(seen, expected)
    assert_close(seen.sum(1), torch.ones(2))
    assert attention(x)[1] is None


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("options", [{}, ALL_TERMS], ids=name_of)
def test_compiled_forward_gives_the_same(options):
    model = reduced_in_backbone(**options)
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
        model = reduced_in_backbone(depth=2).train()
        if compiled:
            model.backbone.compile(backend="aot_eager", fullgraph=True)
        out = model(x, None, present)
        sum(logits.square().sum() for logits in out.logits.values()).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("dropped", [None, "leftover", "merge"])
def test_summary_counts_every_block_by_its_tokens(dropped):
    vit = random_vit(small("vit_b16", depth=4), SIZE)
    options = ReIDOptions(reduction="none", fusion="none")
    if dropped:
        config = InBackboneConfig(score_terms=("self", "cross"), dropped=dropped)
        options = ReIDOptions(reduction="in_backbone", in_backbone=config)
    result = summarise(ReIDModel(vit, NAMES, 5, options))
    leftover = int(dropped == "leftover")
    tokens = (13, 1 + 6 + leftover, 1 + 3 + leftover, 1 + 3 + leftover) if dropped else (13,) * 4
    assert result.block_tokens == tokens
    W, H = 64, 96
    macs = N * 3 * 64 * W + sum(T * (4 * W * W + 2 * W * H) + 2 * T * T * W for T in tokens)
    parts = {part.name: part.gflops for part in result.parts}
    assert parts["backbone"] == pytest.approx(3 * macs / 1e9, rel=1e-6)
    assert result.gflops == pytest.approx(sum(parts.values()), rel=1e-6)
    guides = 3 * W * (N + 6)
    if dropped == "leftover":
        mixing = W * (13 + 1 + 6 + 1) + 2 * (N + 6 + 1)  # tokens and places
        assert parts["in_backbone"] == pytest.approx(3 * (guides + mixing) / 1e9, rel=1e-6)
        assert dict(result.tokens) == {"patches": N, "kept": 3, "with leftover": 4}
    if dropped == "merge":
        merging = W * (N * N + 6 * 6) + (W + 2) * (N * 6 + 6 * 3)  # similarities; tokens and places
        assert parts["in_backbone"] == pytest.approx(3 * (guides + merging) / 1e9, rel=1e-6)
        assert dict(result.tokens) == {"patches": N, "kept": 3}
        assert result.to_dict()["block_tokens"] == list(tokens)


def test_what_does_not_fit_is_refused():
    vit = random_vit(small("vit_b16", depth=4), SIZE)
    options = InBackboneConfig()
    with pytest.raises(ConfigError, match="class token"):
        InBackboneReducer(random_vit(small("vit_b16", class_token=False), SIZE), NAMES, options)
    with pytest.raises(ConfigError, match="'cross' alone"):
        InBackboneReducer(vit, ("rgb",), replace(options, score_terms=("cross",)))
    with pytest.raises(ConfigError, match="at least two blocks"):
        InBackboneReducer(random_vit(small("vit_b16", depth=1), SIZE), NAMES, options)
    state = TokenState(torch.randn(2, 1 + N, 8), 1, patch_coordinates(GRID))
    index = torch.zeros(2, 2, dtype=torch.int64)
    with pytest.raises(ModelError, match=r"index to keep must be \(2, K\)"):
        keep_tokens(state, torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(ModelError, match=r"weights of the leftover must be \(2, 1, 12\)"):
        keep_tokens(state, index, torch.zeros(2, 1, 5))
    with pytest.raises(ModelError, match=r"weights to merge must be \(2, n, 12\)"):
        merge_tokens(state, index, torch.zeros(2, 2, 5), torch.ones(2, 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score_terms": ()}, "one or more different"),
        ({"score_terms": ("self", "self")}, "one or more different"),
        ({"score_terms": ("atention",)}, "did you mean 'attention'"),
        ({"score_terms": ("learned",)}, "'learned' is unknown"),
        ({"score_terms": ("random", "self")}, "'random' stands alone"),
        ({"dropped": "merg"}, "did you mean 'merge'"),
        ({"redundancy": -0.1}, "redundancy: -0.1 is not in"),
        ({"redundancy": float("inf")}, "redundancy: inf is not in"),
        ({"redundancy": float("nan")}, "redundancy: nan is not in"),
        ({"dropped": "discard", "redundancy": 1.0}, "redundancy: has no effect with dropped 'discard'"),
    ],
)
def test_options_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        InBackboneConfig(**changes)


def test_the_leftover_stands_behind_the_kept_patches():
    torch.manual_seed(0)
    state = TokenState(torch.randn(2, 1 + N, 8), 1, patch_coordinates(GRID))
    index = torch.tensor([[3, 7], [0, 11]])
    weights = torch.rand(2, 1, N).softmax(-1)
    found = keep_tokens(state, index, weights)
    centres = patch_coordinates(GRID)[0]
    for b in range(2):
        expected = [state.x[b, 0], *(state.patches[b, i] for i in index[b]), weights[b, 0] @ state.patches[b]]
        assert_close(found.x[b], torch.stack(expected))
        assert_close(found.positions[b], torch.cat([centres[index[b]], (weights[b] @ centres)]))
        assert found.index[b].tolist() == [*index[b].tolist(), -1]
    assert found.leftovers == 1
    again = keep_tokens(found, torch.tensor([[1], [0]]))
    assert again.index.tolist() == [[7], [0]], "the numbers of the image's patches"
    assert again.leftovers == 0
