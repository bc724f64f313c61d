"""Every family of weights gives the same features as the implementation it comes from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.testing import assert_close

from reference import vit as reference
from slimreid.backbones.pretrained import load_pretrained
from slimreid.backbones.vit import ViT, ViTOutput
from support.vit import clip_state, small, timm_state

SQUARE, TALL, WIDE = (32, 32), (48, 24), (24, 48)
HF = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}


def run(vit: ViT, images: Tensor) -> ViTOutput:
    with torch.no_grad():
        return vit.eval()(images)


def randomise(model: torch.nn.Module) -> None:
    """Give every parameter a value that shows, also those that start at 0 or 1."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def clip_outputs(model: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    out = model(images, interpolate_pos_encoding=True)
    tokens = model.visual_projection(model.vision_model.post_layernorm(out.last_hidden_state))
    return out.image_embeds, tokens[:, 1:]


def vit_outputs(model: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    tokens = model(images, interpolate_pos_encoding=True).last_hidden_state
    return tokens[:, 0], tokens[:, 1:]


def dino_outputs(model: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    tokens = model(images).last_hidden_state
    return tokens[:, 0], tokens[:, 1 + getattr(model.config, "num_register_tokens", 0) :]


# family, our style, transformers' model, its further options, how to read its output
FAMILIES = {
    "clip": (
        "hf_clip",
        ("clip_vit_b16", {"projection": 48}),
        "CLIPVisionModelWithProjection",
        ("CLIPVisionConfig", {"intermediate_size": 96, "projection_dim": 48}),
        clip_outputs,
    ),
    "vit": (
        "hf_vit",
        ("vit_b16", {}),
        "ViTModel",
        ("ViTConfig", {"intermediate_size": 96, "layer_norm_eps": 1e-6}),
        vit_outputs,
    ),
    "dinov2": (
        "hf_dinov2",
        ("dinov2_s14", {"mlp_width": 128}),
        "Dinov2Model",
        ("Dinov2Config", {"mlp_ratio": 2}),
        dino_outputs,
    ),
    "dinov2_swiglu": (
        "hf_dinov2",
        ("dinov2_s14", {"mlp_width": 176, "activation": "swiglu"}),
        "Dinov2Model",
        ("Dinov2Config", {"use_swiglu_ffn": True}),
        dino_outputs,
    ),
    "dinov2_registers": (
        "hf_dinov2",
        ("dinov2_s14_reg", {"mlp_width": 128}),
        "Dinov2WithRegistersModel",
        ("Dinov2WithRegistersConfig", {"mlp_ratio": 2, "num_register_tokens": 4}),
        dino_outputs,
    ),
    "dinov3": (
        "hf_dinov3",
        ("dinov3_s16", {}),
        "DINOv3ViTModel",
        ("DINOv3ViTConfig", {"intermediate_size": 96, "num_register_tokens": 4}),
        dino_outputs,
    ),
    "dinov3_gated": (
        "hf_dinov3",
        ("dinov3_s16", {"activation": "swiglu", "registers": 2}),
        "DINOv3ViTModel",
        (
            "DINOv3ViTConfig",
            {"intermediate_size": 96, "num_register_tokens": 2, "use_gated_mlp": True, "hidden_act": "silu"},
        ),
        dino_outputs,
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def hugging_face(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import transformers

    family, (name, changes), model_name, (config_name, options), outputs = FAMILIES[request.param]
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(**HF, **options)
    model = getattr(transformers, model_name)(config).eval()
    randomise(model)
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    return family, small(name, **changes), model, outputs, folder


@pytest.mark.parametrize("size", [SQUARE, TALL, WIDE], ids=str)
def test_equal_to_transformers(hugging_face: Any, size: tuple[int, int]) -> None:
    family, config, model, outputs, folder = hugging_face
    vit = ViT(config, size)
    report = load_pretrained(vit, folder)
    assert report.family == family
    assert report.missing == report.unexpected == report.mismatched == ()
    images = torch.randn(2, 3, *size)
    with torch.no_grad():
        expected_global, expected_patches = outputs(model, images)
    out = run(vit, images)
    assert_close(out.global_, expected_global, atol=1e-4, rtol=1e-4)
    assert_close(out.patches, expected_patches, atol=1e-4, rtol=1e-4)


def test_names_in_memory_and_in_the_file_are_both_read(hugging_face: Any) -> None:
    """Newer transformers rename modules but not files."""
    _, config, model, _, folder = hugging_face
    first, second = ViT(config, SQUARE), ViT(config, SQUARE)
    load_pretrained(first, model.state_dict())
    load_pretrained(second, load_file(folder / "model.safetensors"))
    for (name, a), (_, b) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert_close(a, b, atol=0, rtol=0, msg=name)


@pytest.mark.parametrize("stride", [(8, 8), (4, 8)], ids=["tiled", "overlapping"])
def test_openai_clip_equals_plain_loops(stride: tuple[int, int]) -> None:
    size = (24, 16)
    config = small("clip_vit_b16", projection=48, stride=stride, cameras=3, camera_scale=0.5)
    grid = config.grid(size)
    state = clip_state(cells=grid[0] * grid[1])
    state["cv_embed"] = torch.randn(3, 1, 64)
    vit = ViT(config, size)
    load_pretrained(vit, state, source_grid=grid)
    images, cameras = torch.randn(2, 3, *size), torch.tensor([2, 0])
    with torch.no_grad():
        out = vit.eval()(images, cameras)
    for b, camera in enumerate(cameras):
        expected = reference.openai_clip(state, images[b], 2, stride, 0.5 * state["cv_embed"][camera, 0])
        assert_close(out.global_[b], expected[0], atol=1e-4, rtol=1e-4)
        assert_close(out.patches[b], expected[1:], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("stride", [(8, 8), (8, 4)], ids=["tiled", "overlapping"])
def test_timm_equals_plain_loops(stride: tuple[int, int]) -> None:
    size = (16, 24)
    config = small("vit_b16", stride=stride, cameras=3, camera_scale=3.0)
    grid = config.grid(size)
    state = timm_state(cells=grid[0] * grid[1])
    state["sie_embed"] = torch.randn(3, 1, 64)
    vit = ViT(config, size)
    report = load_pretrained(vit, state, source_grid=grid)
    assert report.extras == ("head.weight", "head.bias")
    images, cameras = torch.randn(2, 3, *size), torch.tensor([1, 2])
    with torch.no_grad():
        out = vit.eval()(images, cameras)
    for b, camera in enumerate(cameras):
        expected = reference.timm_vit(state, images[b], 2, stride, 3.0 * state["sie_embed"][camera, 0])
        assert_close(out.global_[b], expected[0], atol=1e-4, rtol=1e-4)
        assert_close(out.patches[b], expected[1:], atol=1e-4, rtol=1e-4)


def test_layer_scale_and_registers_under_timm_names() -> None:
    """The names of DINOv2's own release: equal to the same model under Hugging Face names."""
    import transformers

    config = transformers.Dinov2WithRegistersConfig(**HF, mlp_ratio=2, num_register_tokens=4)
    model = transformers.Dinov2WithRegistersModel(config).eval()
    randomise(model)
    ours = small("dinov2_s14_reg", mlp_width=128)
    expected = ViT(ours, SQUARE)
    load_pretrained(expected, model.state_dict())
    rename = {
        "class_token": "cls_token",
        "position_embedding": "pos_embed",
        "patch_embed.weight": "patch_embed.proj.weight",
        "patch_embed.bias": "patch_embed.proj.bias",
        "final_norm.weight": "norm.weight",
        "final_norm.bias": "norm.bias",
    }
    state = {
        rename.get(name, name).replace("scale1", "ls1.gamma").replace("scale2", "ls2.gamma"): value
        for name, value in expected.state_dict().items()
    }
    state["mask_token"] = torch.zeros(1, 64)
    vit = ViT(ours, SQUARE)
    assert load_pretrained(vit, state).family == "timm"
    images = torch.randn(2, 3, *SQUARE)
    assert_close(run(vit, images).patches, run(expected, images).patches, atol=0, rtol=0)
    with torch.no_grad():
        assert_close(run(vit, images).patches, dino_outputs(model, images)[1], atol=1e-4, rtol=1e-4)
