"""How many files of the package run in one training step, one evaluation and one embed call.

    python benchmarks/files_touched.py [--list]

Trains a tiny model on made-up images; a file counts when one of its functions is called, imports do not.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # for `support`

import slimreid
from slimreid.cli.app import main as command_line
from slimreid.cli.console import console, table
from slimreid.training.callbacks.base import Callback, StepReport
from slimreid.training.loop import train
from support.runs import make_config, write_set

PACKAGE = Path(slimreid.__file__).parent


class CalledFiles:
    """The files of the package whose functions are called within a `with` block."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # bodies of modules and classes are not
        if event == "call" and is_function and name.startswith(str(PACKAGE)):
            self.files.add(str(Path(name).relative_to(PACKAGE)))

    def __enter__(self) -> CalledFiles:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


class SecondStep(Callback):
    """Watches what is called between the first two updates."""

    def __init__(self) -> None:
        self.called = CalledFiles()

    def step(self, report: StepReport) -> None:
        """Begin after the first update, end after the second."""
        if report.step == 1:
            self.called.__enter__()
        elif report.step == 2:
            self.called.__exit__()


def main() -> None:
    parser = argparse.ArgumentParser(description="Files of the package that run in one call.")
    parser.add_argument("--list", action="store_true", help="print the names of the files, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = write_set(folder / "set")
        step, run = SecondStep(), folder / "run"
        train(make_config(manifest), run, callbacks=[step])
        with CalledFiles() as evaluation:
            code = command_line(["evaluate", str(run), "--missing", "all"])
        model = slimreid.load(run)
        image = next((folder / "set" / "rgb").iterdir())
        with CalledFiles() as embed:
            model.embed({"rgb": [image]})
    assert code == 0
    rows = [("training step", step.called), ("evaluate --missing all", evaluation), ("embed", embed)]
    console.print(table(["call", "files"], [(what, len(called.files)) for what, called in rows]))
    if arguments.list:
        for what, called in rows:
            console.print(f"\n{what}:", *sorted(called.files), sep="\n  ", highlight=False)


if __name__ == "__main__":
    main()
