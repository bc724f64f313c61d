"""The example of docs/pictures.md runs, and its table names what there is."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "pictures.md"


def test_the_example_draws(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(code, {})
    assert (tmp_path / "cmc.svg").read_text(encoding="utf-8").startswith("<svg")
    assert (tmp_path / "roc.png").stat().st_size > 1000


def test_every_function_of_the_table_exists():
    text = PAGE.read_text(encoding="utf-8").partition("| module in")[2]
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == 9
    for _, modules, functions, _ in rows:
        places = [importlib.import_module(f"slimreid.visual.{m}") for m in re.findall(r"`([\w.]+)`", modules)]
        for name in re.findall(r"`(\w+)`", functions):
            assert any(hasattr(place, name) for place in places), name
