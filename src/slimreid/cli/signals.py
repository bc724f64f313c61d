"""Ctrl-C and SIGTERM: a command cleans up, says where it stopped, and ends with the usual exit code."""

from __future__ import annotations

import signal
from contextlib import suppress


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM); it cleans up as after Ctrl-C."""


def handle_sigterm() -> None:
    """Let SIGTERM raise `Terminated`."""
    with suppress(ValueError):  # not in the main thread: whoever started us handles signals
        signal.signal(signal.SIGTERM, _terminate)


def ignore_further_stops() -> None:
    """Let a second Ctrl-C or SIGTERM not disturb the end of a process that is stopping anyway."""
    with suppress(ValueError):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def stop_code(stop: KeyboardInterrupt) -> int:
    """Exit code of a process that was stopped: 143 by SIGTERM, 130 by Ctrl-C."""
    return 143 if isinstance(stop, Terminated) else 130


def _terminate(*_: object) -> None:
    raise Terminated
