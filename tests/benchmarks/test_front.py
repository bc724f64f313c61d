"""The front: token merging against plain loops, and the benchmark on tiny runs."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import tome as reference
from slimreid.config import ModelConfig
from slimreid.errors import ConfigError
from slimreid.models.reid_model import build_model
from slimreid.profiling.cost import summarise
from support.models import write_random_model
from support.runs import write_set

SIZE = (64, 32)
"""Images of 8×4 patches for the small backbone."""


@pytest.fixture(scope="module")
def tome(load_benchmark):
    return load_benchmark("tome")


@pytest.fixture
def front(load_benchmark):
    threads = torch.get_num_threads()
    yield load_benchmark("front")
    torch.set_num_threads(threads)


@given(n=st.integers(2, 9), r=st.integers(1, 6), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_merging_equals_plain_loops(tome, n, r, seed):
    generator = torch.Generator().manual_seed(seed)
    x, metric = (torch.randn(2, n + 1, w, generator=generator, dtype=torch.float64) for w in (3, 4))
    sizes = torch.randint(1, 4, (2, n, 1), generator=generator).double()
    places = torch.rand(2, n, 2, generator=generator, dtype=torch.float64)
    merging = tome.ToMe(r)
    merging.size, merging.positions = sizes, places
    out = merging.merge(x, metric, 1)
    for b in range(2):
        rows = torch.cat([x[b, 1:], places[b]], dim=1).tolist()
        expected, size = reference.merge_image(rows, metric[b, 1:].tolist(), sizes[b, :, 0].tolist(), r)
        found = torch.cat([out[b, 1:], merging.positions[b]], dim=1)
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
        assert merging.size[b, :, 0].tolist() == size
        assert sum(size) == float(sizes[b].sum()), "no patch is lost"
    assert torch.equal(out[:, 0], x[:, 0]), "the class token is left alone"


def test_attention_counts_a_token_as_often_as_it_has_patches(tome):
    torch.manual_seed(0)
    model = (
        build_model(ModelConfig(backbone="nano", reduction="none", fusion="none"), SIZE, ("rgb",), 2)
        .double()
        .eval()
    )
    attention = model.backbone.blocks[0].attn
    x = torch.randn(1, 5, model.backbone.config.width, dtype=torch.float64)
    sizes = torch.tensor([[1.0, 3.0, 1.0, 2.0, 5.0]], dtype=torch.float64)
    out, keys = tome.attend(attention, x, None, sizes.log())
    q, k, v = attention.qkv(x)[0].view(5, 3, attention.heads, -1).permute(1, 2, 0, 3).tolist()
    heads = [reference.weighted_attention(*one, sizes[0].tolist()) for one in zip(q, k, v, strict=True)]
    joined = torch.tensor(heads, dtype=torch.float64).transpose(0, 1).flatten(1)
    torch.testing.assert_close(out[0], attention.proj(joined))
    torch.testing.assert_close(keys[0], torch.tensor(k, dtype=torch.float64).mean(0))


@pytest.mark.parametrize("metric", ["keys", "tokens"])
def test_equal_patches_merge_without_loss(tome, metric):
    """Of an image of one colour, without positions, all patches are equal: weights by size make up for them."""
    torch.manual_seed(0)
    config = ModelConfig(backbone="nano", reduction="none", fusion="mean")
    model = build_model(config, SIZE, ("rgb", "tir"), 2).double().eval()
    torch.nn.init.zeros_(model.backbone.position_embedding)
    images = {
        name: torch.rand(3, 3, 1, 1, dtype=torch.float64).expand(3, 3, *SIZE) for name in ("rgb", "tir")
    }
    with torch.inference_mode():
        expected = model(images).features
        before = summarise(model.float())
        merged = tome.install(model.double(), 5, metric)
        found = merged(images).features
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    after = summarise(merged.float())
    assert after.gflops < 0.8 * before.gflops
    N, depth = SIZE[0] * SIZE[1] // model.backbone.config.patch_size**2, model.backbone.config.depth
    assert after.block_tokens == tuple(N + 1 - 5 * done for done in range(depth))


@pytest.mark.parametrize("backbone", ["nano", "dinov3_s16"])
def test_merging_trains_with_learned_and_rotary_positions(tome, backbone):
    torch.manual_seed(0)
    model = build_model(ModelConfig(backbone=backbone, reduction="none", fusion="mean"), SIZE, ("rgb",), 2)
    tome.install(model, 1)
    output = model.train()({"rgb": torch.randn(2, 3, *SIZE)})
    output.logits["fused"].square().sum().backward()
    gradients = [p.grad for p in model.backbone.blocks.parameters() if p.grad is not None]
    assert gradients
    assert all(bool(g.isfinite().all()) for g in gradients)


def test_merging_refuses_what_it_does_not_fit(tome):
    with pytest.raises(ConfigError, match="r of at least 1"):
        tome.ToMe(0)
    config = ModelConfig(backbone="nano", reduction="none", fusion="none", grad_checkpointing=True)
    with pytest.raises(ConfigError, match="without grad_checkpointing"):
        tome.install(build_model(config, SIZE, ("rgb",), 2), 1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Unslimmed and slimmed models of two seeds; their data lies beside them."""
    folder = tmp_path_factory.mktemp("front")
    manifest = write_set(folder / "set")
    for seed in (0, 1):
        options = (f"seed={seed}", "model.reduction=none", "model.fusion=mean")
        write_random_model(folder / f"base-seed{seed}", manifest, *options, seed=seed)
        options = (f"seed={seed}", "model.reduction=in_backbone")
        write_random_model(folder / f"slim-seed{seed}", manifest, *options, seed=seed)
    return folder


FAST = ["--batch", "2", "--repeats", "1"]


def test_every_method_is_measured_and_a_second_start_goes_on(front, runs, tmp_path, capsys, monkeypatch):
    path = tmp_path / "front.json"
    command = [
        str(runs / "base-seed0"),
        "--schedules",
        "[[0.5, 0.5]]",
        "--r",
        "1",
        "--json",
        str(path),
        *FAST,
    ]
    assert front.main(command) == 0
    content = json.loads(path.read_text())
    assert [p["method"] for p in content["points"]] == list(front.points.METHODS)
    for point in content["points"]:
        assert point["kind"] == "training-free"
        assert 0 < point["map"] <= 1
        assert point["ratio"] > 0
        assert point["difference"]["value"] == pytest.approx(point["map"] - point["unslimmed_map"])
    strengths = [p["strength"] for p in content["points"]]
    assert strengths == ["0.5 @ 0.5"] * 3 + ["r = 1 by keys"]
    assert "merging" in capsys.readouterr().out
    cut = {**content, "points": content["points"][:3]}
    path.write_text(json.dumps(cut))
    asked = []
    retrieve = front.points.retrieve
    monkeypatch.setattr(front.points, "retrieve", lambda *a: asked.append(a) or retrieve(*a))
    assert front.main(command) == 0
    assert len(asked) == 2, "the unslimmed model and the one way that was missing"
    again = json.loads(path.read_text())["points"]
    assert [p["map"] for p in again] == [p["map"] for p in content["points"]]
    assert front.main([*command, "--batch", "3"]) == 2
    assert "was measured with other batch" in capsys.readouterr().err


def test_seeds_of_trained_runs_are_one_point(front, runs, tmp_path, capsys):
    path = tmp_path / "trained.json"
    given = [str(runs / f"{name}-seed{seed}") for name in ("slim", "base") for seed in (0, 1)]
    command = ["--trained", *given[:2], "--unslimmed", *given[2:], "--json", str(path), *FAST]
    assert front.main(command) == 0
    (point,) = json.loads(path.read_text())["points"]
    assert (point["kind"], point["method"], point["strength"]) == ("trained", "ours", "slim")
    assert point["seeds"] == [0, 1]
    assert point["map"] == pytest.approx(sum(point["maps"]) / 2)
    low, value, high = (point["difference"][key] for key in ("low", "value", "high"))
    assert low <= value <= high
    assert value == pytest.approx(point["map"] - point["unslimmed_map"])
    picture = tmp_path / "front.png"
    assert front.main(["--plot", str(picture), str(path)]) == 0
    assert picture.stat().st_size > 5000
    assert front.main(["--trained", *given[:1]]) == 2
    assert "--trained needs --unslimmed" in capsys.readouterr().err
    assert front.main([given[0]]) == 2
    assert "its tokens are reduced in the backbone already" in capsys.readouterr().err


def test_token_merging_is_trained_by_the_ordinary_trainer(front, trained_run, tmp_path):
    """Started again it goes on; what is measured afterwards merges too."""
    run, output = tmp_path / "run", tmp_path / "tome"
    shutil.copytree(trained_run, run)
    command = ["--train-tome", str(run), "--epochs", "1", "--r", "1", "--out", str(output)]
    assert front.main(command) == 0
    result = json.loads((output / "result.json").read_text())
    assert set(result["sources"]) == {"init_from", "teacher"}
    loaded = front.points.load_trained(output)
    assert front.points.method_of(loaded) == front.points.TOME
    assert front.points.retrieve(loaded, None).map == pytest.approx(result["test"]["map"], abs=1e-6)
    assert front.learner.build_model is build_model, "the library is as it was"
    assert front.main([*command[:-4], "--r", "2", "--out", str(output)]) == 2
