"""Equality with the golden numbers of the earlier implementations."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from reference import clip_tower
from slimreid.config.token_reduction import DEMO_SDTPS
from slimreid.token_reduction import AfterBackboneReducer, SepsReducer
from support.golden import load_golden
from support.reduction import NAMES, load_demo

EXACT = {"atol": 1e-6, "rtol": 0.0}
CLOSE = {"atol": 1e-5, "rtol": 0.0}


@pytest.fixture(scope="module")
def seps() -> dict:
    return load_golden("seps_modules")


@pytest.fixture(scope="module")
def demo() -> dict:
    return load_golden("demo_sdtps")


def test_seps_released(seps):
    expected = seps["open_source"]
    reducer = SepsReducer(64, "released", num_patches=196).eval()
    reducer.merger.load_state_dict(expected["aggregation_state"])
    sims = torch.stack([seps["self_attention"], seps["sparse_attention"]], 1)
    reduced = reducer.reduce(seps["tokens"], sims)
    assert torch.equal(reduced.selection.decision, expected["mask"])
    torch.testing.assert_close(reduced.selection.kept, expected["selected"], **EXACT)
    torch.testing.assert_close(reduced.selection.leftover, expected["extra"], **EXACT)
    torch.testing.assert_close(reduced.tokens[:, :-1], expected["aggregated"], **EXACT)


def test_seps_paper_code(seps):
    expected = seps["paper"]
    reducer = SepsReducer(64, "paper_code", num_patches=196).eval()
    for scorer, branch in zip(reducer.scorers, ("sparse", "dense"), strict=True):
        state = expected[f"{branch}_state"]
        scorer.load_state_dict({k.replace("score_predictor", "mlp"): v for k, v in state.items()})
    renamed = {"weight_sparse": "weights.0", "weight_dense": "weights.1"}
    state = expected["dual_state"]
    for old, new in renamed.items():
        state = {k.replace(old, new): v for k, v in state.items()}
    reducer.merger.load_state_dict(state)
    sims = torch.stack([seps[f"{name}_attention"] for name in ("self", "sparse", "dense")], 1)
    reduced = reducer.reduce(seps["tokens"], sims)
    for selection, branch in zip(reduced.selections, ("sparse", "dense"), strict=True):
        assert torch.equal(selection.decision, expected[branch]["mask"])
        torch.testing.assert_close(selection.kept, expected[branch]["selected"], **EXACT)
        torch.testing.assert_close(selection.leftover, expected[branch]["extra"], **EXACT)
    torch.testing.assert_close(reduced.tokens[:, :-1], expected["aggregated"], **EXACT)
    torch.testing.assert_close(reduced.tokens, expected["tokens_out"], **EXACT)


def demo_reducer(demo: dict) -> AfterBackboneReducer:
    options = demo["options"]
    config = replace(
        DEMO_SDTPS,
        keep_ratio=options["MODEL.SDTPS_SPARSE_RATIO"],
        merge_ratio=options["MODEL.SDTPS_AGGR_RATIO"],
        beta=options["MODEL.SDTPS_BETA"],
    )
    reducer = AfterBackboneReducer(demo["clip"]["output_dim"], NAMES, config, num_patches=128)
    load_demo(reducer, demo["state_dict"])
    return reducer


@torch.no_grad()
def test_demo_tokens_and_masks(demo):
    reducer = demo_reducer(demo).eval()
    patches, vectors = clip_tower.streams(demo, demo["state_dict"])
    torch.testing.assert_close(vectors.flatten(1), demo["features"][1], **CLOSE)
    reduced = reducer(patches, vectors)
    for m in range(3):
        torch.testing.assert_close(reduced.tokens[:, m], demo["sdtps_tokens"][m], **CLOSE)
        assert torch.equal(reduced.selection.decision[:, m], demo["sdtps_masks"][m])
    torch.testing.assert_close(reduced.tokens.mean(2).flatten(1), demo["features"][2], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("missing", ["r", "n", "t", "rn", "rt", "nt"])
def test_demo_with_zero_images_for_missing_modalities(demo, missing):
    reducer = demo_reducer(demo).eval()
    patches, vectors = clip_tower.streams(demo, demo["state_dict"], missing)
    reduced = reducer(patches, vectors).tokens.mean(2).flatten(1)
    both = torch.cat([vectors.flatten(1), reduced], 1)
    torch.testing.assert_close(both, demo["features_missing"][missing], **CLOSE)


def test_demo_training_step(demo):
    """Loss and gradient norms of one step, of the token reduction and of everything before it."""
    reducer = demo_reducer(demo).train()
    state = {
        name: value.clone().requires_grad_(value.is_floating_point())
        for name, value in demo["state_dict"].items()
    }
    patches, vectors = clip_tower.streams(demo, state)
    reduced = reducer(patches, vectors).tokens.mean(2).flatten(1)
    torch.testing.assert_close(reduced, demo["train"]["outputs"][1], **CLOSE)
    loss = clip_tower.branch_loss(vectors.flatten(1), demo["label"], state)
    loss = loss + clip_tower.branch_loss(reduced, demo["label"], state, "_sdtps")
    assert loss.item() == pytest.approx(demo["train"]["loss"], rel=1e-4)
    loss.backward()

    actual = {name: value.grad for name, value in state.items() if value.grad is not None}
    for name in NAMES:
        for key, parameter in reducer.scorers[name].named_parameters():
            actual[f"sdtps.{name}_sparse.{key.replace('mlp', 'score_predictor')}"] = parameter.grad
        for key, parameter in reducer.mergers[name].named_parameters():
            actual[f"sdtps.{name}_aggr.{key}"] = parameter.grad
    expected = demo["train"]["grad_norm"]
    assert set(expected) <= set(actual)
    for name, norm in expected.items():
        assert abs(actual[name].norm().item() - norm) <= 1e-4 * norm + 1e-6, name
