from __future__ import annotations

import dataclasses
import logging
import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from reference import vit as reference
from slimreid.backbones.layers import (
    attend,
    drop_path,
    patch_coordinates,
    resample_positions,
    rotary_table,
    rotate,
)
from slimreid.backbones.vit import ViT
from slimreid.config.backbones import SIZES, ViTConfig, vit_config
from slimreid.errors import ConfigError, ModelError, SlimReIDWarning
from support.vit import random_vit, small

SIZE = (32, 16)
STYLES = ("clip_vit_b16", "vit_b16", "dinov2_s14_reg", "dinov3_s16")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"width": 65}, "heads"),
        ({"depth": 0}, "depth"),
        ({"activation": "relu"}, "activation"),
        ({"positions": "sine"}, "positions"),
        ({"position_resampling": "nearest"}, "position_resampling"),
        ({"qkv_bias": "maybe"}, "qkv_bias"),
        ({"camera_style": "patch"}, "camera_style"),
        ({"stride": (9, 8)}, "stride"),
        ({"stride": (0, 8)}, "stride"),
        ({"drop_path": 1.0}, "drop_path"),
        ({"registers": -1}, "registers"),
        ({"cameras": -1}, "cameras"),
        ({"norm_eps": 0.0}, "norm_eps"),
        ({"projection": 0}, "projection"),
        ({"positions": "rotary", "width": 60, "heads": 10}, "heads"),
        ({"positions": "rotary", "rotary_base": 1.0}, "rotary_base"),
        ({"class_token": False, "cameras": 2, "camera_style": "class"}, "camera_style"),
    ],
)
def test_config_refuses(changes: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        small("vit_b16", **changes)


def test_every_field_of_the_config_has_its_line() -> None:
    import inspect

    source = inspect.getsource(ViTConfig)
    for field in dataclasses.fields(ViTConfig):
        after = source.split(f"    {field.name}: ", 1)[1].splitlines()[1]
        assert after.strip().startswith('"""'), field.name


@pytest.mark.parametrize("name", SIZES)
def test_named_sizes(name: str) -> None:
    config = vit_config(name)
    with torch.device("meta"):  # shapes only
        vit = ViT(config, (128, 64))
        out = vit(torch.empty(2, 3, 128, 64))
    h, w = config.grid((128, 64))
    assert (h, w) == vit.grid
    assert out.patches.shape == (2, h * w, config.out_width)
    assert out.global_.shape == (2, config.out_width)


def test_parameters_of_the_public_sizes() -> None:
    """Known parameter counts of the published backbones without their heads."""
    known = {
        ("clip_vit_b16", 224): 86_192_640,
        ("vit_b16", 224): 85_798_656,
        ("vit_s16", 224): 21_665_664,
        ("vit_tiny", 224): 5_524_416,
        ("dinov2_s14", 518): 22_056_192,
        ("dinov2_b14", 518): 86_579_712,
    }
    for (name, side), count in known.items():
        with torch.device("meta"):
            vit = ViT(vit_config(name), (side, side))
        assert sum(p.numel() for p in vit.parameters()) == count, name


def test_unknown_size_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'vit_tiny'"):
        vit_config("vit_tinny")


@pytest.mark.parametrize("style", STYLES)
def test_rows_do_not_see_each_other(style: str) -> None:
    """All modalities may go through in one call."""
    vit = random_vit(small(style, cameras=3), SIZE)
    images, cameras = torch.randn(4, 3, *SIZE), torch.tensor([0, 1, 2, 0])
    with torch.no_grad():
        together = vit(images, cameras)
        for r in range(4):
            alone = vit(images[r : r + 1], cameras[r : r + 1])
            assert_close(together.patches[r], alone.patches[0], atol=1e-5, rtol=1e-5)
            assert_close(together.global_[r], alone.global_[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("style", STYLES)
def test_empty_batch(style: str) -> None:
    vit = random_vit(small(style, cameras=2), SIZE)
    out = vit(torch.empty(0, 3, *SIZE), torch.empty(0, dtype=torch.int64))
    assert out.patches.shape == (0, 8, vit.config.out_width)
    assert out.global_.shape == (0, vit.config.out_width)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("training", [True, False])
def test_compiles_into_one_graph(style: str, training: bool) -> None:
    vit = random_vit(small(style, cameras=3), SIZE).train(training)
    compiled = torch.compile(vit, fullgraph=True, backend="eager")
    images, cameras = torch.randn(2, 3, *SIZE), torch.tensor([0, 2])
    expected, out = vit(images, cameras), compiled(images, cameras)
    assert_close(out.patches, expected.patches)
    assert_close(out.global_, expected.global_)


def test_wrong_shapes_are_named() -> None:
    vit = random_vit(small("vit_b16", cameras=2), SIZE)
    with pytest.raises(ModelError, match=r"\(R, 3, H, W\), not \(2, 1, 32, 16\)"):
        vit(torch.zeros(2, 1, *SIZE))
    with pytest.raises(ModelError, match=r"cameras \(2,\), not \(3,\)"):
        vit(torch.zeros(2, 3, *SIZE), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ModelError, match="smaller than one patch"):
        vit(torch.zeros(2, 3, 4, 16))
    with pytest.raises(ConfigError, match="smaller than one patch"):
        ViT(small("vit_b16"), (4, 16))


def test_constructor_says_nothing(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        ViT(small("clip_vit_b16"), SIZE)
    assert capsys.readouterr() == ("", "")
    assert not caplog.records


def test_without_class_token_the_global_is_the_mean() -> None:
    vit = random_vit(small("vit_b16", class_token=False, registers=2), SIZE)
    out = vit(torch.randn(2, 3, *SIZE))
    assert out.patches.shape == (2, 8, 64)
    assert_close(out.global_, out.patches.mean(1))


def test_switches_change_the_result() -> None:
    """Every option of the style is read."""
    images = torch.randn(2, 3, *SIZE)
    base = small("vit_b16", qkv_bias="all")
    plain = random_vit(base, SIZE)(images).global_
    for change in (
        {"activation": "quick_gelu"},
        {"norm_eps": 1e-1},
        {"qkv_bias": "no_key", "positions": "rotary"},
        {"layer_scale": 0.1},
        {"pre_norm": True},
        {"registers": 1},
        {"projection": 64},
        {"stride": (4, 4)},
    ):
        vit = ViT(dataclasses.replace(base, **change), SIZE).eval()
        state = random_vit(base, SIZE).state_dict()
        own = vit.state_dict()
        vit.load_state_dict(
            {k: state[k] if k in state and state[k].shape == v.shape else v for k, v in own.items()}
        )
        assert not torch.allclose(vit(images).global_, plain, atol=1e-4), change
    assert "blocks.0.attn.qkv.bias" not in random_vit(small("vit_b16", qkv_bias="none"), SIZE).state_dict()


def test_rotary_base_is_read() -> None:
    images = torch.randn(1, 3, *SIZE)
    one, two = (
        random_vit(small("dinov3_s16", rotary_base=base), SIZE)(images).global_ for base in (100.0, 10.0)
    )
    assert not torch.allclose(one, two, atol=1e-5)


def test_key_bias_stays_out() -> None:
    vit = ViT(small("dinov3_s16"), SIZE)
    vit(torch.randn(2, 3, *SIZE)).patches.square().sum().backward()
    gradient = vit.blocks[0].attn.qkv.bias.grad.view(3, 64)
    assert gradient[1].abs().max() == 0
    assert gradient[0].abs().max() > 0
    assert gradient[2].abs().max() > 0


# Cameras


@pytest.mark.parametrize("style", ["class", "all"])
def test_unknown_cameras_get_the_mean_and_one_warning(style: str) -> None:
    vit = random_vit(small("clip_vit_b16", cameras=3, camera_style=style, camera_scale=2.0), SIZE)
    images = torch.randn(3, 3, *SIZE)
    with pytest.warns(SlimReIDWarning, match="camera 7 is not among the 3"):
        out = vit(images, torch.tensor([1, 7, -1]))
    unknown = vit(images, torch.tensor([1, -1, 3]))  # the warning filter would make a second one an error
    assert_close(out.global_, unknown.global_)
    known = vit(images, torch.tensor([1, 1, 1]))
    assert_close(out.global_[0], known.global_[0])
    with torch.no_grad():
        vit.camera_embedding[1] = vit.camera_embedding.mean(0)
    assert_close(out.global_[1:], vit(images, torch.tensor([1, 1, 1])).global_[1:], atol=1e-5, rtol=1e-5)


def test_no_cameras_given_is_the_mean_too() -> None:
    vit = random_vit(small("vit_b16", cameras=2), SIZE)
    images = torch.randn(2, 3, *SIZE)
    with pytest.warns(SlimReIDWarning, match="no camera was given"):
        out = vit(images)
    assert_close(out.global_, vit(images, torch.tensor([-1, 5])).global_)


def test_cameras_are_ignored_by_a_model_without_camera_embedding() -> None:
    vit = random_vit(small("vit_b16"), SIZE)
    images = torch.randn(2, 3, *SIZE)
    assert_close(vit(images, torch.tensor([0, 9])).patches, vit(images).patches, atol=0, rtol=0)


def test_camera_style_decides_which_tokens_change() -> None:
    """Seen in front of the first block, where tokens do not mix yet."""
    for style, changed in (("class", [True, False, False]), ("all", [True, True, True])):
        vit = random_vit(small("vit_b16", cameras=2, camera_style=style, registers=1), SIZE)
        seen = []

        def look(i: int, state: object, seen: list[torch.Tensor] = seen) -> object:
            if i == 0:
                seen.append(state.x)  # type: ignore[attr-defined]
            return state

        images = torch.randn(1, 3, *SIZE)
        for camera in (0, 1):
            vit(images, torch.tensor([camera]), hook=look)  # type: ignore[arg-type]
        differs = (seen[0] - seen[1]).abs().amax((0, 2)) > 0
        assert [bool(differs[0]), bool(differs[1]), bool(differs[2:].all())] == changed
        assert bool(differs[2:].any()) == changed[2]


# Training


@pytest.mark.parametrize("style", STYLES)
def test_checkpointing_gives_the_same_gradients(style: str) -> None:
    images = torch.randn(2, 3, *SIZE)
    gradients = []
    for on in (False, True):
        vit = random_vit(small(style, grad_checkpointing=on, drop_path=0.3), SIZE).train()
        torch.manual_seed(1)  # the same branches are dropped
        vit(images).patches.square().sum().backward()
        gradients.append({name: p.grad for name, p in vit.named_parameters()})
    assert_close(gradients[0], gradients[1])


def test_checkpointing_recomputes_blocks() -> None:
    vit = random_vit(small("vit_b16", grad_checkpointing=True), SIZE).train()
    calls = []
    vit.blocks[0].attn.register_forward_hook(lambda *_: calls.append(1))
    vit(torch.randn(1, 3, *SIZE)).global_.sum().backward()
    assert len(calls) == 2


def test_drop_path() -> None:
    torch.manual_seed(0)
    x = torch.ones(4000, 2, 3)
    y = drop_path(x, 0.25, training=True)
    assert_close(y.mean(), torch.tensor(1.0), atol=0.05, rtol=0)
    rows = y.flatten(1)
    assert_close(rows, rows[:, :1].expand_as(rows))  # whole samples
    assert sorted(set(rows[:, 0].tolist())) == pytest.approx([0.0, 1 / 0.75])
    assert drop_path(x, 0.25, training=False) is x
    rates = [block.drop for block in ViT(small("vit_b16", depth=5, drop_path=0.4), SIZE).blocks]
    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("style", STYLES)
def test_bf16_autocast_trains(style: str) -> None:
    vit = random_vit(small(style, cameras=2), SIZE).train()
    images, cameras = torch.randn(2, 3, *SIZE), torch.tensor([0, 1])
    with torch.autocast("cpu", torch.bfloat16):
        out = vit(images, cameras)
    out.patches.float().square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in vit.parameters() if p.grad is not None)
    assert_close(out.patches.float(), vit(images, cameras).patches, atol=0.15, rtol=0.1)


@pytest.mark.parametrize("style", STYLES)
def test_double_precision_model(style: str) -> None:
    vit = random_vit(small(style), SIZE)
    images = torch.randn(2, 3, *SIZE)
    expected = vit(images).patches
    assert_close(vit.double()(images.double()).patches.float(), expected, atol=1e-4, rtol=1e-4)


# Positions


def test_bilinear_positions_equal_plain_loops() -> None:
    table = torch.randn(1, 1 + 12, 5)
    for target in ((6, 2), (2, 6), (8, 8), (1, 1), (4, 3)):
        expected = reference.bilinear(table[0, 1:], (4, 3), target)
        ours = resample_positions(table, (4, 3), target, "bilinear")
        assert_close(ours[0, 1:], expected, atol=1e-5, rtol=1e-5)
        assert_close(ours[:, :1], table[:, :1], atol=0, rtol=0)


def test_resampling_kinds_differ_and_unknown_ones_are_refused() -> None:
    table = torch.randn(1, 16, 4)
    kinds = [
        resample_positions(table, (4, 4), (2, 3), how) for how in ("bicubic", "bicubic_antialias", "bilinear")
    ]
    for i in range(3):
        assert not torch.allclose(kinds[i], kinds[i - 1], atol=1e-3)
    with pytest.raises(ModelError, match="cannot resample positions by 'nearest'"):
        resample_positions(table, (4, 4), (2, 3), "nearest")
    with pytest.raises(ModelError, match="16 positions cannot hold a grid of 5×4"):
        resample_positions(table, (5, 4), (2, 3))


@settings(max_examples=25, deadline=None)
@given(h=st.integers(1, 6), w=st.integers(1, 6), prefix=st.integers(0, 2), seed=st.integers(0, 99))
def test_tall_and_wide_grids_are_transposes(h: int, w: int, prefix: int, seed: int) -> None:
    """The grid counts: h×w and w×h have as many patches and other positions."""
    generator = torch.Generator().manual_seed(seed)
    cells = torch.randn(1, 3, 5, 4, generator=generator)
    lead = torch.randn(1, prefix, 4, generator=generator)

    def table(grid: torch.Tensor) -> torch.Tensor:
        return torch.cat([lead, grid.flatten(1, 2)], dim=1)

    tall = resample_positions(table(cells), (3, 5), (h, w))
    wide = resample_positions(table(cells.transpose(1, 2)), (5, 3), (w, h))
    back = wide[:, prefix:].reshape(1, w, h, 4).transpose(1, 2).flatten(1, 2)
    assert_close(tall[:, prefix:], back, atol=1e-5, rtol=1e-5)
    assert_close(tall[:, :prefix], lead, atol=0, rtol=0)


def test_images_of_another_size_resample_the_positions() -> None:
    vit = random_vit(small("vit_b16"), (32, 32))
    tall = vit(torch.zeros(1, 3, 64, 32))
    wide = vit(torch.zeros(1, 3, 32, 64))
    assert tall.patches.shape == wide.patches.shape == (1, 8 * 4, vit.config.out_width)
    assert not torch.allclose(tall.patches, wide.patches, atol=1e-3)
    fixed = ViT(vit.config, (64, 32)).eval()
    state = vit.state_dict()
    state["position_embedding"] = resample_positions(state["position_embedding"], (4, 4), (8, 4))
    fixed.load_state_dict(state)
    assert_close(fixed(torch.zeros(1, 3, 64, 32)).patches, tall.patches)


def test_rotary_equals_plain_loops() -> None:
    places = torch.tensor([[[-0.5, 0.25], [0.1, -0.9], [0.0, 0.0]]])
    x = torch.randn(1, 1, 2 + 3, 8)
    ours = rotate(x, *rotary_table(places, 2, 8, 50.0))
    angles = reference.rotary_angles([tuple(p) for p in places[0].tolist()], 2, 8, 50.0)
    assert_close(ours[0, 0], reference.turn(x[0, 0], angles), atol=1e-5, rtol=1e-5)
    assert_close(ours[:, :, :2], x[:, :, :2])
    assert_close(ours[:, :, 4], x[:, :, 4])  # the centre of the image is not turned


def test_patch_coordinates() -> None:
    expected = [[-0.5, -2 / 3], [-0.5, 0.0], [-0.5, 2 / 3], [0.5, -2 / 3], [0.5, 0.0], [0.5, 2 / 3]]
    assert_close(patch_coordinates((2, 3)), torch.tensor([expected]))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_and_its_gradients_are_those_of_a_plain_loop(dtype: torch.dtype, biased: bool) -> None:
    B, H, T, D = 2, 3, 5, 8
    q, k, v, wanted_gradient = torch.randn(4, B, H, T, D).to(dtype).unbind(0)
    bias = torch.randn(B, 1, 1, T).to(dtype) if biased else None
    ours = [x.clone().requires_grad_() for x in (q, k, v)]
    plain = [x.double().requires_grad_() for x in (q, k, v)]
    out = attend(*ours, bias)
    expected = torch.zeros(B, H, T, D, dtype=torch.float64)
    for b, h, t in product(range(B), range(H), range(T)):
        logits = [plain[0][b, h, t] @ plain[1][b, h, u] / math.sqrt(D) for u in range(T)]
        if bias is not None:
            logits = [value + bias[b, 0, 0, u].double() for u, value in enumerate(logits)]
        shares = [value.exp() / sum(other.exp() for other in logits) for value in logits]
        expected[b, h, t] = sum(share * plain[2][b, h, u] for u, share in enumerate(shares))
    out.backward(wanted_gradient)
    expected.backward(wanted_gradient.double())
    close = 1e-5 if dtype == torch.float32 else 0.03
    assert out.dtype == dtype
    assert_close(out.double(), expected, atol=close, rtol=close)
    for mine, loop in zip(ours, plain, strict=True):
        assert_close(mine.grad.double(), loop.grad, atol=close, rtol=close)
