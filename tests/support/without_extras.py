"""A process in which no extra of the package is installed, or one is not: every import of it is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from slimreid.extras import EXTRA_OF

REFUSE = """
import sys
from slimreid.extras import EXTRA_OF

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRA_OF:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
"""
CLI = REFUSE + "from slimreid.cli.app import main\nsys.exit(main(sys.argv[1:]))\n"


def run_code(code: str, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python code without extras, with `words` in sys.argv."""
    return _run(REFUSE + code, words, cwd)


def run_without_torch(code: str, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python code with all extras but `train`; what the extra `gallery` brings too is there."""
    gone = [name for name, extra in EXTRA_OF.items() if extra == "train" and name != "scipy"]
    return _run(
        REFUSE.replace("from slimreid.extras import EXTRA_OF", f"EXTRA_OF = {gone}") + code, words, cwd
    )


def run_command(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `slimreid WORDS` without extras."""
    return _run(CLI, words, cwd)


def _run(code: str, words: tuple[str, ...], cwd: Path | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cwd)} if cwd else None
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment,
    )
