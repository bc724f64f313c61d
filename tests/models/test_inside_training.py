"""Slimming inside the backbone while training: which gradients there are, and how shares shrink."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from inside_cases import N, images, slimmed_inside
from torch.testing import assert_close
from vit_cases import small

from slimreid.models.layers import Attention
from slimreid.slimming import SlimmingOptions


def gradients(seed: int = 0, **options):
    """Gradient norm of every parameter of a small model for one batch."""
    model = slimmed_inside(**options).train()
    out = model(images(4), generator=torch.Generator().manual_seed(seed))
    sum(logits.square().sum() for logits in out.logits.values()).backward()
    return {n: None if p.grad is None else float(p.grad.norm()) for n, p in model.named_parameters()}


def of_scorers(norms, stage):
    return [v for n, v in norms.items() if n.startswith(f"inside.scorers.{stage}.") and n.endswith("weight")]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"leftover": "regions"},
        {"leftover": "none", "estimator": "soft_topk", "soft_keys": True, "merge": "none"},
        {"leftover": "none", "estimator": "gumbel", "soft_keys": True, "merge": "none"},
        {"leftover": "none", "estimator": "soft_topk"},  # D reaches the merge only
        {"leftover": "nearest", "estimator": "soft_topk"},
        {"leftover": "nearest", "redundancy": 1.0, "estimator": "gumbel", "soft_keys": True, "merge": "none"},
        {"leftover": "nearest", "estimator": "soft_topk", "weigh_kept": True, "merge": "none"},
    ],
    ids=lambda o: "-".join(f"{k}={v}" for k, v in o.items()) or "default",
)
def test_the_predictor_of_every_stage_learns(options):
    norms = gradients(**options)
    for stage in (0, 1):
        found = of_scorers(norms, stage)
        assert len(found) == 6
        assert all(value is not None and value > 0 for value in found), options
    largest = max(v for n, v in norms.items() if v is not None and "scorers" not in n)
    assert max(of_scorers(norms, 0)) < 10 * largest, "of natural size"


def test_without_leftover_and_estimator_the_choice_has_no_gradient():
    """Why these options are refused together with a learned score: here by a score without gradient."""
    model = slimmed_inside(leftover="none", sources=("own",), merge="none").train()
    score = model.inside.score

    def watched(*args):
        scores = score(*args)
        assert scores.total.requires_grad
        scores.total.register_hook(lambda grad: pytest.fail("a gradient reached the score"))
        return scores

    model.inside.score = watched
    out = model(images(4))
    sum(logits.square().sum() for logits in out.logits.values()).backward()


def test_soft_keys_change_gradients_but_no_value():
    base = {"estimator": "soft_topk", "leftover": "none", "merge": "single"}
    soft, hard = ({**base, "soft_keys": on} for on in (True, False))
    x = images(4)
    with torch.no_grad():
        one, two = (slimmed_inside(**o).train()(x).features["both"] for o in (soft, hard))
    assert_close(one, two, atol=1e-6, rtol=1e-5)
    assert of_scorers(gradients(**soft), 0) != of_scorers(gradients(**hard), 0)


def test_the_gradient_of_a_key_bias_is_that_of_the_written_out_softmax():
    torch.manual_seed(0)
    attention = Attention(small("vit_b16"))
    x = torch.randn(2, 5, 64)
    bias, again = (torch.zeros(2, 5, requires_grad=True) for _ in range(2))
    attention(x, key_bias=bias)[0].square().sum().backward()
    q, k, v = (
        F.linear(x, attention.qkv.weight, attention.qkv.bias).view(2, 5, 3, 2, 32).permute(2, 0, 3, 1, 4)
    )
    weights = (q @ k.transpose(-1, -2) / 32**0.5 + again[:, None, None]).softmax(-1)
    attention.proj((weights @ v).transpose(1, 2).reshape(2, 5, 64)).square().sum().backward()
    assert_close(bias.grad, again.grad, atol=1e-5, rtol=1e-4)
    assert bias.grad.abs().min() > 0
    shifted = attention(x, key_bias=torch.tensor([[0.0, 0.0, 0.0, 0.0, -1e4]] * 2))[0]
    assert_close(shifted[:, :4], attention(x[:, :4])[0], atol=1e-5, rtol=1e-4)


def test_decisions_of_all_stages_reach_the_last_patches():
    """With D from both stages, the first predictor still gets a gradient from blocks after the second."""
    model = slimmed_inside(
        estimator="soft_topk", soft_keys=True, leftover="none", merge="none", depth=4
    ).train()
    keys = []
    for block in model.backbone.blocks:
        block.register_forward_pre_hook(lambda _, inputs: keys.append(inputs[2]))
    out = model(images(4))
    assert [None if bias is None else tuple(bias.shape) for bias in keys] == [None, (12, 9), (12, 4), (12, 4)]
    assert all((bias == 0).all() for bias in keys[1:])
    first = next(model.inside.scorers[0]["rgb"].parameters())
    (grad,) = torch.autograd.grad(keys[2][:, 1:].square().sum() + keys[2][:4, 1].sum(), first)
    assert grad.abs().max() > 0
    assert out.slimmed is None


def test_where_gradients_stop():
    whole, cut = (gradients(sources=("own", "others"), similarity_gradient=on) for on in (True, False))
    name = "backbone.patch_embed.weight"
    assert whole[name] != cut[name]
    late = [n for n in whole if n.startswith(("backbone.blocks.3", "heads", "inside"))]
    assert {n: whole[n] for n in late} == pytest.approx({n: cut[n] for n in late})
    detached = gradients(sources=("own", "others"), selection_gradient=False)
    assert detached[name] not in (whole[name], cut[name])
    assert detached[name] > 0, "through the class token"


def test_every_option_is_read():
    """Another value of each option of slimming inside changes parameters, features or gradients."""
    other = {
        "schedule": ((0.5, 0.3),), "sources": ("own",), "leftover": "regions", "regions": (1, 3),
        "soft_keys": True, "beta": 0.1, "similarity": "dot", "normalise": "none", "combine": "sum",
        "own": "mean", "merge": "none", "merge_ratio": 1.0, "estimator": "gumbel", "tau": 0.3,
        "decision_in_merge": False, "similarity_gradient": False, "selection_gradient": False,
        "keep_warmup_epochs": 4, "keep_warmup_shape": "cosine", "centre": True, "tau_final": 0.2,
        "noise": False, "weigh_kept": True, "redundancy": 2.0,
    }  # fmt: skip
    base_of = {
        "redundancy": {"leftover": "nearest", "sources": ("own",)},
        "regions": {"leftover": "regions"},
        "soft_keys": {"estimator": "soft_topk"},
        "tau": {"estimator": "soft_topk"},
        "tau_final": {"estimator": "soft_topk"},
        "noise": {"estimator": "gumbel"},
        "weigh_kept": {"estimator": "soft_topk"},
        "decision_in_merge": {"estimator": "soft_topk", "soft_keys": True},
        "selection_gradient": {"sources": ("own",)},
        "keep_warmup_shape": {"keep_warmup_epochs": 4},
        "merge_ratio": {"schedule": ((0.5, 0.5),)},
    }
    only_after = {
        "where", "keep_ratio", "learned", "branch_guides", "branch_scorers", "zero_leftover", "selection",
        "ratio_loss", "ratio_weight", "ratio_target", "ratio_lambdas",
    }  # fmt: skip
    assert set(other) | only_after == {field.name for field in dataclasses.fields(SlimmingOptions)}

    def trace(**changes):
        model = slimmed_inside(depth=3, **changes).train()
        model.set_epoch(1, 2)
        out = model(images(2), generator=torch.Generator().manual_seed(0))
        sum(logits.square().sum() for logits in out.logits.values()).backward()
        values = [*out.features.values(), *(p.grad for p in model.parameters())]
        return [None if v is None else float(v.detach().double().square().sum()) for v in values]

    for name, value in other.items():
        base = base_of.get(name, {})
        assert trace(**base) != trace(**{**base, name: value}), name


def test_shares_shrink_while_training_and_never_in_test():
    model = slimmed_inside(keep_warmup_epochs=4, schedule=((0.25, 0.5), (0.5, 0.25)))
    lengths = []
    for block in model.backbone.blocks:
        block.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))

    def tokens(epoch):
        model.set_epoch(epoch)
        lengths.clear()
        model(images(2))
        return list(lengths)

    model.train()
    assert tokens(0) == [1 + N] * 4, "nothing is dropped in the first epoch, so there is no leftover"
    assert tokens(2) == [13, 1 + 9 + 1, 1 + 8 + 1, 1 + 8 + 1], "shares 0.75 and 0.625"
    assert tokens(4) == tokens(40) == [13, 8, 5, 5]
    model.set_epoch(0)
    model.eval()
    assert tokens(0) == [13, 8, 5, 5]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_finite(dtype):
    gumbel = {"estimator": "gumbel", "soft_keys": True}
    joined = {"leftover": "nearest", "redundancy": 1.0}
    for options in ({}, {**gumbel, "leftover": "regions"}, {**gumbel, **joined}):
        model = slimmed_inside(sources=("learned", "own", "others", "attention"), **options).train()
        with torch.autocast("cpu", dtype):
            out = model(images(4))
        sum(logits.float().square().sum() for logits in out.logits.values()).backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_checkpointing_gives_the_same_gradients():
    found = []
    for on in (False, True):
        model = slimmed_inside(
            estimator="soft_topk", soft_keys=True, sources=("learned", "attention")
        ).train()
        model.backbone.config = dataclasses.replace(model.backbone.config, checkpointing=on)
        out = model(images(4))
        sum(logits.square().sum() for logits in out.logits.values()).backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)
