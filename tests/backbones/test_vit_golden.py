"""The backbone against numbers of the earlier implementation and a checkpoint of timm's size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from reference import vit as reference
from slimreid.backbones.pretrained import load_pretrained
from slimreid.backbones.vit import ViT
from slimreid.backbones.weight_conversion import convert_state_dict, infer_config
from slimreid.config.backbones import vit_config
from support.golden import load_golden
from support.vit import timm_state


@pytest.fixture(scope="module")
def vit_tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with the names and shapes of timm's vit_tiny_patch16_224, and random weights."""
    path = tmp_path_factory.mktemp("weights") / "vit_tiny_patch16_224.pth"
    torch.save(timm_state(width=192, depth=12, mlp=768, patch=16, cells=14 * 14), path)
    return path


def demo_backbone(golden: dict[str, Any]) -> ViT:
    state = golden["state_dict"]
    tower = {
        key.removeprefix("BACKBONE.base."): v for key, v in state.items() if key.startswith("BACKBONE.base.")
    }
    tower["cv_embed"] = state["BACKBONE.cv_embed"]
    style = vit_config("clip_vit_b16")
    config = infer_config(convert_state_dict(tower).tensors, style)
    size = tuple(golden["image_size"])
    vit = ViT(config, size).eval()
    load_pretrained(vit, tower, source_grid=config.grid(size))
    return vit


def demo_rows(golden: dict[str, Any], missing: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    """All modalities in one call: rows of rgb, then nir, then tir."""
    images = {
        name: value.float() * golden["image_scale"] * (name[0].lower() not in missing)
        for name, value in golden["images_int8"].items()
    }
    return torch.cat(list(images.values())), golden["cam_label"].repeat(len(images))


def demo_globals(golden: dict[str, Any], vit: ViT, missing: str = "") -> torch.Tensor:
    """The original branch (B, 3C): globals, after global–local where it is on."""
    rows, cameras = demo_rows(golden, missing)
    out = vit(rows, cameras)
    B = len(golden["cam_label"])
    features = out.global_
    if golden["options"]["MODEL.GLOBAL_LOCAL"]:
        state, parts = golden["state_dict"], []
        joined = torch.cat([out.global_, out.patches.mean(1)], dim=1)
        for m, name in enumerate(("rgb", "nir", "tir")):
            y = reference.layer_norm(joined[m * B : (m + 1) * B], state, f"{name}_reduce.0", 1e-5)
            y = reference.linear(y, state, f"{name}_reduce.1")
            parts.append(y * torch.sigmoid(1.702 * y))
        features = torch.cat(parts)
    return features.view(-1, B, features.shape[1]).transpose(0, 1).flatten(1)


@pytest.mark.parametrize("name", ["demo_baseline", "demo_sdtps", "demo_moe"])
@torch.no_grad()
def test_original_features_of_demo(name: str) -> None:
    golden = load_golden(name)
    vit = demo_backbone(golden)
    assert (vit.config.heads, vit.config.depth) == (golden["clip"]["heads"], golden["clip"]["layers"])
    assert vit.config.camera_scale == golden["options"]["MODEL.SIE_COE"]
    assert_close(demo_globals(golden, vit), golden["features"][1], atol=1e-5, rtol=0)


@torch.no_grad()
def test_features_of_demo_with_blank_modalities() -> None:
    golden = load_golden("demo_baseline")
    vit = demo_backbone(golden)
    for missing, expected in golden["features_missing"].items():
        assert_close(demo_globals(golden, vit, missing), expected, atol=1e-5, rtol=0)


def test_gradients_of_demo() -> None:
    """One training step of the golden host: its loss, spelt out, gives the golden gradients."""
    golden = load_golden("demo_baseline")
    vit = demo_backbone(golden).train()
    state = golden["state_dict"]
    feature = demo_globals(golden, vit)
    assert_close(feature, golden["train"]["outputs"][1], atol=1e-5, rtol=0)
    normal = (feature - feature.mean(0)) / torch.sqrt(feature.var(0, unbiased=False) + 1e-5)
    logits = (normal * state["bottleneck.weight"] + state["bottleneck.bias"]) @ state["classifier.weight"].T
    label = golden["label"]
    identity = torch.nn.functional.cross_entropy(logits, label, label_smoothing=0.1)
    squares = ((feature[:, None] - feature[None]) ** 2).sum(2)
    distance = squares.clamp_min(1e-12).sqrt()
    same = label[:, None] == label[None]
    furthest = (distance - 1e9 * ~same).amax(1)
    nearest = (distance + 1e9 * same).amin(1)
    triplet = torch.log1p(torch.exp(furthest - nearest)).mean()
    loss = golden["options"]["MODEL.ID_LOSS_WEIGHT"] * identity + triplet
    assert_close(loss.item(), golden["train"]["loss"], atol=0, rtol=1e-4)
    loss.backward()
    tower = {
        f"{name}": norm for name, norm in golden["train"]["grad_norm"].items() if name.startswith("BACKBONE")
    }
    names = {key.removeprefix("BACKBONE.").removeprefix("base."): key for key in tower}
    sources = convert_state_dict({short: state[key] for short, key in names.items()}).sources
    assert len(sources) == len(tower)
    for name, parameter in vit.named_parameters():
        expected = tower[names[sources[name][0]]]
        assert abs(parameter.grad.norm().item() - expected) <= 1e-4 * expected + 1e-6, name


@pytest.mark.parametrize("size", [(224, 224), (192, 96)], ids=str)
@torch.no_grad()
def test_vit_tiny_of_timm(vit_tiny: Path, size: tuple[int, int]) -> None:
    vit = ViT(vit_config("vit_tiny"), size).eval()
    report = load_pretrained(vit, vit_tiny)
    assert report.family == "timm"
    assert sorted(report.extras) == ["head.bias", "head.weight"]
    assert report.missing == report.unexpected == ()
    grid = (size[0] // 16, size[1] // 16)
    assert report.resampled == (None if grid == (14, 14) else ((14, 14), grid))
    torch.manual_seed(0)
    out = vit(torch.randn(2, 3, *size) * 0.5)
    assert out.patches.shape == (2, grid[0] * grid[1], 192)
    assert torch.isfinite(out.patches).all()


@torch.no_grad()
def test_vit_tiny_of_timm_equals_plain_loops(vit_tiny: Path) -> None:
    size = (48, 32)
    vit = ViT(vit_config("vit_tiny"), size).eval()
    load_pretrained(vit, vit_tiny)
    state = torch.load(vit_tiny, weights_only=True)
    state["pos_embed"] = vit.position_embedding
    image = torch.randn(3, *size, generator=torch.Generator().manual_seed(0))
    out, expected = vit(image[None]), reference.timm_vit(state, image, 3, (16, 16))
    assert_close(out.global_[0], expected[0], atol=1e-4, rtol=1e-4)
    assert_close(out.patches[0], expected[1:], atol=1e-4, rtol=1e-4)
