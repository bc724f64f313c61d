from __future__ import annotations

import copy
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slimming_cases import NAMES, one_stream, perturb, streams

from slimreid.errors import ConfigError, ModelError
from slimreid.slimming import MultiModalSlimmer, PatchSlimmer, pack_all, pack_present, unpack


def make(names=NAMES, C=16, N=10, **kwargs) -> MultiModalSlimmer:
    slimmer = MultiModalSlimmer(C, names, num_patches=N, **kwargs).eval()
    perturb(slimmer)
    return slimmer


def assert_equals_single_streams(slimmer, patches, vectors, present):
    """Each present stream must come out as if slimmed alone by the vectors that are present."""
    slimmed = slimmer(patches, vectors, present)
    for m, name in enumerate(slimmer.modalities):
        single = one_stream(slimmer, name)
        others = [o for o in range(len(slimmer.modalities)) if o != m]
        for b in range(len(patches)):
            if not present[b, m]:
                assert (slimmed.tokens[b, m] == 0).all()
                assert (slimmed.selection.decision[b, m] == 0).all()
                continue
            there = [o for o in others if present[b, o]]
            alone = single(patches[b : b + 1, m], vectors[b : b + 1, m], vectors[b : b + 1, there])
            torch.testing.assert_close(slimmed.tokens[b, m], alone.tokens[0])
            torch.testing.assert_close(slimmed.weights[0][b, m], alone.weights[0][0])
            assert torch.equal(slimmed.selection.index[b, m], alone.selection.index[0])
            assert torch.equal(slimmed.selection.decision[b, m], alone.selection.decision[0])
            torch.testing.assert_close(slimmed.selection.score[b, m], alone.selection.score[0])
            for source in ("learned", "own"):
                expected = alone.selection.scores[source][0]
                torch.testing.assert_close(slimmed.selection.scores[source][b, m], expected)
            for g, o in enumerate(there):
                actual = slimmed.selection.scores[slimmer.modalities[o]][b, m]
                torch.testing.assert_close(actual, alone.selection.scores[f"guide{g}"][0])


def test_every_pattern_of_presence():
    patterns = torch.tensor(list(itertools.product([False, True], repeat=3)))
    patches, vectors = streams(B=len(patterns))
    assert_equals_single_streams(make(), patches, vectors, patterns)


@settings(deadline=None, max_examples=15)
@given(st.data(), st.integers(1, 4), st.integers(0, 3), st.integers(1, 12))
def test_any_number_of_modalities(data, M, B, N):
    present = torch.tensor(
        data.draw(st.lists(st.lists(st.booleans(), min_size=M, max_size=M), min_size=B, max_size=B)),
        dtype=torch.bool,
    ).reshape(B, M)
    patches, vectors = streams(B, M, N)
    slimmer = make([f"m{i}" for i in range(M)])
    assert_equals_single_streams(slimmer, patches, vectors, present)


def test_all_present_is_the_same_with_and_without_a_mask():
    patches, vectors = streams()
    slimmer = make()
    everything = torch.ones(3, 3, dtype=torch.bool)
    assert torch.equal(slimmer(patches, vectors).tokens, slimmer(patches, vectors, everything).tokens)
    assert_equals_single_streams(slimmer, patches, vectors, everything)


def test_absent_rows_are_not_computed_and_may_hold_anything():
    patches, vectors = streams(B=4)
    present = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 1]], dtype=torch.bool)
    slimmer = make(estimator="soft_topk").train()
    seen = []
    for scorer in slimmer.scorers.values():
        scorer.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    clean = slimmer(patches, vectors, present)
    assert seen == present.sum(0).tolist()
    dirty_patches = patches.masked_fill(~present[..., None, None], torch.nan).requires_grad_()
    dirty_vectors = vectors.masked_fill(~present[..., None], torch.nan).requires_grad_()
    dirty = slimmer(dirty_patches, dirty_vectors, present)
    assert torch.equal(dirty.tokens, clean.tokens)
    dirty.tokens.square().sum().backward()
    for tensor in (dirty_patches, dirty_vectors, *slimmer.parameters()):
        assert tensor.grad.isfinite().all()
    assert (dirty_patches.grad[~present] == 0).all()


@pytest.mark.parametrize("pattern", [None, [[1, 0, 1], [0, 1, 1], [1, 1, 1]]])
def test_shared_parameters(pattern):
    patches, vectors = streams()
    shared, own = make(shared=True), make()
    for name in NAMES:
        own.scorers[name].load_state_dict(shared.scorers["shared"].state_dict())
        own.mergers[name].load_state_dict(shared.mergers["shared"].state_dict())
    present = None if pattern is None else torch.tensor(pattern, dtype=torch.bool)
    torch.testing.assert_close(
        shared(patches, vectors, present).tokens, own(patches, vectors, present).tokens
    )
    assert 3 * sum(p.numel() for p in shared.parameters()) == sum(p.numel() for p in own.parameters())


def test_gradients_equal_those_of_single_streams():
    patches, vectors = (t.requires_grad_() for t in streams(dtype=torch.float64))
    slimmer = make().double()
    slimmer(patches, vectors).tokens.pow(2).sum().backward()
    alone_patches, alone_vectors = (t.detach().clone().requires_grad_() for t in (patches, vectors))
    loss = 0
    singles = {name: one_stream(slimmer, name).double() for name in NAMES}
    for m, name in enumerate(NAMES):
        others = [o for o in range(3) if o != m]
        alone = singles[name](alone_patches[:, m], alone_vectors[:, m], alone_vectors[:, others])
        loss = loss + alone.tokens.pow(2).sum()
    loss.backward()
    torch.testing.assert_close(patches.grad, alone_patches.grad)
    torch.testing.assert_close(vectors.grad, alone_vectors.grad)
    for name in NAMES:
        own = dict(slimmer.scorers[name].named_parameters())
        for key, parameter in singles[name].scorers[0].named_parameters():
            torch.testing.assert_close(own[key].grad, parameter.grad)
        own = dict(slimmer.mergers[name].named_parameters())
        for key, parameter in singles[name].merger.named_parameters():
            torch.testing.assert_close(own[key].grad, parameter.grad)


@pytest.mark.parametrize("pattern", [None, [[1, 0, 1], [0, 1, 1], [1, 1, 1]]])
def test_memory_order_does_not_matter(pattern):
    patches, vectors = streams()
    turned = patches.transpose(0, 1).contiguous().transpose(0, 1)
    present = None if pattern is None else torch.tensor(pattern, dtype=torch.bool)
    slimmer = make()
    assert torch.equal(slimmer(patches, vectors, present).tokens, slimmer(turned, vectors, present).tokens)
    packed = pack_all(3, 3).pack(turned)
    assert packed.data_ptr() == turned.data_ptr()  # no copy


def test_packed_rows_can_be_given():
    patches, vectors = streams()
    present = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 1]], dtype=torch.bool)
    packing = pack_present(present)
    slimmer = make()
    rows = slimmer.slim_rows(packing.pack(patches), packing.pack(vectors), packing)
    assert rows.tokens.shape[0] == present.sum()
    assert torch.equal(unpack(rows, packing).tokens, slimmer(patches, vectors, present).tokens)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=6))
def test_packing_is_undone_by_unpacking(pattern):
    present = torch.tensor(pattern, dtype=torch.bool).reshape(-1, 3)
    values = torch.randn(len(present), 3, 2)
    packing = pack_present(present)
    rows = packing.pack(values)
    assert torch.equal(rows, torch.cat([values[present[:, m], m] for m in range(3)]))
    assert packing.sizes == tuple(present.sum(0).tolist())
    assert torch.equal(packing.unpack(rows), values * present[..., None])
    assert torch.equal(packing.pack(present), torch.ones(len(rows), dtype=torch.bool))


def test_nothing_present_and_empty_batch():
    slimmer = make(ratio_loss="paper")
    patches, vectors = streams(B=2)
    nothing = slimmer(patches, vectors, torch.zeros(2, 3, dtype=torch.bool))
    assert (nothing.tokens == 0).all()
    assert nothing.tokens.shape == (2, 3, 3, 16)
    assert slimmer(*streams(B=0)).tokens.shape == (0, 3, 3, 16)


def test_seedable_in_training_and_deterministic_in_eval():
    slimmer = make(estimator="gumbel").train()
    patches, vectors = streams()

    def gradient(seed):
        slimmer.zero_grad()
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        slimmer(patches, vectors, generator=generator).tokens.square().sum().backward()
        return slimmer.scorers["rgb"].mlp[0].weight.grad.clone()

    assert torch.equal(gradient(1), gradient(1))
    assert not torch.equal(gradient(1), gradient(2))
    torch.manual_seed(7)
    first = gradient(None)
    torch.manual_seed(7)
    assert torch.equal(first, gradient(None))
    slimmer.eval()
    assert torch.equal(gradient(None), gradient(None))


def test_other_options_reach_the_core():
    patches, vectors = streams(N=20)
    assert make(merge="none", N=20)(patches, vectors).tokens.shape == (3, 3, 11, 16)
    unlearned = make(learned=False, N=20)
    assert not list(unlearned.scorers)
    assert "learned" not in unlearned(patches, vectors).selection.scores
    mean = make(own="mean", N=20)
    given_mean = copy.deepcopy(mean)
    given_mean.options = make(N=20).options
    own = [mean(patches, vectors).tokens[:, m] for m in range(3)]
    for m in range(3):
        replaced = vectors.clone()
        replaced[:, m] = patches[:, m].mean(1)
        torch.testing.assert_close(own[m], given_mean(patches, replaced).tokens[:, m])


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="PatchSlimmer"):
        MultiModalSlimmer(16, NAMES, "seps_paper", num_patches=10)
    for names in ((), ("rgb", "rgb")):
        with pytest.raises(ConfigError, match="modalities"):
            MultiModalSlimmer(16, names, num_patches=10)
    slimmer = make()
    patches, vectors = streams()
    with pytest.raises(ModelError, match=r"rgb, nir, tir"):
        slimmer(patches[:, :2], vectors)
    with pytest.raises(ModelError, match="global vectors"):
        slimmer(patches, vectors[:, :2])
    with pytest.raises(ModelError, match="present"):
        slimmer(patches, vectors, torch.ones(3, 2, dtype=torch.bool))
    with pytest.raises(ModelError, match="bool"):
        slimmer(patches, vectors, torch.ones(3, 3))


@pytest.mark.parametrize(
    ("estimator", "backend"),
    [
        ("topk", "eager"),
        ("gumbel", "eager"),
        ("soft_topk", "eager"),
        ("gumbel", "aot_eager"),
        ("soft_topk", "aot_eager"),
    ],
)
def test_compiles_without_a_break(estimator, backend):
    torch._dynamo.reset()
    patches, vectors = streams()
    slimmer = make(estimator=estimator, ratio_loss="paper")
    expected = slimmer(patches, vectors)
    compiled = torch.compile(slimmer, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(patches, vectors).tokens, expected.tokens)
    slimmer.train()
    compiled(patches.requires_grad_(), vectors).tokens.square().sum().backward()
    assert patches.grad.isfinite().all()
    if estimator != "gumbel":
        plain = patches.detach().clone().requires_grad_()
        slimmer(plain, vectors).tokens.square().sum().backward()
        torch.testing.assert_close(patches.grad, plain.grad)


def test_core_compiles_for_any_pattern_of_presence_and_number_of_patches():
    torch._dynamo.reset()
    slimmer = make()
    compiled = copy.deepcopy(slimmer)
    compiled.compile(fullgraph=True, backend="eager")
    for B, N, pattern in (
        (3, 10, [[1, 0, 1], [0, 1, 1], [1, 1, 1]]),
        (2, 14, [[1, 1, 1], [1, 1, 1]]),
        (2, 9, [[0, 0, 1], [1, 0, 1]]),
    ):
        patches, vectors = streams(B=B, N=N)
        present = torch.tensor(pattern, dtype=torch.bool)
        expected = slimmer(patches, vectors, present)
        torch.testing.assert_close(compiled(patches, vectors, present).tokens, expected.tokens)
    copied = copy.deepcopy(compiled)
    assert torch.equal(copied(patches, vectors, present).tokens, expected.tokens)


@pytest.mark.parametrize("name", ["sdtps", "seps_paper", "seps_released", "seps_paper_code", "demo_sdtps"])
def test_single_streams_compile_too(name):
    torch._dynamo.reset()
    patches, vectors = streams()
    slimmer = PatchSlimmer(16, name, num_patches=10).eval()
    compiled = torch.compile(slimmer, fullgraph=True, backend="eager")
    stream = (patches[:, 0].contiguous(), vectors[:, 0], vectors[:, 1:])
    torch.testing.assert_close(compiled(*stream).tokens, slimmer(*stream).tokens)


@pytest.mark.parametrize("name", ["own", "learned", "shared", "a.b", "", "keys", "training"])
def test_names_that_clash_are_refused(name):
    with pytest.raises(ConfigError, match=f"'{name}' cannot be the name of a modality"):
        MultiModalSlimmer(8, ("rgb", name), num_patches=4)


def test_no_patches_are_refused():
    with pytest.raises(ModelError, match="N ≥ 1"):
        MultiModalSlimmer(8, ("rgb", "tir"), num_patches=4)(torch.zeros(2, 2, 0, 8), torch.zeros(2, 2, 8))
