"""How the built-in model is made: which stage starts from which, and that a second start continues."""

from __future__ import annotations

from pathlib import Path

import people_tiny
import pytest

from slimreid.config.files import load_config
from slimreid.inference.model_card import MODEL_NAME
from slimreid.runs.folder import RunFolder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def calls(monkeypatch):
    """Commands and scripts as they are called; each leaves the file that tells that it is done."""
    found: list[list[str]] = []

    def stand_in(name, file):
        def call(words):
            found.append([name, *words] if name else list(words))
            out = Path(words[words.index("--out") + 1])
            if words[:2] != ["data", "import"]:
                out.mkdir(parents=True, exist_ok=True)
                (out / file(words)).write_text("{}")
            return 0

        return call

    def file_of_command(words):
        return "manifest.csv" if words[0] == "data" else RunFolder(Path()).result_file.name

    monkeypatch.setattr(people_tiny, "slimreid", stand_in("", file_of_command))
    monkeypatch.setattr(people_tiny.average, "main", stand_in("average", lambda words: MODEL_NAME))
    monkeypatch.setattr(people_tiny.ship, "main", lambda words: found.append(["ship", *words]) or 0)
    return found


def value(words, option):
    return words[words.index(option) + 1]


def test_every_stage_begins_from_the_one_before(calls, tmp_path):
    out = str(tmp_path / "made")
    given = ["market", "weights.pth", "--out", out, "--seed", "5", "--held-out", "300:700"]
    assert people_tiny.main(given) == 0
    imported, simulated, full, slim, *looks, mean, shipped = calls
    assert value(imported, "--train-identities") == "0:300,700:751"
    assert value(imported, "--test-identities") == "300:700"
    assert simulated[:2] == ["data", "simulate"]
    assert [c[1] for c in (full, slim, *looks)] == ["people/full", "people/slim", *["people/looks"] * 3]
    assert value(full, "--model.pretrained") == "weights.pth"
    assert value(slim, "--train.init_from") == value(slim, "--train.teacher") == value(full, "--out")
    assert [value(run, "--seed") for run in (full, slim, *looks)] == ["5", "5", "5", "6", "5"]
    assert {value(run, "--train.init_from") for run in looks} == {value(slim, "--out")}
    assert mean[1:4] == [value(run, "--out") for run in looks]
    assert len(set(mean[1:4])) == 3
    assert ["--transforms.erase" in run for run in looks] == [False, False, True]
    assert shipped == ["ship", value(mean, "--out")]
    calls.clear()
    assert people_tiny.main([*given, "--no-ship"]) == 0
    assert calls == [], "nothing is made twice"


def test_options_of_the_last_stage_exist():
    config = load_config([ROOT / "configs/people/looks.yaml"], option_pairs(people_tiny.ERASED))
    assert (config.transforms.erase, config.transforms.degrade.occlusion) == (0.4, 0.0)
    assert config.transforms.degrade.grey_batch > 0


def option_pairs(text):
    words = text.split()
    return [f"{name.removeprefix('--')}={word}" for name, word in zip(words[::2], words[1::2], strict=True)]


def test_a_stage_that_fails_ends_it_in_one_line(calls, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(people_tiny.average, "main", lambda words: 2)
    assert people_tiny.main(["market", "weights.pth", "--out", str(tmp_path / "made")]) == 1
    assert "the same command goes on from here" in capsys.readouterr().err
    assert not any(words[0] == "ship" for words in calls)
