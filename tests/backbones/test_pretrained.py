"""Reading files of weights, and refusing what does not fit."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.testing import assert_close

from slimreid.backbones import weight_files
from slimreid.backbones.layers import resample_positions
from slimreid.backbones.pretrained import load_pretrained
from slimreid.backbones.vit import ViT
from slimreid.backbones.weight_conversion import convert_state_dict, detect_family, infer_config
from slimreid.backbones.weight_files import read_weights
from slimreid.backbones.weight_formats import FORMATS
from slimreid.config.backbones import SIZES, vit_config
from slimreid.errors import ModelError
from support.vit import clip_state, random_vit, small, timm_state

SQUARE = (16, 16)  # a grid of 2×2


def clip_vit(size: tuple[int, int] = SQUARE, **changes: Any) -> ViT:
    return ViT(small("clip_vit_b16", projection=48, **changes), size).eval()


def timm_vit(size: tuple[int, int] = SQUARE, **changes: Any) -> ViT:
    return ViT(small("vit_b16", **changes), size).eval()


def parameters(vit: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in vit.named_parameters()}


class Tower(nn.Module):
    """A module that TorchScript can save, with the parameters of a state dict under dotted names."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        for key, value in state.items():
            *path, leaf = key.split(".")
            module: nn.Module = self
            for name in path:
                if name not in module._modules:
                    module.add_module(name, nn.Module())
                module = module._modules[name]
            module.register_parameter(leaf, nn.Parameter(value))

    def forward(self, x: Tensor) -> Tensor:
        return x


def full_clip_state() -> dict[str, Tensor]:
    """Both towers, as OpenAI publishes them: the text tower has block names of the vision tower."""
    state = clip_state()
    return {
        **{f"visual.{key}": value for key, value in state.items()},
        **{key: torch.zeros(2) for key in state if key.startswith("transformer.")},
        "positional_embedding": torch.zeros(77, 32),
        "token_embedding.weight": torch.zeros(5, 32),
        "text_projection": torch.zeros(32, 48),
        "ln_final.weight": torch.zeros(32),
        "ln_final.bias": torch.zeros(32),
        "logit_scale": torch.tensor(4.6),
    }


# Files


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
def test_openai_torchscript_archive(tmp_path: Path, half: bool) -> None:
    state = full_clip_state()
    if half:
        state = {key: value.half() for key, value in state.items()}
    path = tmp_path / "ViT-B-16.pt"
    torch.jit.save(torch.jit.script(Tower(state)), path)
    vit, expected = clip_vit(), clip_vit()
    report = load_pretrained(vit, path)
    assert report.family == "openai_clip"
    assert "token_embedding.weight" in report.extras
    load_pretrained(expected, {key[7:]: value for key, value in state.items() if key.startswith("visual.")})
    assert_close(parameters(vit), parameters(expected), atol=0, rtol=0)
    assert {p.dtype for p in vit.parameters()} == {torch.float32}
    original = clip_state()["transformer.resblocks.1.mlp.c_proj.weight"]
    assert_close(vit.blocks[1].mlp.fc2.weight.detach(), original, atol=1e-3 if half else 0, rtol=0)


@pytest.mark.parametrize("name", ["w.safetensors", "w.bin", "w.pt", "w.pth"])
@pytest.mark.parametrize(
    "wrap", [(), ("model",), ("state_dict",), ("model_state_dict", "state_dict")], ids=str
)
def test_file_kinds_and_wrappers(tmp_path: Path, name: str, wrap: tuple[str, ...]) -> None:
    state = timm_state()
    path = tmp_path / name
    if name.endswith(".safetensors"):
        save_file(state, path)
    else:
        stored: Any = {f"module.{key}": value.half() for key, value in state.items()}
        for key in wrap:
            stored = {key: stored, "epoch": 3}
        torch.save(stored, path)
    vit = timm_vit()
    report = load_pretrained(vit, path)
    assert sorted(report.extras) == ["head.bias", "head.weight"]
    assert report.resampled is None
    assert_close(
        vit.blocks[0].attn.qkv.weight.detach(), state["blocks.0.attn.qkv.weight"], atol=1e-3, rtol=1e-3
    )
    assert_close(vit.position_embedding.detach(), state["pos_embed"], atol=1e-3, rtol=1e-3)


def test_prefixes_of_wrappers_in_any_order() -> None:
    for prefix in ("module._orig_mod.", "_orig_mod.module.", "module."):
        stored = {"state_dict": {prefix + key: value for key, value in timm_state().items()}}
        assert sorted(weight_files.unwrap_state_dict(stored)) == sorted(timm_state())


def test_dtype_and_device_follow_the_model() -> None:
    vit = timm_vit().to(torch.float64)
    load_pretrained(vit, {key: value.half() for key, value in timm_state().items()})
    assert {p.dtype for p in vit.parameters()} == {torch.float64}


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save({"model": timm_state(), "args": argparse.Namespace(lr=1)}, path)
    with pytest.raises(ModelError, match=r"w\.pth: contains more than tensors"):
        load_pretrained(timm_vit(), path)


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights at all"])
def test_broken_files_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelError, match=rf"{name}: "):
        read_weights(path)


def test_truncated_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save(timm_state(), path)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ModelError, match=r"w\.pt: cannot be read"):
        read_weights(path)


def test_missing_file_empty_folder_and_no_state_dict(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        read_weights(tmp_path / "gone.pt")
    with pytest.raises(ModelError, match=r"none of model\.safetensors"):
        read_weights(tmp_path)
    torch.save({"epoch": 1}, tmp_path / "w.pt")
    with pytest.raises(ModelError, match="no state dict of tensors in it, but a dict of epoch"):
        read_weights(tmp_path / "w.pt")
    torch.save(torch.zeros(2), tmp_path / "t.pt")
    with pytest.raises(ModelError, match="but a Tensor"):
        read_weights(tmp_path / "t.pt")


# Hub


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("hf://org/name", ["model.safetensors", "pytorch_model.bin"]),
        ("hf://org/name/pytorch_model.bin", ["pytorch_model.bin"]),
        ("hf://org/name/sub/pytorch_model.bin", ["sub/pytorch_model.bin"]),
    ],
)
def test_hub_addresses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, asked: list[str]
) -> None:
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError

    calls = []

    def download(repository: str, file: str) -> str:
        assert repository == "org/name"
        calls.append(file)
        if file.endswith(".safetensors"):
            raise EntryNotFoundError("404")
        torch.save(timm_state(), tmp_path / "cached.bin")
        return str(tmp_path / "cached.bin")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert load_pretrained(timm_vit(), address).family == "timm"
    assert calls == asked


def test_hub_errors_are_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    def failing(error: Exception) -> Any:
        def download(*_: str) -> str:
            raise error

        return download

    for error, words in (
        (LocalEntryNotFoundError("offline"), "hub cannot be reached.*give its path"),
        (EntryNotFoundError("404"), "none of model.safetensors, pytorch_model.bin is in this repository"),
        (OSError("401 gated"), "OSError: 401 gated.*accept their licence"),
    ):
        monkeypatch.setattr(huggingface_hub, "hf_hub_download", failing(error))
        with pytest.raises(ModelError, match=words):
            read_weights("hf://org/name")
    for address in ("hf://name", "hf://", "hf://org/", "hf:///name"):
        with pytest.raises(ModelError, match="hf://organisation/name"):
            read_weights(address)


def test_hub_offline_for_real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the hub's own offline switch and an empty cache, nothing is asked of the network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"hf://org/name: model\.safetensors is not in the local cache"):
        read_weights("hf://org/name")


# Families


def test_families_are_told_apart() -> None:
    assert detect_family(clip_state()) == "openai_clip"
    assert detect_family(full_clip_state()) == "openai_clip"
    assert detect_family(timm_state()) == "timm"
    assert detect_family(timm_vit().state_dict()) == "slimreid"
    with pytest.raises(ModelError, match=r"no known family.*conv1\.weight"):
        detect_family(["conv1.weight", "layer1.0.conv1.weight"])
    with pytest.raises(ModelError, match="unknown family of weights 'resnet'"):
        convert_state_dict(timm_state(), "resnet")
    with pytest.raises(ModelError, match="not weights of family 'openai_clip'"):
        load_pretrained(clip_vit(), timm_state(), family="openai_clip")


@pytest.mark.parametrize("name", FORMATS)
def test_tables_are_sound(name: str) -> None:
    """Every new name of a table is a parameter of some model, and parts are counted from 0."""
    models = [ViT(small(style, cameras=2), SQUARE) for style in ("clip_vit_b16", "dinov2_s14_reg")]
    known = {key.replace("blocks.0.", "blocks.{i}.") for vit in models for key, _ in vit.named_parameters()}
    table = FORMATS[name]
    for rule in table.rules:
        names = {rule.new.replace("{wb}", end) for end in ("weight", "bias")}
        assert names & known, rule
    for new in {rule.new for rule in table.rules if rule.part is not None}:
        parts = {rule.part for rule in table.rules if rule.new == new and rule.part is not None}
        assert parts == set(range(len(parts)))


def test_own_weights_go_around() -> None:
    vit = random_vit(small("dinov2_s14_reg", cameras=3), (32, 16))
    other = ViT(vit.config, (32, 16))
    load_pretrained(other, vit.state_dict(), source_grid=(4, 2))
    assert_close(parameters(other), parameters(vit), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("state", "camera", "style", "changes"),
    [
        (clip_state(cells=6), "cv_embed", "clip_vit_b16", {"projection": 48}),
        (timm_state(cells=6), "sie_embed", "vit_b16", {}),
    ],
    ids=["openai_clip", "timm"],
)
def test_config_is_read_off_the_tensors(
    state: dict[str, Tensor], camera: str, style: str, changes: dict[str, int]
) -> None:
    state = {**state, camera: torch.randn(5, 1, 64)}
    config = infer_config(convert_state_dict(state).tensors, vit_config(style))
    assert config == small(style, cameras=5, heads=1, **changes)  # 64 channels per head
    load_pretrained(ViT(config, (24, 16)), state, source_grid=(3, 2))
    with pytest.raises(ModelError, match="without a patch embedding"):
        infer_config({}, vit_config(style))


# Positions


@pytest.mark.parametrize("how", ["bicubic", "bilinear"])
def test_positions_are_resampled_by_grid(how: str) -> None:
    state = timm_state(cells=16)
    tall, wide = timm_vit((64, 32)), timm_vit((32, 64))
    report = load_pretrained(tall, state, resampling=how)
    load_pretrained(wide, state, resampling=how)
    assert report.resampled == ((4, 4), (8, 4))
    assert_close(
        tall.position_embedding.detach(), resample_positions(state["pos_embed"], (4, 4), (8, 4), how)
    )
    assert_close(
        wide.position_embedding.detach(), resample_positions(state["pos_embed"], (4, 4), (4, 8), how)
    )
    assert tall.position_embedding.shape == wide.position_embedding.shape
    assert not torch.allclose(tall.position_embedding, wide.position_embedding, atol=1e-3)


def test_resampling_of_the_config_is_the_default() -> None:
    state = timm_state(cells=16)
    vit = timm_vit((64, 32), position_resampling="bilinear")
    load_pretrained(vit, state)
    assert_close(
        vit.position_embedding.detach(), resample_positions(state["pos_embed"], (4, 4), (8, 4), "bilinear")
    )


def test_positions_of_a_grid_that_is_not_square_need_its_shape() -> None:
    state = timm_state(cells=8)
    with pytest.raises(ModelError, match=r"do not make a square grid; give source_grid"):
        load_pretrained(timm_vit((32, 16)), state)
    with pytest.raises(ModelError, match="9 positions do not fit a grid of 2×3"):
        load_pretrained(timm_vit((32, 16)), state, source_grid=(2, 3))
    tall = timm_vit((32, 16))
    assert load_pretrained(tall, state, source_grid=(4, 2)).resampled is None
    assert_close(tall.position_embedding.detach(), state["pos_embed"], atol=0, rtol=0)
    assert load_pretrained(timm_vit((32, 16)), state, source_grid=(2, 4)).resampled == ((2, 4), (4, 2))


def test_class_token_without_position_gets_zeros() -> None:
    state = timm_state()
    state["pos_embed"] = state["pos_embed"][:, 1:]
    vit = timm_vit()
    load_pretrained(vit, state, source_grid=(2, 2))
    assert_close(vit.position_embedding[:, 1:].detach(), state["pos_embed"])
    assert vit.position_embedding[:, 0].abs().max() == 0


def test_distilled_deit() -> None:
    state = timm_state(cells=5)  # one of the five is the position of the distillation token
    state["dist_token"] = torch.zeros(1, 1, 64)
    state["head_dist.weight"] = torch.zeros(10, 64)
    vit = timm_vit()
    with pytest.raises(ModelError, match="dist_token"):
        load_pretrained(vit, state)
    report = load_pretrained(vit, state, allow_unexpected=["dist_token"])
    assert report.unexpected == ("dist_token",)
    assert_close(vit.position_embedding[:, :1].detach(), state["pos_embed"][:, :1])
    assert_close(vit.position_embedding[:, 1:].detach(), state["pos_embed"][:, 2:])


# Refusals


def test_everything_that_does_not_fit_is_in_one_message() -> None:
    state = timm_state()
    del state["norm.bias"], state["blocks.1.mlp.fc2.weight"]
    state |= {"surprise": torch.zeros(1), "blocks.0.gate": torch.zeros(1)}
    state["blocks.0.mlp.fc1.weight"] = torch.zeros(95, 64)
    vit = timm_vit()
    before = parameters(vit)
    with pytest.raises(ModelError) as caught:
        load_pretrained(vit, state)
    text = str(caught.value)
    assert text.startswith("the weights given: weights of family 'timm' do not fit")
    assert "missing (2; in Python, allow_missing" in text
    assert "unexpected (2; in Python, allow_unexpected" in text
    assert "mismatched (1; in Python, allow_mismatched" in text
    for name in ("final_norm.bias", "blocks.1.mlp.fc2.weight", "surprise", "blocks.0.gate"):
        assert f"    {name}\n" in text + "\n"
    assert "blocks.0.mlp.fc1.weight: (95, 64) in the file, (96, 64) in the model" in text
    assert_close(parameters(vit), before, atol=0, rtol=0)  # nothing was loaded by halves


def test_each_kind_passes_when_allowed_by_name() -> None:
    state = timm_state()
    del state["norm.bias"]
    state["surprise.one"] = torch.zeros(1)
    state["blocks.0.mlp.fc1.weight"] = torch.zeros(95, 64)
    allow: dict[str, list[str]] = {
        "allow_missing": ["final_norm.bias"],
        "allow_unexpected": ["surprise.*"],
        "allow_mismatched": ["blocks.0.mlp.fc1.weight"],
    }
    vit = timm_vit()
    kept = vit.blocks[0].mlp.fc1.weight.detach().clone()
    report = load_pretrained(vit, state, **allow)
    assert report.missing == ("final_norm.bias",)
    assert report.unexpected == ("surprise.one",)
    assert report.mismatched == ("blocks.0.mlp.fc1.weight",)
    assert_close(vit.blocks[0].mlp.fc1.weight.detach(), kept)
    assert_close(vit.final_norm.weight.detach(), state["norm.weight"])
    for kind in allow:
        with pytest.raises(ModelError):
            load_pretrained(timm_vit(), state, **{**allow, kind: []})


def test_weights_that_the_model_has_no_place_for_are_unexpected() -> None:
    vit = clip_vit()
    bare = ViT(small("clip_vit_b16", projection=None, pre_norm=False), SQUARE)
    with pytest.raises(ModelError) as caught:
        load_pretrained(bare, full_clip_state())
    for key in ("visual.proj", "visual.ln_pre.weight", "visual.ln_pre.bias"):
        assert f"    {key}\n" in str(caught.value) + "\n"
    load_pretrained(bare, full_clip_state(), allow_unexpected=["visual.proj", "visual.ln_pre.*"])
    with pytest.raises(ModelError, match=r"missing \(1; .*\n    projection.weight"):
        load_pretrained(vit, {k: v for k, v in clip_state().items() if k != "proj"})


def test_camera_embedding_keeps_its_start_but_never_loses_a_stored_one() -> None:
    vit = clip_vit(cameras=3)
    start = vit.camera_embedding.detach().clone()
    assert load_pretrained(vit, clip_state()).missing == ("camera_embedding",)
    assert_close(vit.camera_embedding.detach(), start)
    stored = {**clip_state(), "cv_embed": torch.randn(3, 1, 64)}
    load_pretrained(vit, stored)
    assert_close(vit.camera_embedding.detach(), stored["cv_embed"])
    with pytest.raises(
        ModelError, match=r"camera_embedding: \(3, 1, 64\) in the file, \(4, 1, 64\) in the model"
    ):
        load_pretrained(clip_vit(cameras=4), stored)
    with pytest.raises(ModelError, match=r"unexpected \(1; .*\n    cv_embed"):
        load_pretrained(clip_vit(), stored)


def test_half_of_a_joined_tensor_is_reported() -> None:
    import transformers

    config = transformers.ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=96,
        image_size=16,
        patch_size=8,
    )
    state = transformers.ViTModel(config).state_dict()
    key = next(
        key
        for key in state
        if key.endswith(("0.attention.k_proj.weight", "0.attention.attention.key.weight"))
    )
    partner = key.replace("k_proj", "q_proj").replace("key", "query")
    del state[key]
    with pytest.raises(ModelError) as caught:
        load_pretrained(timm_vit(), state)
    assert "    blocks.0.attn.qkv.weight\n" in str(caught.value)
    assert f"    {partner}\n" in str(caught.value)


# Documentation


def test_documentation_names_every_size_and_family() -> None:
    text = (Path(__file__).parents[2] / "docs" / "weights.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in text.splitlines() if line.startswith("| `") and "hf" in line]
    sizes = {row[0].strip(" `") for row in rows}
    assert sizes | {"nano"} == set(SIZES)
    assert {row[1].strip(" `") for row in rows} <= set(FORMATS)
    assert all(f"`{family}`" in text for family in FORMATS)
    hook: dict[str, Any] = {}
    exec(text.split("```python\n")[2].split("```")[0], hook)
    out = timm_vit(depth=7)(torch.randn(2, 3, *SQUARE), hook=hook["drop_half"])
    assert out.patches.shape == (2, 2, 64)
