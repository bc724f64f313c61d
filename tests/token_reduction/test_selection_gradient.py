"""Ways of learning the selection: noise and temperature, soft weights over all patches, a gate."""

from __future__ import annotations

import math

import pytest
import torch

from reference import token_reduction as reference
from slimreid.backbones.vit import ViT
from slimreid.config.backbones import vit_config
from slimreid.config.model import ReIDOptions
from slimreid.config.token_reduction import AfterBackboneConfig
from slimreid.errors import ConfigError
from slimreid.models.reid_model import ReIDModel
from slimreid.token_reduction import AfterBackboneReducer
from slimreid.token_reduction.estimators import Estimator, annealed, decide, gumbel_softmax
from slimreid.token_reduction.select import keep_top_patches, stable_top
from support.reduction import NAMES, make_reducer, streams

N, K = 10, 5


def make(**options) -> AfterBackboneReducer:
    return make_reducer(**options).double().train()


def inputs(dtype=torch.float64):
    return streams(dtype=dtype)


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
        way = Estimator(estimator, 0.5, noise)
        torch.manual_seed(0)
        decision = decide(scores, index, way)
        assert set(decision.unique().tolist()) == {0.0, 1.0}
        torch.manual_seed(0)
        mask = way.soft_mask(scores, K)
        expected = torch.autograd.grad((mask * weights).sum(), scores)[0]
        assert torch.equal(torch.autograd.grad((decision * weights).sum(), scores)[0], expected)


def test_temperature_falls_in_equal_ratios_and_reaches_the_end_in_the_last_epoch():
    assert [annealed(8.0, 0.5, p) for p in (-1, 0, 0.25, 0.5, 1, 2)] == pytest.approx([8, 8, 4, 2, 0.5, 0.5])
    options = ReIDOptions(after_backbone=AfterBackboneConfig(estimator="gumbel", tau=8.0, tau_final=0.5))
    model = ReIDModel(ViT(vit_config("nano"), (32, 16)), ("rgb", "nir"), 3, options)
    tau = model.after_backbone.tau
    assert float(tau.value) == 8.0
    found = []
    for epoch in range(5):
        model.set_epoch(epoch, 5)
        found.append(float(tau.value))
    assert found == pytest.approx([8, 4, 2, 1, 0.5])
    model.set_epoch(0, 1)
    assert float(tau.value) == 0.5, "the only epoch is the last"
    assert not [name for name in model.state_dict() if "tau" in name]


@pytest.mark.parametrize("estimator", ["gumbel", "soft_topk"])
def test_an_annealed_temperature_has_the_gradients_of_that_temperature(estimator):
    grads = []
    for options in ({"tau": 0.5}, {"tau": 2.0, "tau_final": 0.5}):
        reducer = make(estimator=estimator, **options)
        reducer.set_progress(1.0)
        reduced = reducer(*inputs(), generator=torch.Generator().manual_seed(0))
        reduced.tokens.square().sum().backward()
        grads.append([p.grad for p in reducer.parameters()])
    torch.testing.assert_close(grads[0], grads[1])


def weighed_by_loops(merger, rows, scores, mask):
    """Soft weights over all patches of one row: merged tokens and the leftover."""
    network, scale = merger.weight, merger.scale.item()
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
    return [*tokens, reference.weighted_sum(left, rows)]


@pytest.mark.parametrize("estimator", ["gumbel", "soft_topk"])
def test_soft_weights_over_all_patches_equal_the_loops(estimator):
    reducer = make(estimator=estimator, tau=0.4, noise=estimator != "gumbel", selection="soft")
    patches, vectors = inputs()
    reduced = reducer(patches, vectors)
    assert reduced.tokens.shape == (3, 3, 3, 16), "as many tokens as in test"
    for b in range(3):
        for m, name in enumerate(NAMES):
            scores = reduced.selection.score[b, m].tolist()
            if estimator == "gumbel":
                mask = reference.softmax([s / 0.4 for s in scores])
            else:
                mask = reference.soft_topk(scores, K, 0.4)
            tokens = weighed_by_loops(reducer.mergers[name], patches[b, m].tolist(), scores, mask)
            torch.testing.assert_close(reduced.tokens[b, m], torch.tensor(tokens, dtype=torch.float64))


def test_soft_weights_are_the_hard_choice_in_test_and_in_the_limit():
    reducer, hard = make(estimator="soft_topk", selection="soft", tau=1e-4), make(estimator="soft_topk")
    assert torch.equal(reducer.eval()(*inputs()).tokens, hard.eval()(*inputs()).tokens)
    reduced, expected = reducer.train()(*inputs()), hard.train()(*inputs())
    torch.testing.assert_close(reduced.tokens, expected.tokens, atol=1e-3, rtol=1e-3)
    everything = make(estimator="soft_topk", selection="soft", keep_ratio=1.0)
    assert everything(*inputs()).selection.leftover is None, "nothing to choose"


@pytest.mark.parametrize("tau", [1e-3, 0.05, 1.0, 100.0])
@pytest.mark.parametrize("estimator", ["gumbel", "soft_topk"])
def test_soft_weights_are_finite_at_any_temperature(estimator, tau):
    reducer = make(estimator=estimator, selection="soft", tau=tau).float()
    reducer(*inputs(torch.float32)).tokens.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in reducer.parameters())


def test_tokens_times_the_decision_change_nothing_but_the_gradient():
    patches = inputs()[0][:, 0]
    score = torch.rand(3, N, dtype=torch.float64).requires_grad_()
    estimator = Estimator("soft_topk", 0.3)
    plain = keep_top_patches(patches, score, 0.5, estimator=estimator)
    weighed = keep_top_patches(patches, score, 0.5, estimator=estimator, gate=True)
    assert torch.equal(plain.kept, weighed.kept)
    toward = torch.rand(3, K, 16, dtype=torch.float64)
    assert (torch.autograd.grad((plain.kept * toward).sum(), score, retain_graph=True)[0] == 0).all()
    found = torch.autograd.grad((weighed.kept * toward).sum(), score)[0]
    mask = estimator.soft_mask(score, K)
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
        "binary_concrete": {"estimator": "binary_concrete"},
        "binary_concrete, no noise": {"estimator": "binary_concrete", "noise": False},
        "gate": {
            "estimator": "soft_topk",
            "tau": 0.2,
            "straight_through_gate": True,
            "decision_in_merge": False,
        },
    }
    norms = {}
    for name, options in arms.items():
        reducer = make(**options)
        reducer(*inputs(), generator=torch.Generator().manual_seed(0)).tokens.square().mean().backward()
        norms[name] = float(torch.nn.utils.get_total_norm([p.grad for p in reducer.scorers.parameters()]))
    assert all(0.1 * norms["topk"] < norm < 100 * norms["topk"] for norm in norms.values()), norms


def test_a_gate_is_enough_for_an_estimator_without_a_merge():
    reducer = make(estimator="soft_topk", merge="none", straight_through_gate=True)
    reduced = reducer(*inputs())
    (reduced.tokens[:, :, :-1] * torch.rand(3, 3, K, 16)).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in reducer.scorers.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keep_ratio": 0.0}, r"model\.after_backbone\.keep_ratio: 0.0 is not in \(0, 1\]"),
        ({"merge_ratio": 1.5}, "merge_ratio"),
        ({"beta": 0.6}, "beta"),
        ({"tau": 0.0}, "tau: 0.0 is not"),
        ({"estimator": "gumbel", "tau": float("inf")}, "tau: inf"),
        ({"estimator": "gumble"}, "did you mean 'gumbel'"),
        ({"tau_final": 0.1}, "tau_final: estimator 'topk' does not use it"),
        ({"estimator": "gumbel", "tau_final": 0.0}, "tau_final: 0.0 is not"),
        ({"straight_through_gate": True}, "straight_through_gate: estimator 'topk'"),
        ({"selection": "soft"}, "selection: estimator 'topk'"),
        ({"selection": "soft", "estimator": "binary_concrete"}, "use gumbel or soft_topk"),
        ({"selection": "sofd", "estimator": "gumbel"}, "did you mean 'soft'"),
        ({"noise": False}, "noise: estimator 'topk' does not use it"),
        ({"noise": False, "estimator": "soft_topk"}, "use gumbel or binary_concrete"),
        (
            {"selection": "soft", "estimator": "gumbel", "decision_in_merge": False},
            "weighs patches in the merge",
        ),
        ({"selection": "soft", "estimator": "gumbel", "straight_through_gate": True}, "weighs patches in"),
        ({"estimator": "gumbel", "merge": "none"}, "reaches nothing"),
        ({"ratio_loss_weight": 1.0}, "ratio_loss_weight: estimator 'topk' keeps a fixed number of patches"),
        ({"ratio_loss_weight": 1.0, "estimator": "soft_topk"}, "keeps a fixed number of patches"),
        ({"ratio_loss_weight": -1.0, "estimator": "binary_concrete"}, "is not in"),
        ({"max_keep_ratio": 0.8}, "max_keep_ratio: estimator 'topk'"),
        ({"max_keep_ratio": 0.3, "estimator": "binary_concrete"}, "below keep_ratio"),
    ],
)
def test_ways_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        AfterBackboneConfig(**changes)


def test_a_falling_temperature_is_compiled_once():
    torch._dynamo.reset()
    counts = []

    def backend(graph, _):
        counts.append(1)
        return graph.forward

    torch.manual_seed(0)
    options = {"estimator": "gumbel", "noise": False, "tau": 2.0, "tau_final": 0.1}
    terms = ("learned", "self", "cross_contrast")
    reducer = make_reducer(("rgb", "nir"), terms=terms, **options).train()
    patches, vectors = streams(M=2)
    expected = []
    for progress in (0.0, 0.5, 1.0):
        reducer.set_progress(progress)
        expected.append(reducer(patches, vectors).tokens)
    reducer.compile(backend=backend, fullgraph=True)
    for progress, tokens in zip((0.0, 0.5, 1.0), expected, strict=True):
        reducer.set_progress(progress)
        torch.testing.assert_close(reducer(patches, vectors).tokens, tokens)
    assert len(counts) == 1
