"""DeMo-style configs and checkpoints.

`demo_options` turns old dotted keys into ours by the table in `demo_keys`; `load_demo_checkpoint` builds the
model an old checkpoint belongs to and loads it, to the last key.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimreid.backbones.pretrained import load_pretrained
from slimreid.backbones.vit import ViT
from slimreid.backbones.weight_conversion import convert_state_dict, infer_config, unwrap_state_dict
from slimreid.backbones.weight_files import read_weights
from slimreid.compat.demo_options import read_demo_options
from slimreid.config.backbones import ViTConfig, vit_config
from slimreid.config.model import ReIDOptions
from slimreid.errors import ModelError, SlimReIDWarning
from slimreid.inference.trained_model import mismatches
from slimreid.modalities import DEFAULT_MODALITIES, all_subsets, describe, subset_name
from slimreid.models.reid_model import ReIDModel

logger = logging.getLogger(__name__)

_TOWER = "BACKBONE.base."


def load_demo_checkpoint(
    checkpoint: Mapping[str, Any] | str | Path,
    options: Mapping[str, Any],
    num_classes: int,
    num_cameras: int,
) -> ReIDModel:
    """Build the model of an old checkpoint (a state dict or a file) and load it, in eval mode.

    Sizes are read off the tensors. Warns of each unknown option.

    Args:
        checkpoint: State dict, or its file.
        options: DeMo's options by dotted key.
        num_classes: Training identities.
        num_cameras: Training cameras.

    Raises:
        ModelError: Naming the keys that have no place or another shape.
        ConfigError: For options that would need another model.
    """
    stored = read_weights(checkpoint) if isinstance(checkpoint, (str, Path)) else checkpoint
    state: dict[str, Tensor] = unwrap_state_dict(stored)
    read = read_demo_options(options)
    for text in read.unknown:
        warnings.warn(f"unknown old option: {text}", SlimReIDWarning, stacklevel=2)
    for text in read.dead:
        logger.info("without effect: %s", text)
    values = read.values
    size = (int(values["transforms.height"]), int(values["transforms.width"]))
    tower = {k.removeprefix(_TOWER): v for k, v in state.items() if k.startswith(_TOWER)}
    if "BACKBONE.cv_embed" in state:
        tower["cv_embed"] = state["BACKBONE.cv_embed"]
    rest = {key: value for key, value in state.items() if not key.startswith("BACKBONE.")}
    if not tower:
        raise ModelError("not a DeMo checkpoint: no key starts with 'BACKBONE.base.'")
    config = _vit(tower, values, num_cameras)
    backbone = ViT(config, size)
    load_pretrained(backbone, tower, source_grid=config.grid(size))
    names = [item.name for item in fields(ReIDOptions)]
    given = {name: values[f"model.{name}"] for name in names if f"model.{name}" in values}
    model = ReIDModel(
        backbone, DEFAULT_MODALITIES, num_classes, ReIDOptions(**given), merged_tokens=_merged_tokens(rest)
    )
    _load_rest(model, rest)
    return model.eval()


def _vit(tower: Mapping[str, Tensor], values: Mapping[str, Any], num_cameras: int) -> ViTConfig:
    style = vit_config(values["model.backbone"])
    config = infer_config(convert_state_dict(tower).tensors, style)
    return replace(
        config,
        stride=values["model.stride"],
        drop_path=values["model.drop_path"],
        camera_scale=values["model.camera_scale"],
        cameras=num_cameras if values["model.camera_embedding"] else 0,
    )


def _merged_tokens(rest: Mapping[str, Tensor]) -> int | None:
    key = f"sdtps.{DEFAULT_MODALITIES[0]}_aggr.weight.3.bias"
    return len(rest[key]) if key in rest else None


def _rules() -> list[tuple[re.Pattern[str], str]]:
    """Old key -> new key, for everything but the backbone and the stacked experts."""
    letters = {describe(name).letter: name for name in DEFAULT_MODALITIES}
    rules = [
        (r"(\w+)_reduce\.0\.(\w+)", r"global_local.\1.norm.\2"),
        (r"(\w+)_reduce\.1\.(\w+)", r"global_local.\1.reduce.\2"),
        (r"sdtps\.(\w+)_sparse\.score_predictor\.(.+)", r"after_backbone.scorers.\1.mlp.\2"),
        (r"sdtps\.(\w+)_aggr\.(.+)", r"after_backbone.mergers.\1.\2"),
        (r"generalFusion\.moe\.gating_network\.gate\.linear_re\.0\.(.+)", r"moe.joint.\1"),
        (r"generalFusion\.moe\.gating_network\.gate\.linear_re\.2\.(.+)", r"moe.joint_norm.\1"),
        (r"generalFusion\.moe\.gating_network\.gate\.q_\.(.+)", r"moe.query.\1"),
        (r"generalFusion\.moe\.gating_network\.gate\.k_\.(.+)", r"moe.key.\1"),
        (r"generalFusion\.([a-z]+)\.((?:in|out)_proj.+)", r"hdm.attention.\1.\2"),
    ]
    branches = {"": "original", "_sdtps": "slimmed", "_moe": "fused"}
    branches |= {f"_{letter}": f"original_{name}" for letter, name in letters.items()}
    for suffix, head in branches.items():
        rules += [(rf"classifier{suffix}\.(\w+)", rf"heads.{head}.classifier.\1")]
        rules += [(rf"bottleneck{suffix}\.(\w+)", rf"heads.{head}.neck.\1")]
    return [(re.compile(old), new) for old, new in rules]


_EXPERT = re.compile(r"generalFusion\.moe\.experts\.(\d+)\.expertHead\.(\d+)\.mlp\.(\d)\.(\w+)")


def convert_demo_state(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Rename everything outside the backbone; also returns the keys that have no place.

    A stack of which a part is missing is left out; `missing_parts` names the part.
    """
    rules = _rules()
    tokens = _query_keys()
    converted: dict[str, Tensor] = {}
    experts: dict[str, dict[tuple[int, int], Tensor]] = {}
    queries: dict[str, Tensor] = {}
    strangers = []
    for key, tensor in state.items():
        expert = _EXPERT.fullmatch(key)
        if expert:
            head, feature, layer, name = expert.groups()
            new = f"moe.expert_{'norm.' if layer == '2' else ''}{name}"
            experts.setdefault(new, {})[int(head), int(feature)] = tensor
        elif key in tokens:
            queries[key] = tensor
        else:
            new_key = _rename(key, rules)
            if new_key is None:
                strangers.append(key)
            else:
                converted[new_key] = tensor
    if len(queries) == len(tokens):
        converted["hdm.queries"] = torch.cat([queries[key] for key in tokens])
    for new, parts in experts.items():
        H, S = _grid(parts)
        if len(parts) == H * S:
            converted[new] = _stack_experts(new, parts, H, S)
    return converted, strangers


def missing_parts(state: Mapping[str, Tensor]) -> list[str]:
    """Old keys without which query tokens or experts, of which there are some, make no whole stack."""
    tokens = _query_keys()
    found = [match for match in map(_EXPERT.fullmatch, state) if match]
    H, S = _grid([(int(match[1]), int(match[2])) for match in found])
    experts = {
        f"generalFusion.moe.experts.{h}.expertHead.{s}.mlp.{layer}.{name}"
        for layer, name in {(match[3], match[4]) for match in found}
        for h in range(H)
        for s in range(S)
    }
    lost = [key for key in tokens if key not in state] if any(key in state for key in tokens) else []
    return lost + sorted(experts - state.keys())


def _query_keys() -> list[str]:
    return [f"generalFusion.{subset_name(subset)}_token" for subset in all_subsets()]


def _grid(parts: Collection[tuple[int, int]]) -> tuple[int, int]:
    """Heads and features (H, S) that numbered experts span."""
    if not parts:
        return 0, 0
    return max(head for head, _ in parts) + 1, max(feature for _, feature in parts) + 1


def _rename(key: str, rules: list[tuple[re.Pattern[str], str]]) -> str | None:
    for old, new in rules:
        match = old.fullmatch(key)
        if match:
            return match.expand(new)
    return None


def _stack_experts(name: str, parts: Mapping[tuple[int, int], Tensor], H: int, S: int) -> Tensor:
    """Tensors of H × S experts as one; norms are flat over (head, feature, channel)."""
    if name.endswith("num_batches_tracked"):
        return next(iter(parts.values()))
    stacked = torch.stack([torch.stack([parts[h, s] for s in range(S)]) for h in range(H)])
    return stacked.flatten() if "norm" in name else stacked


def _load_rest(model: ReIDModel, rest: Mapping[str, Tensor]) -> None:
    converted, strangers = convert_demo_state(rest)
    own = {k: v for k, v in model.state_dict().items() if not k.startswith("backbone.")}
    faults = [f"no place for '{key}'" for key in strangers]
    faults += [f"missing '{key}'" for key in missing_parts(rest)]
    faults += mismatches(own, converted)
    if faults:
        raise ModelError("the checkpoint does not fit the options:\n  " + "\n  ".join(faults))
    model.load_state_dict(converted, strict=False)
