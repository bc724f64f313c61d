from __future__ import annotations

import dataclasses

import pytest
import torch
from slimming_cases import perturb, streams

from reference import slimming as reference
from slimreid.errors import ConfigError, ModelError
from slimreid.slimming import PRESETS, PatchSlimmer, SlimmingOptions, slimming_options


def inputs(B=2, N=10, C=16, seed=0, guides=2, **kwargs):
    patches, vectors = streams(B, guides + 1, N, C, seed, **kwargs)
    return patches[:, 0].contiguous(), vectors[:, 0], vectors[:, 1:]


def test_one_stream_equals_the_loop_with_an_absent_guide():
    slimmer = PatchSlimmer(16, num_patches=10).eval()
    perturb(slimmer)
    patches, own, guides = inputs()
    present = torch.tensor([[True, True], [False, True]])
    guides = guides.masked_fill(~present[..., None], torch.nan)  # an absent guide may hold anything
    slimmed = slimmer(patches, own, guides, present, names=["a", "b"])
    for b in range(2):
        there = [guides[b, g] for g in range(2) if present[b, g]]
        merged, kept, chosen, leftover = reference.slim_stream(
            patches[b],
            own[b],
            there,
            predictor=slimmer.scorers[0].mlp,
            network=slimmer.merger.weight,
            scale=slimmer.merger.scale.item(),
        )
        assert slimmed.selection.index[b].tolist() == kept
        torch.testing.assert_close(slimmed.selection.kept[b], torch.tensor(chosen))
        torch.testing.assert_close(slimmed.tokens[b], torch.tensor([*merged, leftover]))
    assert set(slimmed.selection.scores) == {"learned", "own", "a", "b"}
    assert slimmed.tokens.shape == (2, 2 + 1, 16)


def test_seps_paper_equals_the_loop():
    slimmer = PatchSlimmer(16, "seps_paper", num_patches=10).train()
    perturb(slimmer)
    patches, own, guides = inputs()
    slimmed = slimmer(patches, own, guides)
    for b in range(2):
        parts = [
            reference.slim_stream(
                patches[b],
                own[b],
                [guides[b, branch]],
                predictor=slimmer.scorers[0].mlp,
                network=slimmer.merger.weights[branch],
                scale=slimmer.merger.scale.item(),
                similarity="dot",
            )
            for branch in range(2)
        ]
        for selection, (_, kept, _, _) in zip(slimmed.selections, parts, strict=True):
            assert selection.index[b].tolist() == kept
        merged = torch.tensor(parts[0][0]) + torch.tensor(parts[1][0])
        leftover = (torch.tensor(parts[0][3]) + torch.tensor(parts[1][3])) / 2
        torch.testing.assert_close(slimmed.tokens[b], torch.cat([merged, leftover[None]]))
    assert slimmed.ratio_loss.item() == pytest.approx((0.5 - 0.5 - 0.5) ** 2)
    assert slimmed.selection.decision.requires_grad  # Gumbel is on while training
    assert not slimmer.eval()(patches, own, guides).selection.decision.requires_grad


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("estimator", ["topk", "gumbel", "soft_topk"])
def test_presets_are_finite_forward_and_backward(name, dtype, estimator):
    slimmer = PatchSlimmer(16, name, num_patches=10, estimator=estimator).to(dtype).train()
    patches, own, guides = inputs(dtype=dtype)
    leaves = [t.requires_grad_() for t in (patches, own, guides)]
    slimmed = slimmer(*leaves)
    assert slimmed.tokens.dtype == dtype
    (slimmed.tokens.float().square().sum() + (slimmed.ratio_loss or 0)).backward()
    gradients = [t.grad for t in (*leaves, *slimmer.parameters()) if t.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert slimmed.tokens.isfinite().all()


def test_gradients_that_a_preset_stops():
    for name, reaches_patches, reaches_guides in (
        ("sdtps", True, True),
        ("demo_sdtps", True, False),
        ("seps_paper_code", True, False),
        ("seps_released", False, False),
    ):
        slimmer = PatchSlimmer(16, name, num_patches=10)
        patches, own, guides = (t.requires_grad_() for t in inputs())
        slimmer(patches, own, guides).tokens.square().sum().backward()
        assert (patches.grad is not None) == reaches_patches, name
        assert (guides.grad is not None) == reaches_guides, name
        assert all(p.grad is not None for p in slimmer.merger.parameters())


def test_decision_reaches_the_merge_only_where_the_preset_says():
    for name, reaches in (
        ("sdtps", True),
        ("demo_sdtps", True),
        ("seps_paper", True),
        ("seps_paper_code", False),
    ):
        slimmer = PatchSlimmer(16, name, num_patches=10, estimator="soft_topk").train()
        patches, own, guides = inputs()
        slimmed = slimmer(patches, own, guides)
        merged = slimmed.tokens[:, :-1].square().sum()
        gradient = torch.autograd.grad(merged, slimmer.scorers[0].mlp[0].weight, allow_unused=True)[0]
        assert (gradient is not None and gradient.abs().sum() > 0) == reaches, name


def test_without_merge_the_kept_patches_stay():
    slimmer = PatchSlimmer(16, merge="none", keep_ratio=0.6)
    patches, own, guides = inputs(N=128)
    slimmed = slimmer(patches, own, guides)
    assert slimmed.tokens.shape == (2, 77 + 1, 16)
    assert torch.equal(slimmed.tokens[:, :-1], slimmed.selection.kept)
    assert slimmed.weights == ()


def test_nothing_dropped():
    patches, own, guides = inputs()
    slimmed = PatchSlimmer(16, num_patches=10, keep_ratio=1.0)(patches, own, guides)
    assert slimmed.tokens.shape == (2, 4, 16)
    assert slimmed.selection.leftover is None
    old = PatchSlimmer(16, "demo_sdtps", num_patches=10, keep_ratio=1.0)(patches, own, guides)
    assert old.tokens.shape == (2, 5, 16)
    assert (old.tokens[:, -1] == 0).all()
    dual = PatchSlimmer(16, "seps_paper_code", num_patches=10, keep_ratio=1.0)(patches, None, guides)
    assert dual.tokens.shape == (2, 4, 16)


@pytest.mark.parametrize("estimator", ["topk", "gumbel", "soft_topk"])
@pytest.mark.parametrize("N", [1, 2, 7, 33])
def test_the_number_of_patches_may_change_at_run_time(N, estimator):
    slimmer = PatchSlimmer(16, num_patches=10, estimator=estimator).train()
    patches, own, guides = inputs(N=N)
    slimmed = slimmer(patches.requires_grad_(), own, guides)
    slimmed.tokens.sum().backward()
    assert slimmed.selection.index.shape[1] == -(-N // 2)
    assert slimmed.tokens.shape[1] == 2 + (N > 1)
    assert patches.grad.isfinite().all()


def test_constant_patches_empty_batch_and_strides():
    slimmer = PatchSlimmer(16, num_patches=10, estimator="gumbel").train()
    patches = torch.ones(2, 10, 16, requires_grad=True)
    slimmed = slimmer(patches, torch.ones(2, 16), torch.ones(2, 2, 16))
    slimmed.tokens.square().sum().backward()
    assert slimmed.selection.index.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert patches.grad.isfinite().all()

    empty = slimmer(*inputs(B=0))
    assert empty.tokens.shape == (0, 3, 16)
    with_loss = PatchSlimmer(16, num_patches=10, ratio_loss="paper")
    assert with_loss(*inputs(B=0)).ratio_loss == 0

    patches, own, guides = inputs()
    turned = patches.transpose(1, 2).contiguous().transpose(1, 2)
    assert not turned.is_contiguous()
    slimmer.eval()
    torch.testing.assert_close(slimmer(turned, own, guides).tokens, slimmer(patches, own, guides).tokens)


def test_mean_of_patches_as_own_guide():
    slimmer = PatchSlimmer(16, num_patches=10, own="mean").eval()
    patches, own, guides = inputs()
    given = PatchSlimmer(16, num_patches=10).eval()
    given.load_state_dict(slimmer.state_dict())
    assert torch.equal(slimmer(patches, own, guides).tokens, given(patches, patches.mean(1), guides).tokens)


def test_ratio_loss_of_a_slimmer():
    patches, own, guides = inputs()
    for form, weight, target in (("paper", 1.0, None), ("released", 2.0, 0.3)):
        slimmer = PatchSlimmer(
            16, num_patches=10, keep_ratio=0.7, ratio_loss=form, ratio_weight=weight, ratio_target=target
        )
        expected = weight * (0.7 - (0.7 if target is None else target)) ** 2
        assert slimmer(patches, own, guides).ratio_loss.item() == pytest.approx(expected, abs=1e-6)
    dual = PatchSlimmer(16, "seps_paper", num_patches=10, ratio_lambdas=(0.5, 0.25))
    assert dual(patches, own, guides).ratio_loss.item() == pytest.approx((0.5 - 0.25 - 0.125) ** 2)
    assert PatchSlimmer(16, num_patches=10)(patches, own, guides).ratio_loss is None


def test_every_option_is_read():
    """Another value of each option changes the parameters, the tokens, the gradients or the loss."""
    other = {
        "keep_ratio": 0.7, "merge_ratio": 0.9, "beta": 0.1, "learned": False, "similarity": "dot",
        "normalise": "none", "combine": "sum", "own": "mean", "merge": "none", "branch_guides": "one",
        "branch_scorers": "shared", "estimator": "soft_topk", "tau": 0.3, "decision_in_merge": False,
        "similarity_gradient": False, "selection_gradient": False, "zero_leftover": True,
        "ratio_loss": "paper", "ratio_weight": 3.0, "ratio_target": 0.1, "ratio_lambdas": (0.2, 0.3),
        "sources": ("own", "contrast"), "centre": True, "tau_final": 0.2, "noise": False, "selection": "soft",
        "weigh_kept": True,
    }  # fmt: skip
    base_of = {
        "branch_guides": {"merge": "dual"},
        "branch_scorers": {"merge": "dual"},
        "tau": {"estimator": "soft_topk"},
        "decision_in_merge": {"estimator": "soft_topk"},
        "tau_final": {"estimator": "soft_topk"},
        "noise": {"estimator": "gumbel"},
        "selection": {"estimator": "soft_topk"},
        "weigh_kept": {"estimator": "soft_topk"},
        "zero_leftover": {"keep_ratio": 1.0},
        "ratio_weight": {"ratio_loss": "released", "ratio_target": 0.2},
        "ratio_target": {"ratio_loss": "paper"},
        "ratio_lambdas": {"ratio_loss": "paper"},
    }
    inside = {
        "where", "schedule", "leftover", "redundancy", "regions", "soft_keys",
        "keep_warmup_epochs", "keep_warmup_shape",
    }  # fmt: skip
    assert set(other) | inside == {field.name for field in dataclasses.fields(SlimmingOptions)}

    def trace(**changes):
        torch.manual_seed(0)
        slimmer = PatchSlimmer(16, num_patches=10, **changes).train()
        slimmer.set_progress(1.0)
        patches, own, guides = (t.requires_grad_() for t in inputs())
        slimmed = slimmer(patches, own, guides)
        slimmed.tokens.square().sum().backward()
        gradients = [t.grad for t in (patches, guides, *slimmer.parameters())]
        values = [slimmed.tokens, slimmed.ratio_loss, *gradients]
        return [None if v is None else v.tolist() for v in values]

    for name, value in other.items():
        base = base_of.get(name, {})
        assert trace(**base) != trace(**{**base, name: value}), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keep_ratio": 0.0}, "keep_ratio"),
        ({"merge_ratio": 1.5}, "merge_ratio"),
        ({"beta": 0.6}, "beta"),
        ({"tau": 0.0}, "tau"),
        ({"ratio_target": -1.0}, "ratio_target"),
        ({"estimator": "gumble"}, "did you mean 'gumbel'"),
        ({"merge": "none", "estimator": "gumbel"}, "no effect"),
        ({"keep_ration": 0.5}, "did you mean 'keep_ratio'"),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        slimming_options(**changes)


def test_what_is_missing_is_named():
    with pytest.raises(ConfigError, match="did you mean 'seps_paper'"):
        PatchSlimmer(16, "seps_papr", num_patches=10)
    with pytest.raises(ConfigError, match="num_patches or merged_tokens"):
        PatchSlimmer(16)
    with pytest.raises(ConfigError, match="between the blocks of a backbone"):
        PatchSlimmer(16, num_patches=10, where="inside")
    with pytest.raises(ConfigError, match="merged_tokens"):
        PatchSlimmer(16, merged_tokens=0)
    patches, own, guides = inputs()
    slimmer = PatchSlimmer(16, merged_tokens=4)
    with pytest.raises(ModelError, match="own global"):
        slimmer(patches, None, guides)
    with pytest.raises(ModelError, match=r"\(B, N, C\)"):
        slimmer(patches[0], own, guides)
    with pytest.raises(ModelError, match="presence"):
        slimmer(patches, own, guides, torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(ModelError, match="2 guides"):
        PatchSlimmer(16, "seps_paper", num_patches=10)(patches, own, guides[:, :1])
    assert slimmer(patches, own).tokens.shape == (2, 5, 16)


def test_no_patches_and_integer_presence_are_refused():
    slimmer = PatchSlimmer(8, num_patches=4)
    with pytest.raises(ModelError, match="N ≥ 1"):
        slimmer(torch.zeros(2, 0, 8), torch.zeros(2, 8))
    patches, own, guides = torch.randn(2, 4, 8), torch.randn(2, 8), torch.randn(2, 3, 8)
    for present in (torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 2, dtype=torch.bool)):
        with pytest.raises(ModelError, match=r"presence of 3 guides must be bool \(2, 3\)"):
            slimmer(patches, own, guides, present)
    with pytest.raises(ConfigError, match="tau: inf"):
        PatchSlimmer(8, num_patches=4, tau=float("inf"))
