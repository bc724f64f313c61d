"""Ways of learning the choice: noise and temperature, soft weights over all patches, tokens times D."""

from __future__ import annotations

import math

import pytest
import torch
from slimming_cases import perturb, streams

from reference import slimming as reference
from slimreid.errors import ConfigError
from slimreid.models.reid_model import ReIDModel
from slimreid.models.sizes import vit_config
from slimreid.models.vit import ViT
from slimreid.slimming import (
    MultiModalSlimmer,
    PatchSlimmer,
    SlimmingOptions,
    annealed,
    decide,
    gumbel_softmax,
    keep_top_patches,
    soft_mask,
    stable_top,
)

N, K = 10, 5


def inputs(dtype=torch.float64):
    patches, vectors = streams(dtype=dtype)
    return patches[:, 0], vectors[:, 0], vectors[:, 1:]


def make(**options) -> PatchSlimmer:
    torch.manual_seed(0)
    slimmer = PatchSlimmer(16, num_patches=N, **options).double().train()
    perturb(slimmer)
    return slimmer


def test_without_noise_the_soft_mask_is_a_softmax():
    scores = torch.rand(4, N, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    state = generator.get_state()
    mask = gumbel_softmax(scores, 0.3, generator, noise=False)
    for b in range(4):
        assert mask[b].tolist() == pytest.approx(reference.softmax([s / 0.3 for s in scores[b].tolist()]))
    assert torch.equal(generator.get_state(), state), "nothing was drawn"
    assert not torch.equal(mask, gumbel_softmax(scores, 0.3, generator))


def test_decisions_of_all_ways_are_hard_and_have_the_gradient_of_their_mask():
    scores = torch.rand(3, N, dtype=torch.float64).requires_grad_()
    index = stable_top(scores, K)
    weights = torch.rand(3, N, dtype=torch.float64)
    for estimator, noise in (("gumbel", True), ("gumbel", False), ("soft_topk", True)):
        options = {"noise": noise, "generator": None}
        torch.manual_seed(0)
        decision = decide(scores, index, estimator=estimator, tau=0.5, training=True, **options)
        assert set(decision.unique().tolist()) == {0.0, 1.0}
        torch.manual_seed(0)
        mask = soft_mask(scores, K, estimator, 0.5, **options)
        expected = torch.autograd.grad((mask * weights).sum(), scores)[0]
        assert torch.equal(torch.autograd.grad((decision * weights).sum(), scores)[0], expected)


def test_temperature_falls_in_equal_ratios_and_reaches_the_end_in_the_last_epoch():
    assert [annealed(8.0, 0.5, p) for p in (-1, 0, 0.25, 0.5, 1, 2)] == pytest.approx([8, 8, 4, 2, 0.5, 0.5])
    config = vit_config("nano")
    for where in ("after", "inside"):
        options = SlimmingOptions(where=where, estimator="gumbel", tau=8.0, tau_final=0.5)
        model = ReIDModel(ViT(config, (32, 16)), ("rgb", "nir"), 3, slimming=options)
        slimmer = model.slimmer or model.inside
        assert float(slimmer.tau.value) == 8.0
        found = []
        for epoch in range(5):
            model.set_epoch(epoch, 5)
            found.append(float(slimmer.tau.value))
        assert found == pytest.approx([8, 4, 2, 1, 0.5])
        model.set_epoch(0, 1)
        assert float(slimmer.tau.value) == 0.5, "the only epoch is the last"
        assert not [name for name in model.state_dict() if "tau" in name]


@pytest.mark.parametrize("estimator", ["gumbel", "soft_topk"])
def test_an_annealed_temperature_has_the_gradients_of_that_temperature(estimator):
    grads = []
    for options in ({"tau": 0.5}, {"tau": 2.0, "tau_final": 0.5}):
        slimmer = make(estimator=estimator, **options)
        slimmer.set_progress(1.0)
        slimmed = slimmer(*inputs(), generator=torch.Generator().manual_seed(0))
        slimmed.tokens.square().sum().backward()
        grads.append([p.grad for p in slimmer.parameters()])
    torch.testing.assert_close(grads[0], grads[1])


def soft_slimmed_by_loops(slimmer, patches, own, guides, mask):
    """Soft weights over all patches, one sample: merged tokens and the leftover."""
    rows = patches.tolist()

    def alike(vector):
        return reference.min_max([reference.cosine(v, vector.tolist()) for v in rows])

    learned = [reference.learned_score(slimmer.scorers[0].mlp, v) for v in rows]
    scores = reference.score(learned, alike(own), [alike(g) for g in guides], 0.25)
    network, scale = slimmer.merger.weight, slimmer.merger.scale.item()
    logits = []
    for v in rows:
        hidden = [
            reference.gelu(x) for x in reference.linear(network[1], reference.layer_norm(network[0], v))
        ]
        logits.append(reference.linear(network[3], hidden))
    tokens = [
        reference.weighted_sum(
            reference.softmax([scale * row[t] + math.log(m) for row, m in zip(logits, mask, strict=True)]),
            rows,
        )
        for t in range(len(logits[0]))
    ]
    left = reference.softmax([s + math.log(1 - m) for s, m in zip(scores, mask, strict=True)])
    return scores, [*tokens, reference.weighted_sum(left, rows)]


@pytest.mark.parametrize("estimator", ["gumbel", "soft_topk"])
def test_soft_weights_over_all_patches_equal_the_loops(estimator):
    slimmer = make(estimator=estimator, tau=0.4, noise=estimator != "gumbel", selection="soft")
    patches, own, guides = inputs()
    slimmed = slimmer(patches, own, guides)
    assert slimmed.tokens.shape == (3, 3, 16), "as many tokens as in test"
    for b in range(3):
        scores = slimmed.selection.score[b].tolist()
        if estimator == "gumbel":
            mask = reference.softmax([s / 0.4 for s in scores])
        else:
            mask = reference.soft_topk(scores, K, 0.4)
        expected_scores, tokens = soft_slimmed_by_loops(slimmer, patches[b], own[b], list(guides[b]), mask)
        assert scores == pytest.approx(expected_scores)
        torch.testing.assert_close(slimmed.tokens[b], torch.tensor(tokens, dtype=torch.float64))


def test_soft_weights_are_the_hard_choice_in_test_and_in_the_limit():
    slimmer, hard = make(estimator="soft_topk", selection="soft", tau=1e-4), make(estimator="soft_topk")
    assert torch.equal(slimmer.eval()(*inputs()).tokens, hard.eval()(*inputs()).tokens)
    slimmed, expected = slimmer.train()(*inputs()), hard.train()(*inputs())
    torch.testing.assert_close(slimmed.tokens, expected.tokens, atol=1e-3, rtol=1e-3)
    everything = make(estimator="soft_topk", selection="soft", keep_ratio=1.0)
    assert everything(*inputs()).selection.leftover is None, "nothing to choose"


@pytest.mark.parametrize("tau", [1e-3, 0.05, 1.0, 100.0])
@pytest.mark.parametrize("estimator", ["gumbel", "soft_topk"])
def test_soft_weights_are_finite_at_any_temperature(estimator, tau):
    slimmer = make(estimator=estimator, selection="soft", tau=tau).float()
    patches, own, guides = inputs(torch.float32)
    slimmer(patches, own, guides).tokens.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in slimmer.parameters())


def test_tokens_times_the_decision_change_nothing_but_the_gradient():
    patches, _, _ = inputs()
    score = torch.rand(3, N, dtype=torch.float64).requires_grad_()
    options = {"estimator": "soft_topk", "tau": 0.3, "training": True}
    plain = keep_top_patches(patches, score, 0.5, **options)
    weighed = keep_top_patches(patches, score, 0.5, weigh=True, **options)
    assert torch.equal(plain.kept, weighed.kept)
    toward = torch.rand(3, K, 16, dtype=torch.float64)
    assert (torch.autograd.grad((plain.kept * toward).sum(), score, retain_graph=True)[0] == 0).all()
    found = torch.autograd.grad((weighed.kept * toward).sum(), score)[0]
    mask = soft_mask(score, K, "soft_topk", 0.3)
    for b in range(3):
        # D of a kept patch multiplies it, so its gradient is the product of patch and incoming gradient.
        to_decision = torch.zeros(N, dtype=torch.float64)
        for k, i in enumerate(weighed.index[b].tolist()):
            to_decision[i] = reference.dot(patches[b, i].tolist(), toward[b, k].tolist())
        expected = torch.autograd.grad((mask[b] * to_decision).sum(), score, retain_graph=True)[0][b]
        torch.testing.assert_close(found[b], expected)


def test_gradients_of_all_ways_are_of_natural_size():
    """No way of choosing gives the predictor a gradient far from that of the plain choice."""
    arms = {
        "topk": {},
        "gumbel": {"estimator": "gumbel"},
        "no noise": {"estimator": "gumbel", "noise": False},
        "soft_topk": {"estimator": "soft_topk", "tau": 0.2},
        "soft, gumbel": {"estimator": "gumbel", "selection": "soft", "tau": 0.2},
        "soft, soft_topk": {"estimator": "soft_topk", "selection": "soft", "tau": 0.2},
        "weighed": {"estimator": "soft_topk", "tau": 0.2, "weigh_kept": True, "decision_in_merge": False},
    }
    norms = {}
    for name, options in arms.items():
        slimmer = make(**options)
        slimmer(*inputs(), generator=torch.Generator().manual_seed(0)).tokens.square().mean().backward()
        norms[name] = float(torch.nn.utils.get_total_norm([p.grad for p in slimmer.scorers.parameters()]))
    assert all(0.1 * norms["topk"] < norm < 100 * norms["topk"] for norm in norms.values()), norms


def test_weighing_is_enough_for_an_estimator_without_a_merge():
    slimmer = make(estimator="soft_topk", merge="none", weigh_kept=True)
    slimmed = slimmer(*inputs())
    (slimmed.tokens[:, :-1] * torch.rand(3, K, 16)).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in slimmer.scorers.parameters())


def test_no_selection_is_the_mean_of_all_patches():
    slimmer = make(keep_ratio=1.0, merge="none", sources=("own",))
    patches, own, guides = inputs()
    slimmed = slimmer(patches, own, guides)
    assert slimmed.selection.leftover is None
    torch.testing.assert_close(slimmed.tokens.mean(1), patches.mean(1))
    assert not list(slimmer.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tau_final": 0.1}, "tau_final: has no effect with estimator 'topk'"),
        ({"estimator": "gumbel", "tau_final": 0.0}, "tau_final: 0.0 is not"),
        ({"weigh_kept": True}, "weigh_kept: has no effect"),
        ({"selection": "soft"}, "selection: has no effect"),
        ({"selection": "sofd", "estimator": "gumbel"}, "did you mean 'soft'"),
        ({"noise": False}, "only 'gumbel' has any"),
        ({"noise": False, "estimator": "soft_topk"}, "only 'gumbel' has any"),
        ({"selection": "soft", "estimator": "gumbel", "where": "inside"}, "for where 'after'"),
        (
            {"selection": "soft", "estimator": "gumbel", "decision_in_merge": False},
            "weighs patches in a merge",
        ),
        ({"selection": "soft", "estimator": "gumbel", "weigh_kept": True}, "weighs patches in a merge"),
        ({"selection": "soft", "estimator": "gumbel", "ratio_loss": "paper"}, "ratio_loss"),
        ({"estimator": "gumbel", "merge": "none"}, "weigh_kept"),
    ],
)
def test_ways_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        SlimmingOptions(**changes)


def test_a_falling_temperature_is_compiled_once():
    torch._dynamo.reset()
    counts = []

    def backend(graph, _):
        counts.append(1)
        return graph.forward

    torch.manual_seed(0)
    options = {"estimator": "gumbel", "noise": False, "tau": 2.0, "tau_final": 0.1}
    sources = ("learned", "own", "others_contrast")
    slimmer = MultiModalSlimmer(16, ("rgb", "nir"), num_patches=N, sources=sources, **options).train()
    patches, vectors = streams(M=2)
    expected = []
    for progress in (0.0, 0.5, 1.0):
        slimmer.set_progress(progress)
        expected.append(slimmer(patches, vectors).tokens)
    slimmer.compile(backend=backend, fullgraph=True)
    for progress, tokens in zip((0.0, 0.5, 1.0), expected, strict=True):
        slimmer.set_progress(progress)
        torch.testing.assert_close(slimmer(patches, vectors).tokens, tokens)
    assert len(counts) == 1
