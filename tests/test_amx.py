"""Verdicts on AMX: from a child process that may die, remembered per machine and library."""

from __future__ import annotations

import json
import logging
import platform
import subprocess

import pytest

from slimreid import amx
from slimreid.amx import amx_works

DIES = "import os, signal; os.kill(os.getpid(), signal.SIG{})"


@pytest.fixture
def verdicts(monkeypatch, tmp_path):
    """The file of verdicts of a user with an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "slimreid" / "amx.json"


def no_child(*_, **__):
    raise AssertionError("a child was started")


def test_a_child_that_dies_is_said_in_one_line(verdicts, caplog):
    with caplog.at_level(logging.WARNING, "slimreid"):
        assert not amx_works("numkong 1", DIES.format("ILL"))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "this CPU announces AMX but cannot run it; numkong 1 computes bf16 and int8 without it"
    assert list(json.loads(verdicts.read_text()).values()) == [False]


def test_the_verdict_is_remembered_per_machine_and_library(verdicts, monkeypatch):
    assert not amx_works("torch 1", DIES.format("ILL"))
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", no_child)
        assert not amx_works("torch 1", "pass")
    assert amx_works("torch 2", "pass")
    monkeypatch.setattr(platform, "node", lambda: "another machine with the same home")
    assert amx_works("torch 1", "pass")
    assert sorted(json.loads(verdicts.read_text()).values()) == [False, True, True]


@pytest.mark.parametrize("trial", [DIES.format("KILL"), "raise SystemExit(3)"])
def test_an_accident_is_not_remembered(verdicts, trial):
    assert not amx_works("torch 1", trial)
    assert not verdicts.exists()


def test_a_child_that_hangs_is_given_up(verdicts, monkeypatch):
    monkeypatch.setattr(amx, "_TRIAL_SECONDS", 0.2)
    assert not amx_works("torch 1", "import time; time.sleep(60)")
    assert not verdicts.exists()


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 3}', "{"])
def test_a_damaged_file_of_verdicts_is_written_anew(verdicts, text):
    verdicts.parent.mkdir(parents=True)
    verdicts.write_text(text)
    assert amx_works("torch 1", "pass")
    assert list(json.loads(verdicts.read_text()).values()) == [True]


def test_a_cache_folder_that_cannot_be_made_does_not_stop_anybody(verdicts):
    verdicts.parent.parent.write_text("a file where the folder should be")
    assert not amx_works("torch 1", DIES.format("ILL"))
