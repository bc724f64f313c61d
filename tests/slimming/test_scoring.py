from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import slimming as reference
from slimreid.errors import ConfigError, ModelError
from slimreid.slimming import PatchScorer, min_max, score_patches, similarities


def test_learned_score_equals_the_loop():
    scorer = PatchScorer(12)
    patches = torch.randn(2, 5, 12)
    expected = [[reference.learned_score(scorer.mlp, v) for v in image] for image in patches.tolist()]
    torch.testing.assert_close(scorer(patches), torch.tensor(expected))
    assert scorer.mlp[0].out_features == 3


@pytest.mark.parametrize("kind", ["cosine", "dot"])
def test_similarities_equal_the_loop(kind):
    patches, vectors = torch.randn(2, 5, 6), torch.randn(2, 3, 6)
    expected = torch.empty(2, 3, 5)
    for b in range(2):
        for g in range(3):
            for n in range(5):
                v, e = patches[b, n].tolist(), vectors[b, g].tolist()
                expected[b, g, n] = reference.cosine(v, e) if kind == "cosine" else reference.dot(v, e) / 6
    torch.testing.assert_close(similarities(patches, vectors, kind), expected)


def test_cosine_gradient_is_right():
    patches = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    vectors = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(similarities, (patches, vectors))
    assert torch.autograd.gradcheck(lambda p: similarities(p, vectors.detach()), (patches,))
    assert torch.autograd.gradcheck(lambda v: similarities(patches.detach(), v), (vectors,))


def test_cosine_has_the_gradient_of_normalising_everything():
    patches, vectors = torch.randn(3, 7, 9, requires_grad=True), torch.randn(3, 2, 9, requires_grad=True)
    weight = torch.randn(3, 2, 7)
    plain = F.normalize(vectors, dim=-1) @ F.normalize(patches, dim=-1).transpose(1, 2)
    expected = torch.autograd.grad((plain * weight).sum(), (patches, vectors))
    actual = torch.autograd.grad((similarities(patches, vectors) * weight).sum(), (patches, vectors))
    torch.testing.assert_close(actual, expected)


def test_null_vectors_have_no_likeness_and_no_gradient():
    patches = torch.randn(1, 3, 4)
    patches[0, 1] = 0
    patches.requires_grad_()
    vectors = torch.stack([torch.zeros(4), torch.ones(4)])[None].requires_grad_()
    values = similarities(patches, vectors)
    assert (values[0, 0] == 0).all()
    assert values[0, 1, 1] == 0
    values.sum().backward()
    assert patches.grad.isfinite().all()
    assert (patches.grad[0, 1] == 0).all()
    assert (vectors.grad[0, 0] == 0).all()


def test_similarities_stay_precise_under_autocast():
    patches, vectors = torch.randn(2, 5, 64), torch.randn(2, 1, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = similarities(patches, vectors)
    assert values.dtype == torch.float32
    assert torch.equal(values, similarities(patches, vectors))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20))
def test_min_max_equals_the_loop(values):
    actual = min_max(torch.tensor([values]))
    torch.testing.assert_close(actual[0], torch.tensor(reference.min_max(values)), atol=1e-5, rtol=1e-4)
    assert actual.min() >= 0
    assert actual.max() <= 1


def test_min_max_of_equal_values_is_zero_with_finite_gradient():
    values = torch.full((2, 5), 0.7, requires_grad=True)
    result = min_max(values)
    assert (result == 0).all()
    (result * torch.randn(2, 5)).sum().backward()
    assert values.grad.isfinite().all()


@pytest.mark.parametrize("with_learned", [True, False])
@pytest.mark.parametrize("beta", [0.25, 0.1, 0.5])
def test_score_equals_the_loop_with_absent_guides(with_learned, beta):
    B, G, N = 4, 3, 6
    learned = torch.rand(B, N) if with_learned else None
    own, guides = torch.randn(B, N), torch.randn(B, G, N)
    present = torch.tensor([[1, 1, 1], [0, 1, 0], [0, 0, 0], [1, 0, 1]], dtype=torch.bool)
    actual = score_patches(learned, own, guides, present=present, beta=beta)
    for b in range(B):
        there = [reference.min_max(guides[b, g].tolist()) for g in range(G) if present[b, g]]
        expected = reference.score(
            None if learned is None else learned[b].tolist(), reference.min_max(own[b].tolist()), there, beta
        )
        torch.testing.assert_close(actual.total[b], torch.tensor(expected))
    assert list(actual.sources) == (["learned"] if with_learned else []) + [
        "own",
        "guide0",
        "guide1",
        "guide2",
    ]
    assert (actual.sources["guide1"][2] == 0).all()


def test_score_of_two_guides_is_equation_three():
    learned, own, a, b = torch.rand(2, 5), torch.rand(2, 5), torch.rand(2, 5), torch.rand(2, 5)
    beta = 0.2
    expected = (1 - 2 * beta) * learned + beta * (min_max(a) + min_max(b) + 2 * min_max(own))
    actual = score_patches(learned, own, torch.stack([a, b], 1), beta=beta, names=["a", "b"])
    torch.testing.assert_close(actual.total, expected)
    assert torch.equal(actual.sources["b"], min_max(b))


def test_plain_sum_without_normalising():
    own, guides = torch.randn(2, 5), torch.randn(2, 1, 5)
    total = score_patches(None, own, guides, normalise="none", combine="sum").total
    assert torch.equal(total, guides[:, 0] + own)
    learned = torch.rand(2, 5)
    with_learned = score_patches(learned, own, guides, normalise="none", combine="sum").total
    torch.testing.assert_close(with_learned, total + learned)


def test_no_guide_at_all_leaves_own_and_learned():
    learned, own = torch.rand(2, 5), torch.randn(2, 5)
    total = score_patches(learned, own, torch.empty(2, 0, 5)).total
    torch.testing.assert_close(total, 0.5 * learned + 0.5 * min_max(own))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ModelError, match=r"\(2, 5\)"):
        score_patches(None, torch.rand(2, 4), torch.rand(2, 1, 5))
    with pytest.raises(ModelError, match="presence"):
        score_patches(None, torch.rand(2, 5), torch.rand(2, 1, 5), present=torch.ones(2, 2, dtype=torch.bool))
    with pytest.raises(ModelError, match="guides must be"):
        similarities(torch.rand(2, 5, 3), torch.rand(2, 1, 4))


def test_no_patches_integer_presence_and_clashing_names_are_refused():
    own, guides = torch.rand(2, 4), torch.rand(2, 3, 4)
    with pytest.raises(ModelError, match="no patch"):
        min_max(torch.zeros(2, 0))
    with pytest.raises(ModelError, match="no patch"):
        score_patches(None, own[:, :0], guides[..., :0])
    with pytest.raises(ModelError, match=r"must be bool \(2, 3\), not torch.int64"):
        score_patches(None, own, guides, present=torch.ones(2, 3, dtype=torch.int64))
    for names in (("a", "b", "own"), ("a", "b", "learned"), ("a", "b", "b"), ("a", "b")):
        with pytest.raises(ConfigError, match="names of 3 guides"):
            score_patches(None, own, guides, names=names)
