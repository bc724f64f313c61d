"""Recipes are found by name in the checkout and in an installed package, everywhere a config is taken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slimreid.cli.parser import parse_words
from slimreid.config import recipes
from slimreid.config.files import load_config
from slimreid.config.recipes import find_config, is_config, recipe_names, recipe_path
from slimreid.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("command", "more"),
    [("train", []), ("ablate", ["--grid", "optim.lr=1,2"]), ("data preview", []), ("model summary", [])],
)
@pytest.mark.parametrize("form", [["synthetic/sdtps"], ["--config", "synthetic/sdtps"]])
def test_every_command_takes_a_recipe_by_name(command, more, form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = parse_words([*command.split(), *form, *more]).options.config
    assert config == load_config([recipe_path("synthetic/sdtps")])


def test_a_file_wins_over_a_recipe_and_later_ones_over_earlier(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "synthetic").mkdir()
    (tmp_path / "synthetic" / "slim").write_text("seed: 5")
    assert load_config(["synthetic/slim"]).seed == 5
    (tmp_path / "c.yaml").write_text("seed: 6")
    config = parse_words(["train", "synthetic/sdtps", "--config", "c.yaml", "--optim.lr", "1"]).options.config
    assert (config.seed, config.optim.lr, config.model.backbone) == (6, 1.0, "nano")


@pytest.mark.parametrize("name", ["synthetic/sdpts", "configs/synthetic/sdtps.yaml", "synthetic/sdtps.yaml"])
def test_an_unknown_name_gets_the_nearest(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"no such file, and no recipe of this name; did you mean synthetic/sdtps"
    ):
        find_config(name)


def test_the_list_names_all_with_a_line_each():
    lines = parse_words(["train", "--list"]).splitlines()
    assert [line.split()[0] for line in lines] == recipe_names()
    assert all(len(line.split()) > 3 for line in lines)


def test_what_is_a_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_config("synthetic/sdtps")
    assert is_config("some.yaml")
    (tmp_path / "synthetic" / "sdtps").mkdir(parents=True)
    assert not is_config("synthetic/sdtps"), "the folder of a run"


def test_an_installed_package_finds_them_too(tmp_path, monkeypatch):
    """As the wheel lays them out: inside the package, and no checkout around it."""
    package = tmp_path / "site" / "slimreid"
    shutil.copytree(ROOT / "src" / "slimreid", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "configs", package / "configs")
    code = "from slimreid.config.recipes import recipes_folder; from slimreid.config.files import load_config; load_config(['synthetic/sdtps']); print(recipes_folder())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()) == package / "configs"


def test_a_package_without_recipes_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(recipes, "_FOLDERS", (tmp_path / "none",))
    with pytest.raises(ConfigError, match="the recipes are missing; install SlimReID again"):
        recipe_path("synthetic/sdtps")
