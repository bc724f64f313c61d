"""`slimreid export`."""

from __future__ import annotations

import pytest

from slimreid.cli.app import main

pytestmark = pytest.mark.usefixtures("ready_graphs")


def test_it_writes_the_folder_and_says_how_it_compares(exported, tmp_path, capsys):
    run, out = str(exported.parent / "run"), str(tmp_path / "out")
    assert main(["export", run, "--out", out, "--precision", "int8", "--max-loss", "100"]) == 0
    told = capsys.readouterr().out
    for words in ("int8", "no linear layer", "mAP gained", "rgb+tir", "smallest cosine", "written: "):
        assert words in told, words
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(p.name for p in exported.iterdir())
    assert main(["export", run, "--out", out]) == 1
    assert "not an empty folder" in capsys.readouterr().err


def test_mistakes(exported, tmp_path, capsys):
    run = str(exported.parent / "run")
    assert main(["export", run, "--out", str(tmp_path / "x"), "--max-loss", "200"]) == 2
    assert "--max-loss" in capsys.readouterr().err
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "x")]) == 1
    assert "model.safetensors" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
