"""`slimreid profile`."""

import json

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
