from __future__ import annotations

import copy
import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import token_reduction as reference
from slimreid.config.token_reduction import AfterBackboneConfig
from slimreid.errors import ConfigError, ModelError
from slimreid.token_reduction import AfterBackboneReducer, pack_all, pack_present
from support.reduction import NAMES, make_reducer, some_modalities, streams


def assert_equals_present_modalities(reducer, patches, vectors, present):
    """Each sample must come out as if there were no other modalities than those it has."""
    reduced = reducer(patches, vectors, present)
    for b in range(len(patches)):
        there = present[b].nonzero()[:, 0].tolist()
        absent = (~present[b]).nonzero()[:, 0].tolist()
        assert (reduced.tokens[b, absent] == 0).all()
        assert (reduced.selection.decision[b, absent] == 0).all()
        if not there:
            continue
        part = some_modalities(reducer, [reducer.modalities[m] for m in there])
        alone = part(patches[b : b + 1, there], vectors[b : b + 1, there])
        torch.testing.assert_close(reduced.tokens[b, there], alone.tokens[0])
        torch.testing.assert_close(reduced.weights[0][b, there], alone.weights[0][0])
        assert torch.equal(reduced.selection.index[b, there], alone.selection.index[0])
        assert torch.equal(reduced.selection.decision[b, there], alone.selection.decision[0])
        torch.testing.assert_close(reduced.selection.score[b, there], alone.selection.score[0])
        for term, values in alone.selection.scores.items():
            torch.testing.assert_close(reduced.selection.scores[term][b, there], values[0])


def test_tokens_equal_the_loops():
    reducer = make_reducer()
    patches, vectors = streams()
    reduced = reducer(patches, vectors)
    for b in range(3):
        for m, name in enumerate(NAMES):
            merged, kept, chosen, leftover = reference.reduce_stream(
                patches[b, m],
                vectors[b, m],
                [vectors[b, o] for o in range(3) if o != m],
                predictor=reducer.scorers[name].mlp,
                network=reducer.mergers[name].weight,
                scale=reducer.mergers[name].scale.item(),
            )
            assert reduced.selection.index[b, m].tolist() == kept
            torch.testing.assert_close(reduced.selection.kept[b, m], torch.tensor(chosen))
            torch.testing.assert_close(reduced.tokens[b, m], torch.tensor([*merged, leftover]))
    assert set(reduced.selection.scores) == {"learned", "self", *NAMES}


def test_every_pattern_of_presence():
    patterns = torch.tensor(list(itertools.product([False, True], repeat=3)))
    patches, vectors = streams(B=len(patterns))
    assert_equals_present_modalities(make_reducer(), patches, vectors, patterns)


@settings(deadline=None, max_examples=15)
@given(st.data(), st.integers(1, 4), st.integers(0, 3), st.integers(1, 12))
def test_any_number_of_modalities(data, M, B, N):
    present = torch.tensor(
        data.draw(st.lists(st.lists(st.booleans(), min_size=M, max_size=M), min_size=B, max_size=B)),
        dtype=torch.bool,
    ).reshape(B, M)
    patches, vectors = streams(B, M, N)
    reducer = make_reducer([f"m{i}" for i in range(M)])
    assert_equals_present_modalities(reducer, patches, vectors, present)


def test_all_present_is_the_same_with_and_without_a_mask():
    patches, vectors = streams()
    reducer = make_reducer()
    everything = torch.ones(3, 3, dtype=torch.bool)
    assert torch.equal(reducer(patches, vectors).tokens, reducer(patches, vectors, everything).tokens)
    assert_equals_present_modalities(reducer, patches, vectors, everything)


def test_absent_rows_are_not_computed_and_may_hold_anything():
    patches, vectors = streams(B=4)
    present = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 1]], dtype=torch.bool)
    reducer = make_reducer(estimator="soft_topk").train()
    seen = []
    for scorer in reducer.scorers.values():
        scorer.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    clean = reducer(patches, vectors, present)
    assert seen == present.sum(0).tolist()
    dirty_patches = patches.masked_fill(~present[..., None, None], torch.nan).requires_grad_()
    dirty_vectors = vectors.masked_fill(~present[..., None], torch.nan).requires_grad_()
    dirty = reducer(dirty_patches, dirty_vectors, present)
    assert torch.equal(dirty.tokens, clean.tokens)
    dirty.tokens.square().sum().backward()
    for tensor in (dirty_patches, dirty_vectors, *reducer.parameters()):
        assert tensor.grad.isfinite().all()
    assert (dirty_patches.grad[~present] == 0).all()


@pytest.mark.parametrize("pattern", [None, [[1, 0, 1], [0, 1, 1], [1, 1, 1]]])
def test_shared_parameters(pattern):
    patches, vectors = streams()
    shared, own = make_reducer(shared=True), make_reducer()
    for name in NAMES:
        own.scorers[name].load_state_dict(shared.scorers["shared"].state_dict())
        own.mergers[name].load_state_dict(shared.mergers["shared"].state_dict())
    present = None if pattern is None else torch.tensor(pattern, dtype=torch.bool)
    torch.testing.assert_close(
        shared(patches, vectors, present).tokens, own(patches, vectors, present).tokens
    )
    assert 3 * sum(p.numel() for p in shared.parameters()) == sum(p.numel() for p in own.parameters())


@pytest.mark.parametrize("pattern", [None, [[1, 0, 1], [0, 1, 1], [1, 1, 1]]])
def test_memory_order_does_not_matter(pattern):
    patches, vectors = streams()
    turned = patches.transpose(0, 1).contiguous().transpose(0, 1)
    present = None if pattern is None else torch.tensor(pattern, dtype=torch.bool)
    reducer = make_reducer()
    assert torch.equal(reducer(patches, vectors, present).tokens, reducer(turned, vectors, present).tokens)
    packed = pack_all(3, 3).pack(turned)
    assert packed.data_ptr() == turned.data_ptr()  # no copy


def test_packed_rows_can_be_given():
    patches, vectors = streams()
    present = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 1]], dtype=torch.bool)
    packing = pack_present(present)
    reducer = make_reducer()
    rows = reducer.reduce_rows(packing.pack(patches), packing.pack(vectors), packing)
    assert rows.tokens.shape[0] == present.sum()
    assert torch.equal(rows.unpack(packing).tokens, reducer(patches, vectors, present).tokens)


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
    reducer = make_reducer()
    patches, vectors = streams(B=2)
    nothing = reducer(patches, vectors, torch.zeros(2, 3, dtype=torch.bool))
    assert (nothing.tokens == 0).all()
    assert nothing.tokens.shape == (2, 3, 3, 16)
    assert reducer(*streams(B=0)).tokens.shape == (0, 3, 3, 16)


def test_seedable_in_training_and_deterministic_in_eval():
    reducer = make_reducer(estimator="gumbel").train()
    patches, vectors = streams()

    def gradient(seed):
        reducer.zero_grad()
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        reducer(patches, vectors, generator=generator).tokens.square().sum().backward()
        return reducer.scorers["rgb"].mlp[0].weight.grad.clone()

    assert torch.equal(gradient(1), gradient(1))
    assert not torch.equal(gradient(1), gradient(2))
    torch.manual_seed(7)
    first = gradient(None)
    torch.manual_seed(7)
    assert torch.equal(first, gradient(None))
    reducer.eval()
    assert torch.equal(gradient(None), gradient(None))


def test_without_a_merge_kept_patches_stay_as_they_are():
    patches, vectors = streams(N=128)
    reduced = make_reducer(merge="none", keep_ratio=0.6, N=128)(patches, vectors)
    assert reduced.tokens.shape == (3, 3, 77 + 1, 16)
    assert torch.equal(reduced.tokens[:, :, :-1], reduced.selection.kept)
    assert reduced.weights == ()


def test_nothing_dropped():
    patches, vectors = streams()
    reduced = make_reducer(keep_ratio=1.0)(patches, vectors)
    assert reduced.tokens.shape == (3, 3, 4, 16)
    assert reduced.selection.leftover is None
    old = make_reducer(keep_ratio=1.0, zero_leftover=True)(patches, vectors)
    assert old.tokens.shape == (3, 3, 5, 16)
    assert (old.tokens[:, :, -1] == 0).all()
    plain = make_reducer(terms=("self",), keep_ratio=1.0, merge="none")
    torch.testing.assert_close(plain(patches, vectors).pooled(), patches.mean(2))
    assert not list(plain.parameters())


@pytest.mark.parametrize("estimator", ["topk", "gumbel", "soft_topk", "binary_concrete"])
@pytest.mark.parametrize("N", [1, 2, 7, 33])
def test_the_number_of_patches_may_change_at_run_time(N, estimator):
    reducer = make_reducer(estimator=estimator).train()
    patches, vectors = streams(N=N)
    reduced = reducer(patches.requires_grad_(), vectors)
    reduced.tokens.sum().backward()
    assert patches.grad.isfinite().all()
    varies = estimator == "binary_concrete"
    assert reduced.tokens.shape[2] == 2 + (N > 1 or varies)
    assert reduced.selection.index.shape[2] == (N if varies else -(-N // 2))


def test_constant_patches():
    reducer = make_reducer(estimator="gumbel").train()
    patches = torch.ones(2, 3, 10, 16, requires_grad=True)
    reduced = reducer(patches, torch.ones(2, 3, 16))
    reduced.tokens.square().sum().backward()
    assert reduced.selection.index.tolist() == [[[0, 1, 2, 3, 4]] * 3] * 2
    assert patches.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("estimator", ["topk", "gumbel", "soft_topk", "binary_concrete"])
def test_finite_forward_and_backward(dtype, estimator):
    reducer = make_reducer(N=64, estimator=estimator, C=32).to(dtype).train()
    patches, vectors = (t.requires_grad_() for t in streams(N=64, C=32, dtype=dtype))
    tokens = reducer(patches, vectors).tokens
    assert tokens.dtype == dtype
    tokens.float().square().mean().backward()
    assert tokens.isfinite().all()
    for tensor in (patches, vectors, *reducer.parameters()):
        assert tensor.grad is None or tensor.grad.isfinite().all()


def test_every_option_is_read():
    """Another value of each option changes the parameters, the tokens, the gradients or the shares kept."""
    other = {
        "keep_ratio": 0.7, "score_terms": ("self", "contrast"), "beta": 0.1, "score_gradient": False,
        "estimator": "soft_topk", "tau": 0.3, "tau_final": 0.2, "noise": False, "selection": "soft",
        "straight_through_gate": True, "max_keep_ratio": 0.5, "merge": "none", "merge_ratio": 0.9,
        "decision_in_merge": False, "zero_leftover": True, "shared": True, "ratio_loss_weight": 2.0,
    }  # fmt: skip
    soft, concrete = {"estimator": "soft_topk"}, {"estimator": "binary_concrete"}
    base_of = {
        "tau": soft, "tau_final": soft, "noise": {"estimator": "gumbel"}, "selection": soft,
        "straight_through_gate": soft, "max_keep_ratio": concrete, "zero_leftover": {"keep_ratio": 1.0},
        "decision_in_merge": {**soft, "straight_through_gate": True},
        "ratio_loss_weight": {**concrete, "ratio_loss_weight": 1.0},
    }  # fmt: skip
    assert set(other) == {field.name for field in dataclasses.fields(AfterBackboneConfig)}

    def trace(**changes):
        torch.manual_seed(0)
        options = AfterBackboneConfig(**changes)
        reducer = AfterBackboneReducer(16, NAMES, options, num_patches=10).train()
        reducer.set_progress(1.0)
        patches, vectors = (t.requires_grad_() for t in streams())
        reduced = reducer(patches, vectors)
        loss = reduced.tokens.square().sum()
        if options.ratio_loss_weight:
            loss = loss + reducer.ratio_loss(reduced.kept_share)
        loss.backward()
        values = [reduced.tokens, patches.grad, vectors.grad, *(p.grad for p in reducer.parameters())]
        return [None if v is None else v.tolist() for v in values]

    for name, value in other.items():
        base = base_of.get(name, {})
        assert trace(**base) != trace(**{**base, name: value}), name


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="num_patches or merged_tokens"):
        AfterBackboneReducer(16, NAMES)
    with pytest.raises(ConfigError, match="merged_tokens: 0"):
        AfterBackboneReducer(16, NAMES, merged_tokens=0)
    for names in ((), ("rgb", "rgb")):
        with pytest.raises(ConfigError, match="modalities"):
            AfterBackboneReducer(16, names, num_patches=10)
    reducer = make_reducer()
    patches, vectors = streams()
    with pytest.raises(ModelError, match=r"rgb, nir, tir"):
        reducer(patches[:, :2], vectors)
    with pytest.raises(ModelError, match="global vectors"):
        reducer(patches, vectors[:, :2])
    with pytest.raises(ModelError, match="present"):
        reducer(patches, vectors, torch.ones(3, 2, dtype=torch.bool))
    with pytest.raises(ModelError, match="bool"):
        reducer(patches, vectors, torch.ones(3, 3))


@pytest.mark.parametrize(
    ("estimator", "backend"),
    [
        ("topk", "eager"),
        ("gumbel", "eager"),
        ("soft_topk", "eager"),
        ("gumbel", "aot_eager"),
        ("soft_topk", "aot_eager"),
        ("binary_concrete", "eager"),
    ],
)
def test_compiles_without_a_break(estimator, backend):
    torch._dynamo.reset()
    patches, vectors = streams()
    reducer = make_reducer(estimator=estimator)
    expected = reducer(patches, vectors)
    compiled = torch.compile(reducer, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(patches, vectors).tokens, expected.tokens)
    reducer.train()
    compiled(patches.requires_grad_(), vectors).tokens.square().sum().backward()
    assert patches.grad.isfinite().all()
    if estimator == "soft_topk":
        plain = patches.detach().clone().requires_grad_()
        reducer(plain, vectors).tokens.square().sum().backward()
        torch.testing.assert_close(patches.grad, plain.grad)


def test_core_compiles_for_any_pattern_of_presence_and_number_of_patches():
    torch._dynamo.reset()
    reducer = make_reducer()
    compiled = copy.deepcopy(reducer)
    compiled.compile(fullgraph=True, backend="eager")
    for B, N, pattern in (
        (3, 10, [[1, 0, 1], [0, 1, 1], [1, 1, 1]]),
        (2, 14, [[1, 1, 1], [1, 1, 1]]),
        (2, 9, [[0, 0, 1], [1, 0, 1]]),
    ):
        patches, vectors = streams(B=B, N=N)
        present = torch.tensor(pattern, dtype=torch.bool)
        expected = reducer(patches, vectors, present)
        torch.testing.assert_close(compiled(patches, vectors, present).tokens, expected.tokens)
    copied = copy.deepcopy(compiled)
    assert torch.equal(copied(patches, vectors, present).tokens, expected.tokens)


@pytest.mark.parametrize("name", ["self", "learned", "redundancy", "shared", "a.b", "", "keys", "training"])
def test_names_that_clash_are_refused(name):
    with pytest.raises(ConfigError, match=f"'{name}' cannot be the name of a modality"):
        AfterBackboneReducer(8, ("rgb", name), num_patches=4)


def test_no_patches_are_refused():
    with pytest.raises(ModelError, match="N ≥ 1"):
        AfterBackboneReducer(8, ("rgb", "tir"), num_patches=4)(torch.zeros(2, 2, 0, 8), torch.zeros(2, 2, 8))
