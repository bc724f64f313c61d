"""Ctrl-C, SIGTERM and a full disk end a command with one line and the usual exit code."""

import errno
import signal
import subprocess
import sys

import pytest

from slimreid.cli.app import main
from slimreid.cli.command_table import Command

CHILD = """
import os, signal, sys
from slimreid.cli import app
from slimreid.cli.command_table import Command

signal.signal(signal.SIGINT, signal.default_int_handler)

def stop(*_):
    os.kill(os.getpid(), {first})

said = app.print_error
def say(message):
    os.kill(os.getpid(), signal.SIGINT)  # the second Ctrl-C, while the first is being answered
    said(message)

Command.load = stop
app.print_error = say
sys.argv = ["slimreid", "model", "list"]
sys.exit(app.main())
"""


@pytest.mark.parametrize(("first", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_ctrl_c_at_start_up_changes_nothing(first, code):
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(first=int(first))], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "error: stopped\n")


def test_a_full_disk_names_the_place(monkeypatch, capsys, tmp_path):
    def full(options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Command, "load", lambda _: full)
    assert main(["data", "synth", str(tmp_path / "w")]) == 1
    assert f"{tmp_path / 'w'}: No space left on device" in capsys.readouterr().err
