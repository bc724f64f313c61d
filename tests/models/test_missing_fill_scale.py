"""What stands in for absent modalities: so many times the mean of the present ones, against loops."""

from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from reference import fusion as reference
from slimreid.config import ModelConfig
from slimreid.config.model import Fusion
from slimreid.errors import ConfigError
from slimreid.models.heads import fill_absent, join_blocks
from slimreid.models.reid_model import build_model

NAMES = ("rgb", "nir", "tir")
PRESENT = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 1, 1], [0, 0, 1]], dtype=torch.bool)


def make(**options):
    torch.manual_seed(0)
    return build_model(ModelConfig(backbone="nano", **options), (32, 16), NAMES, 5)


def images(B=4, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(B, 3, 32, 16, generator=generator) for name in NAMES}


rows = st.lists(st.booleans(), min_size=4, max_size=4).filter(any)


@settings(deadline=None, max_examples=50)
@given(st.lists(rows, min_size=1, max_size=4), st.floats(0, 1), st.integers(0, 999))
def test_filled_and_joined_blocks_equal_the_loops(gaps, weight, seed):
    present = torch.tensor(gaps)
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randn(len(gaps), 4, 5, generator=generator, dtype=torch.float64)
    assert_close(fill_absent(blocks, present, weight), reference.fill_absent(blocks, present, weight))
    for normalise in (False, True):
        joined = join_blocks(blocks, present, normalise, weight)
        assert_close(joined, reference.join_blocks(blocks, present, normalise, weight))
    assert_close(join_blocks(blocks, None, False, weight), blocks.flatten(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_type_of_blocks_stays(dtype):
    blocks = torch.randn(4, 3, 5).to(dtype)
    filled = fill_absent(blocks, PRESENT, 0.1)
    assert filled.dtype == dtype
    assert torch.equal(filled[PRESENT], blocks[PRESENT])
    expected = reference.fill_absent(blocks.float(), PRESENT, 0.1)
    assert_close(filled.float(), expected, atol=2e-3, rtol=1e-2)


def test_gradients_reach_the_present_blocks_by_the_weight():
    blocks = torch.randn(1, 3, 2, dtype=torch.float64).requires_grad_()
    fill_absent(blocks, torch.tensor([[True, False, True]]), 0.1)[0, 1].sum().backward()
    assert_close(blocks.grad[0], torch.tensor([[0.05, 0.05], [0.0, 0.0], [0.05, 0.05]], dtype=torch.float64))


@pytest.mark.parametrize("weight", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("mode", ["train", "eval", "after"])
def test_the_model_fills_by_its_weight_in_training_and_test(weight, mode):
    model = make(missing_fill_scale=weight, neck_feature="after" if mode == "after" else "before")
    model.train()(images(), None, PRESENT)  # so that BNNecks have statistics
    model.train(mode == "train")
    features = model(images(), None, PRESENT).features
    for name in ("original", "slimmed"):
        blocks = features[name].view(4, 3, -1)
        assert_close(blocks, reference.fill_absent(blocks, PRESENT, weight))
        if mode != "train":
            assert_close(blocks[PRESENT].norm(dim=-1), torch.ones(int(PRESENT.sum())))


def test_the_one_neck_of_a_branch_sees_blocks_filled_as_in_training():
    model = make(missing_fill_scale=0.1, neck_feature="after", reduction="none", fusion="none")
    model.train()(images(seed=2), None, PRESENT)
    raw = {}
    handle = model.heads.head("original").neck.register_forward_pre_hook(
        lambda module, inputs: raw.update(seen=inputs[0].detach())
    )
    model.eval()(images(), None, PRESENT)
    handle.remove()
    blocks = raw["seen"].view(4, 3, -1)
    assert_close(blocks, reference.fill_absent(blocks, PRESENT, 0.1))


def test_mixed_experts_get_the_whole_mean_and_the_other_branch_the_weight():
    """Experts mix all they get, and so leave nothing that is absent: the weight is not for them."""
    light, heavy = (
        make(reduction="none", fusion="hdm_atmoe", missing_fill_scale=w).eval() for w in (0.1, 1.0)
    )
    first, second = (m(images(), None, PRESENT).features for m in (light, heavy))
    assert torch.equal(first["fused"], second["fused"])
    assert not torch.allclose(first["original"], second["original"], atol=1e-3)


def test_zeros_and_complete_samples_know_no_weight():
    x = images()
    for options, present in (({"missing": "zeros"}, PRESENT), ({}, None)):
        first, second = (make(missing_fill_scale=w, **options).eval()(x, None, present) for w in (0.1, 1.0))
        assert torch.equal(first.features["both"], second.features["both"])


def test_what_is_shared_decides():
    """An rgb query in a gallery of all modalities is ranked by rgb: exactly with weight 0, nearly with 0.1."""
    torch.manual_seed(0)
    gallery, query = torch.randn(300, 3, 96), torch.randn(1, 3, 96)
    only = torch.tensor([[True, False, False]])
    by_rgb = F.cosine_similarity(query[:, 0], gallery[:, 0])
    there = F.normalize(join_blocks(gallery, None, True))
    agreement = {}
    for weight in (0.0, 0.1, 1.0):
        scores = (F.normalize(join_blocks(query, only, True, weight)) @ there.T)[0]
        agreement[weight] = float(torch.corrcoef(torch.stack([scores, by_rgb]))[0, 1])
        if weight == 0:
            assert torch.equal(scores.argsort(), by_rgb.argsort())
    # Blocks that know nothing of each other: 1 / sqrt(1 + 2 weight²).
    assert agreement[0.1] == pytest.approx(0.990, abs=0.005)
    assert agreement[1.0] == pytest.approx(0.577, abs=0.1)


@pytest.mark.parametrize("way", [("none", "none"), ("none", "mean"), ("after_backbone", "mean")])
def test_a_model_with_weight_zero_ranks_by_the_block_that_is_shared(way):
    model = make(reduction=way[0], fusion=way[1], missing_fill_scale=0.0).eval()
    with torch.no_grad():
        gallery = model(images(12)).features
        alone = model({"rgb": images(12)["rgb"]}).features["original"][:1]
    blocks = gallery["original"].view(12, 3, -1)
    scores = F.normalize(alone) @ F.normalize(gallery["original"]).T
    by_rgb = blocks[:1, 0] @ blocks[:, 0].T
    assert_close(scores * 3**0.5, by_rgb)
    assert torch.equal(scores.argsort(), by_rgb.argsort())


@pytest.mark.parametrize("weight", [0.1, 1.0])
@pytest.mark.parametrize("fusion", get_args(Fusion))
def test_disjoint_modalities_are_ranked_by_their_own_blocks(fusion, weight):
    """Nothing is shared; with any weight above 0 the stand-ins still tell samples apart."""
    model = make(reduction="none", fusion=fusion, missing_fill_scale=weight).eval()
    with torch.no_grad():
        query = model({"rgb": images(6)["rgb"]}).features["original"]
        gallery = model({"tir": images(6)["tir"]}).features["original"]
    scores = F.normalize(query) @ F.normalize(gallery).T
    own = query.view(6, 3, -1)[:, 0] @ gallery.view(6, 3, -1)[:, 2].T
    # rgb against its stand-in, the stand-in of tir against tir, and two stand-ins.
    assert_close(scores * (1 + 2 * weight**2), own * (2 * weight + weight**2))
    assert float(scores.std()) > 1e-5


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), float("inf")])
def test_weights_out_of_range_are_refused_by_name(weight):
    with pytest.raises(ConfigError, match=r"model\.missing_fill_scale: .* is not in \[0, 1\]"):
        ModelConfig(missing_fill_scale=weight)
