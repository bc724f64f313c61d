"""Golden numbers: results of the earlier implementations on random weights and inputs (see tests/golden/README.md)."""

from __future__ import annotations

import io
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import torch

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def load_golden(name: str) -> dict[str, Any]:
    """What is stored under a name, as fresh tensors that a test may change."""
    stored: dict[str, Any] = torch.load(io.BytesIO(_unpacked(name)), weights_only=True)
    return stored


@cache
def _unpacked(name: str) -> bytes:
    return lzma.decompress((GOLDEN / f"{name}.pt.xz").read_bytes())
