"""Commands, links and examples of the documentation are valid, and commands that need no data really run.

A command that cannot run here says what it needs: `# needs RGBNT201` after it, or as first line of its block.
"""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slimreid
from slimreid.cli.app import main
from slimreid.cli.parser import parse_words

ROOT = Path(__file__).parents[1]
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
PAGES = [*READMES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"#\s*needs\s+\S")
LAUNCHERS = ("torchrun", "accelerate")

ELSEWHERE = ("quickstart", "report", "ablate", "export")
"""Commands that take too long to be run for every line; each is run by a test of its own."""

TINY_WORLD = "--identities 8 --cameras 2 --images-per-camera 2 --size 32x16 --workers 1"
TINY_BATCH = (
    "--transforms.height 32 --transforms.width 16 --transforms.pad 2 --batch.num_ids 2 --batch.num_instances 2 "
    "--data.workers 0"
)
FASTER = {
    "data synth": TINY_WORLD,
    "data preview": TINY_BATCH,
    "data simulate": "--workers 1",
    "train": f"{TINY_BATCH} --train.epochs 2 --optim.warmup_epochs 1 --train.select_on last",
    "evaluate": "--workers 0",
    "compare": "--batch 2 --repeats 1",
    "profile": "--batch-sizes 1 --repeats 1",
}
"""What is added to a command so that it takes a second; of an option given twice the last counts."""

OF_THE_TINY_WORLD = {"000064": "000008", "000063": "000007", "epoch_0020": "epoch_0002"}
"""The last identities of a world of the usual size and the last epoch of its run -> those of the tests."""


@dataclass(frozen=True)
class Command:
    """One `slimreid` command line of a page."""

    page: str
    words: tuple[str, ...]
    """Without `slimreid`."""
    launched: bool
    """By torchrun or accelerate."""
    needs: bool
    """Whether it says that it needs something that is not here."""

    @property
    def name(self) -> str:
        return " ".join(self.words[: 2 if self.words[:1] in (("data",), ("model",), ("gallery",)) else 1])


def blocks(page: Path, *languages: str) -> list[str]:
    return [
        code for language, code in FENCE.findall(page.read_text(encoding="utf-8")) if language in languages
    ]


def commands(page: Path) -> Iterator[Command]:
    for code in blocks(page, "", "sh", "bash", "console"):
        lines = code.replace("\\\n", " ").splitlines()
        whole = bool(lines) and bool(NEEDS.match(lines[0]))
        for line in lines:
            first = line.partition(" ")[0]
            if first not in ("slimreid", *LAUNCHERS):
                continue
            words = shlex.split(line, comments=True)
            own = tuple(words[words.index("slimreid") + 1 :])
            yield Command(page.name, own, first in LAUNCHERS, whole or bool(NEEDS.search(line)))


ALL = [command for page in PAGES if page != READMES[1] for command in commands(page)]
"""The Chinese README has the commands of the English one; a test compares them."""


@pytest.mark.parametrize("command", ALL, ids=lambda c: f"{c.page}: {' '.join(c.words)}")
def test_commands_exist_with_these_options(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    if "--help" in command.words or command.words == ("--version",):
        return
    parse_words(command.words)


def test_the_readme_has_commands():
    assert any(command.page == "README.md" for command in ALL)


@pytest.mark.parametrize("name", [name for name in ELSEWHERE if any(c.name == name for c in ALL)])
def test_commands_that_are_not_run_here_are_run_by_another_test(name):
    call = re.compile(rf'main\(\s*\[\s*"{name}"')
    others = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    assert any(call.search(path.read_text(encoding="utf-8")) for path in others), name


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """A folder in which the commands of a page can be typed: a tiny world `w`, the configs, a finished run."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "configs", folder / "configs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["data", "synth", "w", *TINY_WORLD.split()]) == 0
        train = ["train", "configs/synthetic/sdtps.yaml", "--data.manifest", "w", "--out", "run"]
        assert main([*train, *FASTER["train"].split()]) == 0
    return folder


def runs_here(command: Command) -> bool:
    return not (command.needs or command.launched or command.name in ELSEWHERE)


def in_the_tiny_world(word: str) -> str:
    for usual, tiny in OF_THE_TINY_WORLD.items():
        word = word.replace(usual, tiny)
    return word


def prepare(command: Command) -> None:
    """Put runs where a command reads them, and take away what it would refuse to overwrite."""
    words = list(command.words)
    if command.name == "data synth":
        shutil.rmtree(words[2], ignore_errors=True)
    for before, word in pairwise(words):
        if before == "--out":
            if command.name in ("train", "data simulate") and "--resume" not in words:
                shutil.rmtree(word, ignore_errors=True)
        elif (match := re.match(r"runs/[\w-]+", word)) and not Path(match[0]).exists():
            shutil.copytree("run", match[0])


@pytest.mark.parametrize("page", sorted({c.page for c in ALL if runs_here(c)}))
def test_commands_of_a_page_run(page, workshop, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(shutil.copytree(workshop, tmp_path / "workshop"))
    for command in ALL:
        if command.page != page or not runs_here(command):
            continue
        prepare(command)
        words = [*map(in_the_tiny_world, command.words), *FASTER.get(command.name, "").split()]
        code = main(words)
        told = capsys.readouterr()
        assert code == 0, f"slimreid {' '.join(words)}\n{told.out}{told.err}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_are_there(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, page.name


IMPORT = re.compile(
    r"^(?:from (slimreid[\w.]*) import (\([^)]+\)|.+)|import (slimreid[\w.]*))$", re.MULTILINE
)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_what_examples_import_exists(page):
    for code in blocks(page, "python", ""):
        for module, names, bare in IMPORT.findall(code):
            found = importlib.import_module(module or bare)
            for name in re.findall(r"\w+", names.partition("#")[0]):
                assert hasattr(found, name), f"{page.name}: {module}.{name}"


def test_the_readmes_are_short_and_say_the_same():
    english, chinese = (path.read_text(encoding="utf-8") for path in READMES)
    assert FENCE.findall(english) == FENCE.findall(chinese)
    for pattern in (r"\]\((?!README)([^)]+)\)", r"^(#+) ", r"^\|"):
        assert re.findall(pattern, english, re.MULTILINE) == re.findall(pattern, chinese, re.MULTILINE)
    assert max(len(text.splitlines()) for text in (english, chinese)) <= 120
    assert "](README.zh-CN.md)" in english[:200]
    assert "](README.md)" in chinese[:200]


def test_the_example_of_the_readme_runs(workshop, tmp_path, monkeypatch):
    (code,) = blocks(READMES[0], "python")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(workshop / "run", "runs/first")
    test = workshop / "w" / "test"
    for folder, names in {"RGB": ("a_rgb.jpg", "b_rgb.jpg"), "TI": ("a_tir.jpg",)}.items():
        for name, image in zip(names, sorted((test / folder).iterdir()), strict=False):
            shutil.copy(image, name)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["similarity"].shape == (2, 2)
    itself, other = names["similarity"].diagonal(), names["similarity"][[0, 1], [1, 0]]
    assert (itself > other).all(), "a sample is most like itself"


def test_the_example_of_missing_modalities_runs():
    (code,) = blocks(ROOT / "docs" / "missing.md", "python")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["night"].features["both"].shape == (2, 576)


def test_the_example_of_identification_runs(capsys):
    (code,) = blocks(ROOT / "docs" / "identification.md", "python")
    exec(code, {})
    told = capsys.readouterr().out
    assert "state='known'" in told
    assert "name='Ann'" in told
    assert "it needs at least 2,995 searches" in told


def test_the_example_without_slimreid_runs(exported, tmp_path, monkeypatch):
    (code,) = (c for c in blocks(ROOT / "docs" / "export.md", "python") if "slimreid" not in c)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 15
    monkeypatch.chdir(tmp_path)
    shutil.copytree(exported, "exported")
    images = sorted((exported.parent / "set" / "rgb").iterdir())
    for name, image in zip(("a.jpg", "b.jpg"), images, strict=False):
        shutil.copy(image, name)
    names: dict[str, Any] = {}
    exec(code, names)
    expected = slimreid.load(exported.parent / "run").embed({"rgb": ["a.jpg", "b.jpg"]})
    assert names["features"] == pytest.approx(np.asarray(expected), abs=1e-3)
