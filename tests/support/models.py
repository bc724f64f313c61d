"""Models that were never trained, as files: evaluation does not care, and they are made in no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import slimreid
from slimreid.config import Config
from slimreid.inference.load import LoadedModel
from slimreid.inference.model_card import ModelCard, checksum
from slimreid.inference.model_file import write_model
from slimreid.inference.trained_model import build_from_card
from support.runs import NAMES, make_config


def write_random_model(
    folder: Path,
    manifest: Path | None,
    *overrides: str,
    modalities: tuple[str, ...] = NAMES,
    cameras: tuple[str, ...] = ("1", "2"),
    identities: tuple[str, ...] = ("id0", "id1"),
    select_on: str = "val",
    seed: int = 0,
) -> LoadedModel:
    """Write a model with weights drawn from `seed` and load it."""
    config: Config = make_config(manifest or Path(), *overrides)
    card = ModelCard(config, modalities, identities, cameras, epoch=3, select_on=select_on)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_from_card(card)
        for parameter in model.parameters():  # embeddings of cameras start as zeros
            if not parameter.any():
                torch.nn.init.normal_(parameter, std=0.2)
    write_model(folder / "model.safetensors", model.state_dict(), card)
    return slimreid.load(folder)


def write_with_header(path: Path, state: dict[str, torch.Tensor], header: dict[str, Any]) -> None:
    """Write a model file with a header of one's own, and the checksum that belongs to it."""
    plain = {name: value for name, value in header.items() if name != "impostors"}
    plain["checksum"] = checksum(plain, {})
    save_file(state, path, metadata={"slimreid": json.dumps(plain)})
