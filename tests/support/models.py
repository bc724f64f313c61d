"""Models that were never trained, as files: evaluation does not care, and they are made in no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import slimreid
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.model_card import ModelCard, checksum
from slimreid.inference.trained_model import build_from_card, write_model
from support.runs import NAMES, TRAINED, make_config

SLIM = (
    "model.reduction=in_backbone",
    "model.in_backbone.schedule=[[0.5,0.4]]",
    "model.camera_embedding=true",
)
"""Options of the model that is exported: slimmed in the backbone, with cameras."""


def write_random_model(
    folder: Path, manifest: Path | None, *overrides: str, seed: int = 0, **card: Any
) -> LoadedModel:
    """Write a model of the small set with weights drawn from `seed`, and load it.

    Nothing is left at 0 or 1 that would hide a mistake: camera embeddings, and the statistics by which
    features before and after the neck differ. float16 can hold all weights. `card` changes what its file says.
    """
    config = make_config(manifest or Path(), *overrides)
    facts: dict[str, Any] = {"modalities": config.data.modalities or NAMES, "identities": TRAINED}
    facts |= {"cameras": ("1", "2"), "epoch": 3, "select_on": "val"}
    described = ModelCard(config, **(facts | card))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_from_card(described)
        for parameter in model.parameters():
            if not parameter.any():
                torch.nn.init.normal_(parameter, std=0.2)
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm1d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2.0)
        for value in (*model.parameters(), *model.buffers()):
            if value.is_floating_point():
                value.data.copy_(value.data.half())
    write_model(folder / "model.safetensors", model.state_dict(), described)
    return slimreid.load(folder)


def write_with_header(path: Path, state: dict[str, torch.Tensor], header: dict[str, Any]) -> None:
    """Write a model file with a header of one's own, and the checksum that belongs to it."""
    plain = {name: value for name, value in header.items() if name != "impostors"}
    plain["checksum"] = checksum(plain, {})
    save_file(state, path, metadata={"slimreid": json.dumps(plain)})
