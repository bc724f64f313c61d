"""`slimreid profile` and `slimreid model summary`."""

import json

import pytest

from slimreid.cli.app import main
from support.commands import run_command

CONFIG = "model: {backbone: nano}\ntransforms: {height: 32, width: 16, pad: 2}\n"
QUICK = ("--batch-sizes", "1", "--repeats", "1")


def test_a_file_that_is_there_is_replaced_only_if_asked(tmp_path, capsys):
    """It may be the config itself."""
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG)
    code, _, err = run_command("profile", config, "--out", config, *QUICK, capsys=capsys)
    assert code == 1
    assert "c.yaml exists" in err
    assert config.read_text() == CONFIG
    out = tmp_path / "p.json"
    out.write_text("old")
    code, _, err = run_command("profile", config, "--out", out, "--overwrite", *QUICK, capsys=capsys)
    assert code == 0, err
    assert json.loads(out.read_text())["source"] == "c.yaml"


@pytest.mark.parametrize("option", ["--classes=-1", "--classes=0", "--cameras=-1"])
def test_impossible_numbers_make_no_model(capsys, option):
    assert main(["model", "summary", "--model.backbone", "nano", option]) == 2
    err = capsys.readouterr().err
    assert f"the number of {option[2:].split('=')[0]} must" in " ".join(err.split())
    assert "Traceback" not in err
