"""What a score is made of behind the backbone: every source against plain loops, whatever is present."""

from __future__ import annotations

import pytest
import torch
from slimming_cases import NAMES, perturb, streams

from reference import slimming as reference
from slimreid.errors import ConfigError, ModelError
from slimreid.slimming import MultiModalSlimmer, PatchSlimmer, contrast
from slimreid.slimming.random_scores import fixed_scores

PRESENT = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
SOURCES = (
    ("learned", "own", "others"),
    ("own", "contrast"),
    ("learned", "others_contrast"),
    ("attention", "others"),
    ("learned", "own", "others", "attention", "contrast", "others_contrast"),
)


def make(names=NAMES, **options) -> MultiModalSlimmer:
    torch.manual_seed(0)
    slimmer = MultiModalSlimmer(16, names, num_patches=10, **options).double().eval()
    perturb(slimmer)
    return slimmer


def module_of(modules, name):
    return (modules["shared"] if "shared" in modules else modules[name]) if modules else None


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sources", SOURCES, ids="+".join)
def test_scores_equal_the_loops_for_any_presence(sources, shared):
    slimmer = make(sources=sources, shared=shared, centre="own" in sources)
    patches, vectors = streams(B=len(PRESENT), dtype=torch.float64)
    attention = torch.rand(len(PRESENT), 3, 10, dtype=torch.float64)
    with torch.no_grad():
        slimmed = slimmer(patches, vectors, PRESENT, attention=attention)
    for b in range(len(PRESENT)):
        there = [m for m in range(3) if PRESENT[b, m]]
        for m in there:
            scorer = module_of(slimmer.scorers, NAMES[m])
            expected = reference.score_of(
                NAMES[m],
                {NAMES[o]: patches[b, o].tolist() for o in there},
                {NAMES[o]: vectors[b, o].tolist() for o in there},
                sources,
                predictor=None if scorer is None else scorer.mlp,
                attention=attention[b, m].tolist(),
                centre=slimmer.options.centre,
            )
            assert slimmed.selection.score[b, m].tolist() == pytest.approx(expected, abs=1e-9)
            assert slimmed.selection.index[b, m].tolist() == reference.top(expected, 0.5)


def test_one_stream_equals_the_rows_of_many():
    sources = ("learned", "own", "others", "contrast", "attention")
    slimmer = make(sources=sources)
    patches, vectors = streams(dtype=torch.float64)
    attention = torch.rand(3, 3, 10, dtype=torch.float64)
    single = PatchSlimmer(16, num_patches=10, sources=sources).double().eval()
    single.scorers[0].load_state_dict(slimmer.scorers["nir"].state_dict())
    single.merger.load_state_dict(slimmer.mergers["nir"].state_dict())
    many = slimmer(patches, vectors, attention=attention).tokens[:, 1]
    one = single(patches[:, 1], vectors[:, 1], vectors[:, [0, 2]], attention=attention[:, 1]).tokens
    torch.testing.assert_close(one, many)


def test_a_spectrum_that_no_sample_has_leaves_no_parameter_without_a_gradient():
    slimmer = make(sources=("learned", "own", "others_contrast"))
    patches, vectors = streams(dtype=torch.float64)
    present = torch.tensor([[True, True, False]]).repeat(3, 1)
    slimmer(patches, vectors, present).tokens.square().sum().backward()
    grads = {name: [p.grad for p in slimmer.scorers[name].parameters()] for name in NAMES}
    assert all(g is not None and (g == 0).all() for g in grads["tir"])
    assert all(any((g != 0).any() for g in grads[name]) for name in ("rgb", "nir"))


def test_contrast_of_equal_patches_is_zero_with_a_finite_gradient():
    patches = torch.ones(2, 5, 8, requires_grad=True)
    values = contrast(patches)
    values.sum().backward()
    assert (values == 0).all()
    assert patches.grad.isfinite().all()


def test_random_choice_is_fixed_in_test_and_drawn_while_training():
    slimmer = make(sources=("random",))
    patches, vectors = streams(dtype=torch.float64)
    score = slimmer(patches, vectors).selection.score
    every = torch.arange(10).expand(3, 10)
    for m in range(3):
        assert torch.equal(score[:, m].float(), fixed_scores(every, torch.full((3, 1), m), 0))
    slimmer.train()
    draws = [
        slimmer(patches, vectors, generator=torch.Generator().manual_seed(s)).selection.score
        for s in (0, 0, 1)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not list(slimmer.scorers.parameters())


def test_centring_compares_what_is_left_without_the_mean():
    """With a large common part all cosines are alike; centred, the patch along the guide wins."""
    patches = 0.01 * torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0)) + 10.0
    own = torch.full((1, 8), 10.0)
    own[0, 0] += 1.0
    patches[0, 4, 0] += 1.0
    chosen = {}
    for centre in (False, True):
        slimmer = PatchSlimmer(8, num_patches=6, sources=("own",), centre=centre, keep_ratio=0.1).eval()
        chosen[centre] = slimmer(patches, own).selection.scores["own"][0]
    assert int(chosen[True].argmax()) == 4
    assert float(chosen[True].sort().values[-2]) < 0.9, "clearly ahead of all others"


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (NAMES, {"sources": ("lerned",)}, "did you mean 'learned'"),
        (NAMES, {"sources": ()}, "one or more different"),
        (NAMES, {"sources": ("learned",), "learned": False}, "one or more different"),
        (NAMES, {"sources": ("own", "own")}, "different"),
        (NAMES, {"sources": ("random", "own")}, "goes with no other"),
        (NAMES, {"sources": ("learned", "contrast"), "centre": True}, "centre"),
        (("rgb",), {"sources": ("others", "others_contrast")}, "second modality"),
    ],
)
def test_sources_that_make_no_score_are_refused(names, options, message):
    with pytest.raises(ConfigError, match=message):
        MultiModalSlimmer(16, names, num_patches=10, **options)


def test_one_stream_refuses_what_needs_others():
    with pytest.raises(ConfigError, match="MultiModalSlimmer"):
        PatchSlimmer(16, num_patches=10, sources=("own", "others_contrast"))
    with pytest.raises(ConfigError, match="tell two choices apart"):
        PatchSlimmer(16, num_patches=10, sources=("random",), merge="dual")
    patches, vectors = streams()
    with pytest.raises(ModelError, match="attention"):
        PatchSlimmer(16, num_patches=10, sources=("attention",))(patches[:, 0], vectors[:, 0])
