"""What a score is made of after the backbone: every term against plain loops, whatever is present."""

from __future__ import annotations

import pytest
import torch

from reference import token_reduction as reference
from slimreid.config.token_reduction import AfterBackboneConfig
from slimreid.errors import ConfigError, ModelError
from slimreid.token_reduction import AfterBackboneReducer
from slimreid.token_reduction.score import random_scores
from support.reduction import COSINE, NAMES, make_reducer, streams

PRESENT = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
TERMS = (
    COSINE,
    ("self", "contrast"),
    ("learned", "cross_contrast"),
    ("attention", "cross"),
    ("learned", "self", "cross", "attention", "contrast", "cross_contrast"),
)


def module_of(modules, name):
    return (modules["shared"] if "shared" in modules else modules[name]) if modules else None


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("terms", TERMS, ids="+".join)
def test_scores_equal_the_loops_for_any_presence(terms, shared):
    reducer = make_reducer(terms=terms, shared=shared).double()
    patches, vectors = streams(B=len(PRESENT), dtype=torch.float64)
    attention = torch.rand(len(PRESENT), 3, 10, dtype=torch.float64)
    with torch.no_grad():
        reduced = reducer(patches, vectors, PRESENT, attention=attention)
    for b in range(len(PRESENT)):
        there = [m for m in range(3) if PRESENT[b, m]]
        for m in there:
            scorer = module_of(reducer.scorers, NAMES[m])
            expected = reference.score_of(
                NAMES[m],
                {NAMES[o]: patches[b, o].tolist() for o in there},
                {NAMES[o]: vectors[b, o].tolist() for o in there},
                terms,
                predictor=None if scorer is None else scorer.mlp,
                attention=attention[b, m].tolist(),
            )
            assert reduced.selection.score[b, m].tolist() == pytest.approx(expected, abs=1e-9)
            assert reduced.selection.index[b, m].tolist() == reference.top(expected, 0.5)


def test_a_modality_that_no_sample_has_leaves_no_parameter_without_a_gradient():
    reducer = make_reducer(terms=("learned", "self", "cross_contrast")).double()
    patches, vectors = streams(dtype=torch.float64)
    present = torch.tensor([[True, True, False]]).repeat(3, 1)
    reducer(patches, vectors, present).tokens.square().sum().backward()
    grads = {name: [p.grad for p in reducer.scorers[name].parameters()] for name in NAMES}
    assert all(g is not None and (g == 0).all() for g in grads["tir"])
    assert all(any((g != 0).any() for g in grads[name]) for name in ("rgb", "nir"))


def test_random_choice_is_fixed_in_test_and_drawn_while_training():
    reducer = make_reducer(terms=("random",)).double()
    patches, vectors = streams(dtype=torch.float64)
    score = reducer(patches, vectors).selection.score
    every = torch.arange(10).expand(3, 10)
    for m in range(3):
        assert torch.equal(
            score[:, m].float(), random_scores(every, torch.full((3,), m), 0, training=False).total
        )
    reducer.train()
    draws = [
        reducer(patches, vectors, generator=torch.Generator().manual_seed(s)).selection.score
        for s in (0, 0, 1)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not list(reducer.scorers.parameters())


@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_beta_weighs_the_learned_score_against_the_others(beta):
    reducer = make_reducer(beta=beta)
    patches, vectors = streams()
    selection = reducer(patches, vectors).selection
    for m, name in enumerate(NAMES):
        scores = {term: values[:, m] for term, values in selection.scores.items()}
        crossed = sum(scores[other] for other in NAMES if other != name) / 2
        assert (scores[name] == 0).all(), "no guide of its own"
        expected = (1 - 2 * beta) * scores["learned"] + 2 * beta * (scores["self"] + crossed)
        torch.testing.assert_close(selection.score[:, m], expected)


def test_gradients_through_terms_without_parameters_can_be_cut():
    for terms in (COSINE, ("learned", "contrast", "cross_contrast")):
        found = []
        for gradient in (True, False):
            reducer = make_reducer(terms=terms, score_gradient=gradient)
            patches, vectors = (t.requires_grad_() for t in streams())
            reducer(patches, vectors).selection.score.square().sum().backward()
            found.append(patches.grad.clone())
            assert (vectors.grad is not None) == (gradient and terms == COSINE)
        assert not torch.equal(*found), "what is left goes through the learned score"
        assert found[1].abs().sum() > 0


@pytest.mark.parametrize(
    ("names", "terms", "message"),
    [
        (NAMES, ("lerned",), "did you mean 'learned'"),
        (NAMES, (), "one or more different"),
        (NAMES, ("self", "self"), "different"),
        (NAMES, ("random", "self"), "'random' stands alone"),
        (("rgb",), ("cross", "cross_contrast"), "second modality"),
    ],
)
def test_terms_that_make_no_score_are_refused(names, terms, message):
    with pytest.raises(ConfigError, match=message):
        AfterBackboneReducer(16, names, AfterBackboneConfig(score_terms=terms), num_patches=10)


def test_attention_must_be_given_where_it_is_a_term():
    with pytest.raises(ModelError, match="'attention' needs values"):
        make_reducer(terms=("attention",))(*streams())
