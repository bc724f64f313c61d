"""Commands as a person types them."""

from __future__ import annotations

import pytest

from slimreid.cli.app import main


def run_command(*words: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `slimreid` with these words."""
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err
