"""The rule for skips holds with and without workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.skips import NO_GPU

TESTS = Path(__file__).resolve().parents[1]
LISTED = f"import pytest\n\ndef test_a():\n    pytest.skip({NO_GPU!r})\n\ndef test_b():\n    pass\n"
UNLISTED = "import pytest\n\n@pytest.mark.skipif(True, reason='not today')\ndef test_c():\n    pass\n"
WHOLE_FILE = "import pytest\n\npytest.skip('not this file', allow_module_level=True)\n"


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    plugins = ["-p", "support.skips", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", folder, *plugins, *options, folder],
        env=os.environ | {"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "workers"])
def test_only_listed_reasons_pass(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_listed.py").write_text(LISTED)
    if not options:
        assert run(tmp_path).returncode == 0
    (tmp_path / "test_unlisted.py").write_text(UNLISTED)
    (tmp_path / "test_whole.py").write_text(WHOLE_FILE)
    done = run(tmp_path, *options)
    assert done.returncode == 1, done.stdout
    assert "test_unlisted.py::test_c: not today" in done.stdout
    assert "test_whole.py: not this file" in done.stdout
    assert f"test_a: {NO_GPU}" not in done.stdout
