"""Timing, memory and tokens of models."""

import json
import math
from pathlib import Path

import pytest
import torch

from slimreid.cli.app import main
from slimreid.config import ModelConfig
from slimreid.errors import ConfigError
from slimreid.models.reid_model import build_model
from slimreid.profiling.latency import measure_interleaved, median_ratios, medians
from slimreid.profiling.profile import peak_tensor_bytes, profile_model
from support.runs import NAMES


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return build_model(ModelConfig(backbone="nano"), (32, 16), NAMES, 5)


def test_cases_take_turns_and_warm_up():
    calls = []
    cases = {name: (lambda name=name: calls.append(name)) for name in "ab"}
    seconds = measure_interleaved(cases, 3, warmup=2)
    assert calls == ["a", "b"] * 5
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}
    assert all(value >= 0 for values in seconds.values() for value in values)
    for wrong in ({"repeats": 0}, {"repeats": 1, "warmup": -1}):
        with pytest.raises(ConfigError, match="repeats must be at least 1"):
            measure_interleaved(cases, **wrong)


def test_rounds_can_be_watched():
    seen = []

    def watch(rounds):
        for number in rounds:
            seen.append(number)
            yield number

    measure_interleaved({"a": lambda: None}, 2, rounds=watch)
    assert seen == [0, 1, 2]


def test_ratios_are_taken_within_a_repetition():
    seconds = {"plain": [1.0, 10.0, 2.0], "fast": [0.5, 2.0, 1.0]}
    assert median_ratios(seconds, "plain") == {"plain": 1.0, "fast": 2.0}
    assert medians(seconds) == {"plain": 2.0, "fast": 1.0}


def test_peak_counts_what_lives_at_once():
    x = torch.ones(1000)

    def chain():
        y = x + 1  # 4000 bytes
        z = y * 2  # both live
        del y
        return z.view(10, 100) + 1  # z and the result

    assert peak_tensor_bytes(chain, [x]) == 8000
    assert peak_tensor_bytes(lambda: [x + 1 for _ in range(5)], [x]) == 20_000
    assert peak_tensor_bytes(lambda: x.view(2, 500), [x]) == 0
    weight = torch.ones(1000, requires_grad=True)
    backward = peak_tensor_bytes(lambda: (weight.exp() * 2).sum().backward(), [weight])
    assert backward >= 8000  # exp is kept for the gradient


def test_peak_grows_with_the_batch(model):
    small, large = profile_model(model, [1, 4], repeats=1).batches
    assert 3 * small.peak_bytes < large.peak_bytes <= 4 * small.peak_bytes


def test_a_profile_is_consistent(model):
    model.train()
    profile = profile_model(model, [2], repeats=4)
    assert model.training
    model.eval()
    (row,) = profile.batches
    assert 0 < row.p50 <= row.p95
    assert math.isclose(row.samples_per_second, 2 / row.p50)
    assert math.isclose(row.images_per_second, 3 * row.samples_per_second)
    assert profile.summary.parameters == sum(p.numel() for p in model.parameters())
    assert profile.weight_bytes == sum(t.nbytes for t in [*model.parameters(), *model.buffers()])
    patches = model.backbone.grid[0] * model.backbone.grid[1]
    assert profile.summary.block_tokens == (patches + 1,) * len(model.backbone.blocks)
    assert json.loads(json.dumps(profile.to_dict()))["batches"][0]["batch"] == 2
    for wrong in ([], [0]):
        with pytest.raises(ConfigError, match="batch sizes must be at least 1"):
            profile_model(model, wrong)


def test_the_command_on_a_config_and_a_run(trained_run, tmp_path, capsys):
    out = tmp_path / "p.json"
    arguments = ["--batch-sizes", "1,2", "--repeats", "2", "--out", str(out)]
    assert main(["profile", str(trained_run), *arguments]) == 0
    printed = capsys.readouterr().out
    for words in ("GFLOPs", "p95 ms", "samples/s", "images/s", "peak MB", "into blocks 1 to 4", "kept"):
        assert words in printed
    values = json.loads(out.read_text())
    assert [row["batch"] for row in values["batches"]] == [1, 2]
    assert values["modalities"] == list(NAMES)

    config = tmp_path / "c.yaml"
    config.write_text(
        "model: {backbone: nano, reduction: none, fusion: none}\ntransforms: {height: 32, width: 16, pad: 2}\n"
    )
    changes = [
        "--set",
        "data.modalities=[rgb]",
        "--batch-sizes",
        "1",
        "--repeats",
        "1",
        "--out",
        str(out),
        "--overwrite",
    ]
    assert main(["profile", str(config), *changes, "--threads", "1"]) == 0
    values = json.loads(out.read_text())
    assert (values["modalities"], values["threads"], values["summary"]["tokens"]) == (
        ["rgb"],
        1,
        {"patches": 8},
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 1, "nowhere: no such model"),
        (["nowhere.yaml"], 2, "nowhere.yaml: no such file"),
        (["RUN", "--batch-sizes", "1,x"], 2, "--batch-sizes: 'x' is not a whole number"),
        (["RUN", "--batch-sizes", "0"], 2, "--batch-sizes takes numbers over 0"),
        (["RUN", "--repeats", "0"], 2, "repeats must be at least 1"),
        (["RUN", "--set", "model.reduction=none", "model.fusion=none"], 2, "--set changes a config"),
        (["RUN", "--threads", "0"], 2, "threads must be at least 1"),
        (["RUN", "--device", "abacus"], 2, "device 'abacus' cannot be used"),
    ],
)
def test_wrong_use_is_explained(trained_run, arguments, code, message, capsys):
    words = [str(trained_run) if word == "RUN" else word for word in arguments]
    assert main(["profile", *words]) == code
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_example_of_the_page_runs():
    page = (Path(__file__).parents[2] / "docs" / "profiling.md").read_text(encoding="utf-8")
    values = {}
    exec(page.split("```python\n")[1].split("```")[0], values)
    assert values["profile"].batches[1].batch == 8
    assert values["ratios"]["product"] == 1
