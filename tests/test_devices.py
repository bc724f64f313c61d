"""Devices and precisions; above all that bf16 never kills a process on a CPU that faults on AMX."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess

import pytest
import torch

from slimreid import devices
from slimreid.config import ModelConfig
from slimreid.devices import autocast, check_precision, choose_device, guard_amx, usable_precision
from slimreid.errors import ConfigError
from slimreid.models.reid_model import build_model

VARIABLE = "ONEDNN_MAX_CPU_ISA"
DIES = "import os, signal; os.kill(os.getpid(), signal.SIG{})"
CPU = torch.device("cpu")


@pytest.fixture
def amx(monkeypatch, tmp_path):
    """A CPU that announces AMX, and a user with an empty cache folder; gives the file of verdicts."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(VARIABLE, "")  # so that it is as before at the end
    monkeypatch.delenv(VARIABLE)
    guard_amx.cache_clear()
    yield tmp_path / "cache" / "slimreid" / "amx.json"
    guard_amx.cache_clear()


def no_child(*_, **__):
    raise AssertionError("a child was started")


@pytest.mark.parametrize(
    "use",
    [
        guard_amx,
        lambda: check_precision("bf16", CPU),
        lambda: autocast("bf16", CPU),
        lambda: build_model(
            ModelConfig(backbone="nano", reduction="none", fusion="none"), (32, 16), ("rgb",), 2
        ),
    ],
    ids=["guard", "training", "autocast", "model"],
)
def test_a_child_that_dies_limits_onednn_and_is_said_in_one_line(amx, monkeypatch, caplog, use):
    monkeypatch.setattr(devices, "_TRIAL", DIES.format("ILL"))
    with caplog.at_level(logging.WARNING, "slimreid"):
        use()
        use()
    assert os.environ[VARIABLE] == "AVX512_CORE_BF16"
    (line,) = [record.getMessage() for record in caplog.records]
    assert "announces AMX but cannot run it" in line
    assert "\n" not in line
    assert list(json.loads(amx.read_text()).values()) == [False]


def test_the_verdict_is_remembered_per_machine(amx, monkeypatch):
    monkeypatch.setattr(devices, "_TRIAL", DIES.format("ILL"))
    guard_amx()
    monkeypatch.delenv(VARIABLE)
    guard_amx.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", no_child)
        guard_amx()
    assert os.environ[VARIABLE] == "AVX512_CORE_BF16"

    monkeypatch.delenv(VARIABLE)
    guard_amx.cache_clear()
    monkeypatch.setattr(platform, "node", lambda: "another machine with the same home")
    monkeypatch.setattr(devices, "_TRIAL", "pass")
    guard_amx()
    assert VARIABLE not in os.environ
    assert sorted(json.loads(amx.read_text()).values()) == [False, True]


def test_the_product_of_the_trial_itself_is_sound(monkeypatch):
    """Here, or with the limit that this process inherits, the child computes its product."""
    assert devices._exit_code_of_trial() == 0


def test_a_child_that_works_changes_nothing(amx, monkeypatch, caplog):
    monkeypatch.setattr(devices, "_TRIAL", "pass")
    guard_amx()
    assert VARIABLE not in os.environ
    assert not caplog.records
    assert list(json.loads(amx.read_text()).values()) == [True]


@pytest.mark.parametrize("trial", [DIES.format("KILL"), "raise SystemExit(3)"])
def test_an_accident_is_not_remembered(amx, monkeypatch, trial):
    monkeypatch.setattr(devices, "_TRIAL", trial)
    guard_amx()
    assert os.environ[VARIABLE] == "AVX512_CORE_BF16"
    assert not amx.exists()


def test_a_child_that_hangs_is_given_up(amx, monkeypatch):
    monkeypatch.setattr(devices, "_TRIAL", "import time; time.sleep(60)")
    monkeypatch.setattr(devices, "_TRIAL_SECONDS", 0.2)
    guard_amx()
    assert os.environ[VARIABLE] == "AVX512_CORE_BF16"
    assert not amx.exists()


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 3}', "{"])
def test_a_damaged_file_of_verdicts_is_written_anew(amx, monkeypatch, text):
    amx.parent.mkdir(parents=True)
    amx.write_text(text)
    monkeypatch.setattr(devices, "_TRIAL", "pass")
    guard_amx()
    assert list(json.loads(amx.read_text()).values()) == [True]


def test_a_cache_folder_that_cannot_be_made_does_not_stop_anybody(amx, monkeypatch):
    amx.parent.parent.write_text("a file where the folder should be")
    monkeypatch.setattr(devices, "_TRIAL", DIES.format("ILL"))
    guard_amx()
    assert os.environ[VARIABLE] == "AVX512_CORE_BF16"


def test_nothing_is_tried_without_amx_or_where_the_user_chose(amx, monkeypatch):
    monkeypatch.setattr(subprocess, "run", no_child)
    monkeypatch.setenv(VARIABLE, "AVX2")
    guard_amx()
    assert os.environ[VARIABLE] == "AVX2"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    guard_amx.cache_clear()
    guard_amx()
    assert VARIABLE not in os.environ


def test_devices_that_are_not_there_are_refused():
    assert choose_device("cpu") == CPU
    with pytest.raises(ConfigError, match="device 'tpu9' cannot be used"):
        choose_device("tpu9")


def test_fp16_is_for_gpus():
    with pytest.raises(ConfigError, match="needs a GPU"):
        check_precision("fp16", CPU)
    assert usable_precision("fp16", CPU) == "fp32"
    assert usable_precision("bf16", CPU) == "bf16"


def test_autocast_has_the_precision_asked_for():
    linear, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    with autocast("bf16", CPU):
        assert linear(x).dtype == torch.bfloat16
    with autocast("fp32", CPU):
        assert linear(x).dtype == torch.float32
