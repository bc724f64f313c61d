"""`slimreid model summary` refuses numbers that make no model."""

import pytest

from slimreid.cli.app import main


@pytest.mark.parametrize("option", ["--classes=-1", "--classes=0", "--cameras=-1"])
def test_impossible_numbers_are_refused(capsys, option):
    assert main(["model", "summary", "--model.backbone", "nano", option]) == 2
    err = capsys.readouterr().err
    assert f"the number of {option[2:].split('=')[0]} must" in " ".join(err.split())
    assert "Traceback" not in err
