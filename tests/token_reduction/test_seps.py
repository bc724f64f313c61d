"""The versions of SEPS against plain loops; golden numbers of its code are in test_parity."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from reference import token_reduction as reference
from slimreid.errors import ConfigError, ModelError
from slimreid.token_reduction.seps import (
    SEPS,
    DualPatchMerger,
    SepsOptions,
    SepsReducer,
    paper_ratio_loss,
    released_ratio_loss,
)
from support.reduction import perturb, streams


def inputs(B=2, N=10, C=16, texts=2, **kwargs):
    patches, vectors = streams(B, texts + 1, N, C, **kwargs)
    return patches[:, 0].contiguous(), vectors[:, 0], vectors[:, 1:]


def test_the_paper_equals_the_loop():
    reducer = SepsReducer(16, "paper", num_patches=10).train()
    perturb(reducer)
    patches, own, texts = inputs()
    reduced = reducer(patches, own, texts)
    for b in range(2):
        parts = [
            reference.reduce_stream(
                patches[b],
                own[b],
                [texts[b, branch]],
                predictor=reducer.scorers[0].mlp,
                network=reducer.merger.weights[branch],
                scale=reducer.merger.scale.item(),
                similarity="dot",
            )
            for branch in range(2)
        ]
        for selection, (_, kept, _, _) in zip(reduced.selections, parts, strict=True):
            assert selection.index[b].tolist() == kept
        merged = torch.tensor(parts[0][0]) + torch.tensor(parts[1][0])
        leftover = (torch.tensor(parts[0][3]) + torch.tensor(parts[1][3])) / 2
        torch.testing.assert_close(reduced.tokens[b], torch.cat([merged, leftover[None]]))
    assert reduced.selection.decision.requires_grad, "Gumbel is on while training"
    assert not reducer.eval()(patches, own, texts).selection.decision.requires_grad


@pytest.mark.parametrize("version", SEPS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_versions_are_finite_forward_and_backward(version, dtype):
    reducer = SepsReducer(16, version, num_patches=10).to(dtype).train()
    patches, own, texts = (t.requires_grad_() for t in inputs(dtype=dtype))
    texts_of = texts if SEPS[version].dual else texts[:, :1]
    tokens = reducer(patches, own, texts_of).tokens
    tokens.float().square().mean().backward()
    assert tokens.isfinite().all()
    for tensor in (patches, *reducer.parameters()):
        assert tensor.grad is None or tensor.grad.isfinite().all()


@pytest.mark.parametrize("version", SEPS)
def test_versions_compile(version):
    torch._dynamo.reset()
    reducer = SepsReducer(16, version, num_patches=10).eval()
    compiled = torch.compile(reducer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*inputs()).tokens, reducer(*inputs()).tokens)


def test_where_gradients_flow():
    """The released code has none through similarities and selection, so only the merge learns."""
    patches, own, texts = (t.requires_grad_() for t in inputs(texts=1))
    reducer = SepsReducer(16, "released", num_patches=10).train()
    reducer(patches, own, texts).tokens.square().sum().backward()
    assert patches.grad is None
    assert all(p.grad.abs().sum() > 0 for n, p in reducer.merger.named_parameters() if "weight" in n)
    for version in ("paper", "paper_code"):
        patches, own, texts = (t.detach().requires_grad_() for t in inputs())
        SepsReducer(16, version, num_patches=10).train()(patches, own, texts).tokens.square().sum().backward()
        assert patches.grad.abs().sum() > 0
        assert (texts.grad is not None) == (version == "paper")


def test_every_option_is_read():
    other = {
        "keep_ratio": 0.7, "merge_ratio": 0.9, "scorers": 0, "similarity": "dot", "eq3": False,
        "own_mean": True, "dual": True, "one_text_each": True, "gumbel": True, "similarity_gradient": False,
        "selection_gradient": False,
    }  # fmt: skip
    base_of = {"one_text_each": {"dual": True}}
    assert set(other) == {field.name for field in dataclasses.fields(SepsOptions)}

    def trace(**changes):
        torch.manual_seed(0)
        reducer = SepsReducer(16, SepsOptions(**changes), num_patches=10).train()
        patches, own, texts = (t.requires_grad_() for t in inputs())
        reduced = reducer(patches, own, texts)
        reduced.tokens.square().sum().backward()
        values = [reduced.tokens, patches.grad, texts.grad]
        values += [p.grad for p in reducer.parameters()]
        return [None if v is None else v.tolist() for v in values]

    for name, value in other.items():
        base = base_of.get(name, {})
        assert trace(**base) != trace(**{**base, name: value}), name


def test_nothing_dropped_leaves_no_leftover():
    options = dataclasses.replace(SEPS["paper_code"], keep_ratio=1.0)
    patches, _, texts = inputs()
    assert SepsReducer(16, options, num_patches=10)(patches, None, texts).tokens.shape == (2, 4, 16)


def test_dual_merger_adds_two_merges_with_one_scale():
    merger = DualPatchMerger(10, 3)
    perturb(merger)
    kept = torch.randn(2, 1, 4, 10)
    merged, weights = merger((kept[0], kept[1]), (None, None))
    parts = [
        reference.merge(network, merger.scale.item(), kept[i, 0].tolist())
        for i, network in enumerate(merger.weights)
    ]
    torch.testing.assert_close(merged[0], torch.tensor(parts[0]) + torch.tensor(parts[1]))
    assert len(weights) == 2
    assert sum(p.numel() for name, p in merger.named_parameters() if "scale" in name) == 1


def test_ratio_losses():
    first, second = torch.tensor([[1.0, 0, 0, 0]]), torch.tensor([[1.0, 1, 0, 0]])
    assert paper_ratio_loss([first], 0.5).item() == pytest.approx((0.5 - 0.25) ** 2)
    assert paper_ratio_loss([first, second], 0.5).item() == pytest.approx((0.5 - 0.25 - 0.5) ** 2)
    weighted = paper_ratio_loss([first, second], 0.5, lambdas=(0.5, 2.0))
    assert weighted.item() == pytest.approx((0.5 - 0.125 - 1.0) ** 2)
    assert released_ratio_loss([first, second], 0.6).item() == pytest.approx((0.75 - 0.6) ** 2)
    assert paper_ratio_loss([first[:0]], 0.5).item() == released_ratio_loss([first[:0]], 0.5).item() == 0
    with pytest.raises(ConfigError, match="lambdas"):
        paper_ratio_loss([first, second], 0.5, lambdas=(1.0,))
    soft = torch.tensor([[0.9, 0.8, 0.1]], requires_grad=True)
    for loss in (paper_ratio_loss, released_ratio_loss):
        (gradient,) = torch.autograd.grad(loss([soft], 0.3), soft)
        assert (gradient > 0).all()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="SEPS version: 'papr' is unknown; did you mean 'paper'"):
        SepsReducer(16, "papr", num_patches=10)
    patches, own, texts = inputs()
    reducer = SepsReducer(16, "paper", num_patches=10)
    with pytest.raises(ModelError, match="own vector"):
        reducer(patches, None, texts)
    with pytest.raises(ModelError, match=r"\(B, N, C\)"):
        reducer(patches[0], own, texts)
    with pytest.raises(ModelError, match="2 texts, not 1"):
        reducer(patches, own, texts[:, :1])
