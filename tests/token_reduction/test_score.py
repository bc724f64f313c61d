from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import token_reduction as reference
from slimreid.errors import ModelError
from slimreid.token_reduction.score import PatchScorer, contrast, min_max, random_scores, similarities


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


def test_no_patches_and_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ModelError, match="no patch"):
        min_max(torch.zeros(2, 0))
    with pytest.raises(ModelError, match="guides must be"):
        similarities(torch.rand(2, 5, 3), torch.rand(2, 1, 4))


def test_contrast_of_equal_patches_is_zero_with_a_finite_gradient():
    patches = torch.ones(2, 5, 8, requires_grad=True)
    values = contrast(patches)
    values.sum().backward()
    assert (values == 0).all()
    assert patches.grad.isfinite().all()


def fixed(patch, stage):
    return random_scores(patch, torch.tensor([0, 1]), stage, training=False).total


def test_random_scores_of_test_are_the_same_everywhere_and_look_random():
    patch = torch.arange(1000).expand(2, -1)
    one = fixed(patch, 0)
    assert torch.equal(one, fixed(patch, 0))
    assert torch.equal(one[:, [5, 3]], fixed(patch[:, [5, 3]], 0))
    assert 0 <= one.min() < 0.01
    assert 0.99 < one.max() < 1
    assert one.mean(1).tolist() == pytest.approx([0.5, 0.5], abs=0.03)
    streams = torch.stack([*one, fixed(patch, 1)[0]])
    assert torch.corrcoef(streams).fill_diagonal_(0).abs().max() < 0.1
    assert torch.corrcoef(torch.stack([one[0, 1:], one[0, :-1]]))[0, 1].abs() < 0.1, "neighbours differ"
