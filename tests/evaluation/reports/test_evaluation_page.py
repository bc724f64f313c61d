"""The example of the documentation runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[3] / "docs" / "evaluation.md"


def test_the_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 1
    names: dict[str, Any] = {}
    exec(compile(blocks[0], str(PAGE), "exec"), names)
    assert 0.5 < names["result"].map < names["reranked"].map <= 1
    assert names["result"].skipped_queries == 0
