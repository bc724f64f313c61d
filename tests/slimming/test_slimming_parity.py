"""Equality with the golden numbers of the earlier implementations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from slimming_cases import NAMES, load_demo

from reference import clip_tower
from slimreid.slimming import MultiModalSlimmer, PatchSlimmer

EXACT = {"atol": 1e-6, "rtol": 0.0}
CLOSE = {"atol": 1e-5, "rtol": 0.0}


@pytest.fixture(scope="module")
def seps(parity: Path) -> dict:
    return torch.load(parity / "seps_modules.pt", weights_only=True)


@pytest.fixture(scope="module")
def demo(parity: Path) -> dict:
    return torch.load(parity / "demo_sdtps.pt", weights_only=True)


def test_seps_released(seps):
    expected = seps["open_source"]
    slimmer = PatchSlimmer(64, "seps_released", num_patches=196).eval()
    slimmer.merger.load_state_dict(expected["aggregation_state"])
    guides = seps["sparse_attention"][:, None]
    slimmed = slimmer.slim(seps["tokens"], seps["self_attention"], guides)
    assert torch.equal(slimmed.selection.decision, expected["mask"])
    torch.testing.assert_close(slimmed.selection.kept, expected["selected"], **EXACT)
    torch.testing.assert_close(slimmed.selection.leftover, expected["extra"], **EXACT)
    torch.testing.assert_close(slimmed.tokens[:, :-1], expected["aggregated"], **EXACT)


def test_seps_paper_code(seps):
    expected = seps["paper"]
    slimmer = PatchSlimmer(64, "seps_paper_code", num_patches=196).eval()
    for scorer, branch in zip(slimmer.scorers, ("sparse", "dense"), strict=True):
        state = expected[f"{branch}_state"]
        scorer.load_state_dict({k.replace("score_predictor", "mlp"): v for k, v in state.items()})
    renamed = {"weight_sparse": "weights.0", "weight_dense": "weights.1"}
    state = expected["dual_state"]
    for old, new in renamed.items():
        state = {k.replace(old, new): v for k, v in state.items()}
    slimmer.merger.load_state_dict(state)
    guides = torch.stack([seps["sparse_attention"], seps["dense_attention"]], 1)
    slimmed = slimmer.slim(seps["tokens"], seps["self_attention"], guides)
    for selection, branch in zip(slimmed.selections, ("sparse", "dense"), strict=True):
        assert torch.equal(selection.decision, expected[branch]["mask"])
        torch.testing.assert_close(selection.kept, expected[branch]["selected"], **EXACT)
        torch.testing.assert_close(selection.leftover, expected[branch]["extra"], **EXACT)
    torch.testing.assert_close(slimmed.tokens[:, :-1], expected["aggregated"], **EXACT)
    torch.testing.assert_close(slimmed.tokens, expected["tokens_out"], **EXACT)


def demo_slimmer(demo: dict) -> MultiModalSlimmer:
    options = demo["options"]
    slimmer = MultiModalSlimmer(
        demo["clip"]["output_dim"],
        NAMES,
        "demo_sdtps",
        num_patches=128,
        keep_ratio=options["MODEL.SDTPS_SPARSE_RATIO"],
        merge_ratio=options["MODEL.SDTPS_AGGR_RATIO"],
        beta=options["MODEL.SDTPS_BETA"],
    )
    load_demo(slimmer, demo["state_dict"])
    return slimmer


@torch.no_grad()
def test_demo_tokens_and_masks(demo):
    slimmer = demo_slimmer(demo).eval()
    patches, vectors = clip_tower.streams(demo, demo["state_dict"])
    torch.testing.assert_close(vectors.flatten(1), demo["features"][1], **CLOSE)
    slimmed = slimmer(patches, vectors)
    for m in range(3):
        torch.testing.assert_close(slimmed.tokens[:, m], demo["sdtps_tokens"][m], **CLOSE)
        assert torch.equal(slimmed.selection.decision[:, m], demo["sdtps_masks"][m])
    torch.testing.assert_close(slimmed.tokens.mean(2).flatten(1), demo["features"][2], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("missing", ["r", "n", "t", "rn", "rt", "nt"])
def test_demo_with_zero_images_for_missing_modalities(demo, missing):
    slimmer = demo_slimmer(demo).eval()
    patches, vectors = clip_tower.streams(demo, demo["state_dict"], missing)
    slimmed = slimmer(patches, vectors).tokens.mean(2).flatten(1)
    both = torch.cat([vectors.flatten(1), slimmed], 1)
    torch.testing.assert_close(both, demo["features_missing"][missing], **CLOSE)


def test_demo_training_step(demo):
    """Loss and gradient norms of one step, of the slimming and of everything before it."""
    slimmer = demo_slimmer(demo).train()
    state = {
        name: value.clone().requires_grad_(value.is_floating_point())
        for name, value in demo["state_dict"].items()
    }
    patches, vectors = clip_tower.streams(demo, state)
    slimmed = slimmer(patches, vectors).tokens.mean(2).flatten(1)
    torch.testing.assert_close(slimmed, demo["train"]["outputs"][1], **CLOSE)
    loss = clip_tower.branch_loss(vectors.flatten(1), demo["label"], state)
    loss = loss + clip_tower.branch_loss(slimmed, demo["label"], state, "_sdtps")
    assert loss.item() == pytest.approx(demo["train"]["loss"], rel=1e-4)
    loss.backward()

    actual = {name: value.grad for name, value in state.items() if value.grad is not None}
    for name in NAMES:
        for key, parameter in slimmer.scorers[name].named_parameters():
            actual[f"sdtps.{name}_sparse.{key.replace('mlp', 'score_predictor')}"] = parameter.grad
        for key, parameter in slimmer.mergers[name].named_parameters():
            actual[f"sdtps.{name}_aggr.{key}"] = parameter.grad
    expected = demo["train"]["grad_norm"]
    assert set(expected) <= set(actual)
    for name, norm in expected.items():
        assert abs(actual[name].norm().item() - norm) <= 1e-4 * norm + 1e-6, name
