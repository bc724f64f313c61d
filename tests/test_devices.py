"""Devices and precisions; above all that bf16 never kills a process on a CPU that faults on AMX."""

from __future__ import annotations

import logging
import os
import subprocess

import pytest
import torch

from slimreid import devices
from slimreid.amx import amx_works
from slimreid.config import ModelConfig
from slimreid.devices import autocast, check_precision, choose_device, guard_amx, usable_precision
from slimreid.errors import ConfigError
from slimreid.models.reid_model import build_model

VARIABLE = "ONEDNN_MAX_CPU_ISA"
DIES = "import os, signal; os.kill(os.getpid(), signal.SIG{})"
CPU = torch.device("cpu")


@pytest.fixture
def amx(monkeypatch, tmp_path):
    """A CPU that announces AMX, and a user with an empty cache folder."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(VARIABLE, "")  # so that it is as before at the end
    monkeypatch.delenv(VARIABLE)
    guard_amx.cache_clear()
    yield
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
    monkeypatch.setattr(devices, "TRIAL", DIES.format("ILL"))
    with caplog.at_level(logging.WARNING, "slimreid"):
        use()
        use()
    assert os.environ[VARIABLE] == "AVX512_CORE_BF16"
    (line,) = [record.getMessage() for record in caplog.records]
    assert "announces AMX but cannot run it" in line
    assert "\n" not in line


def test_the_product_of_the_trial_itself_is_sound(amx):
    """Here, or with the limit that this process inherits, the child computes its product."""
    assert amx_works("this torch", devices.TRIAL)


def test_a_child_that_works_changes_nothing(amx, monkeypatch, caplog):
    monkeypatch.setattr(devices, "TRIAL", "pass")
    guard_amx()
    assert VARIABLE not in os.environ
    assert not caplog.records


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
