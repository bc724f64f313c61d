"""What loading processes say when the main one stops."""

from __future__ import annotations

import sys

import pytest

from slimreid.data import loader


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionResetError("gone"), False),
        (EOFError(), False),
        (KeyboardInterrupt(), False),
        (ValueError("a fault of ours"), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_a_worker_is_silent_when_the_main_process_is_gone_and_only_then(monkeypatch, error, told):
    seen: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(error))
    loader._end_quietly(0)
    sys.excepthook(type(error), error, None)
    assert seen == ([error] if told else [])
