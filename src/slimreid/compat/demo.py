"""DeMo-style configs and checkpoints.

`read_demo_options` turns old dotted keys into ours by the table in `demo_keys`;
`load_demo_checkpoint` builds the model an old checkpoint belongs to and loads it, to the last key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimreid.compat.demo_keys import OLD_KEYS
from slimreid.errors import ConfigError, ModelError
from slimreid.modalities import DEFAULT_MODALITIES, all_subsets, describe, subset_name
from slimreid.models.pretrained import convert_state_dict, infer_config, load_weights
from slimreid.models.reid_model import ReIDModel
from slimreid.models.sizes import ViTConfig, vit_config
from slimreid.models.vit import ViT
from slimreid.models.weight_conversion import unwrap_state_dict
from slimreid.models.weight_files import read_weights
from slimreid.slimming import SlimmingOptions, slimming_options

BACKBONES = {"ViT-B-16": "clip_vit_b16", "vit_base_patch16_224": "vit_b16"}
_TOWER = "BACKBONE.base."


@dataclass(frozen=True)
class DemoOptions:
    """Old options, read: our dotted keys with values, and what had no effect."""

    values: Mapping[str, Any]
    """Our key -> value, for everything the old config says or leaves at its default."""
    dead: tuple[str, ...]
    """'KEY: why' for given keys that have no effect."""
    unknown: tuple[str, ...]
    """'KEY' or 'KEY (did you mean OTHER?)' for given keys that nobody knows."""

    def notes(self) -> list[str]:
        """What a user should know, one line per key."""
        return [f"without effect: {text}" for text in self.dead] + [
            f"unknown: {text}" for text in self.unknown
        ]


def flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested YAML sections as one flat dict of dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in options.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def read_demo_options(options: Mapping[str, Any]) -> DemoOptions:
    """Translate old options, nested or flat; raises `ConfigError` for refused or contradictory ones."""
    given = flatten(options)
    dead, unknown = [], []
    for key, value in given.items():
        known = OLD_KEYS.get(key)
        if known is None:
            near = difflib.get_close_matches(key, OLD_KEYS, n=1)
            unknown.append(f"{key} (did you mean {near[0]}?)" if near else key)
        elif known.refused and value:
            raise ConfigError(f"{key} is {value!r}: {known.refused}")
        elif known.dead:
            dead.append(f"{key}: {known.dead}")
    old = {key: given.get(key, known.default) for key, known in OLD_KEYS.items()}
    values = {known.ours: old[key] for key, known in OLD_KEYS.items() if known.ours}
    values |= _model_values(old) | _data_values(old) | _training_values(old)
    return DemoOptions(values, tuple(dead), tuple(unknown))


def _model_values(old: Mapping[str, Any]) -> dict[str, Any]:
    kind = old["MODEL.TRANSFORMER_TYPE"]
    if kind not in BACKBONES:
        raise ConfigError(f"MODEL.TRANSFORMER_TYPE '{kind}' is not one of {', '.join(BACKBONES)}")
    if old["MODEL.ATM"] and not old["MODEL.HDM"] and not old["MODEL.USE_SDTPS"]:
        raise ConfigError("MODEL.ATM needs MODEL.HDM: the experts work on its features")
    fusion = "none"
    if old["MODEL.HDM"]:
        fusion = "hdm_atmoe" if old["MODEL.ATM"] else "hdm"
    stride = tuple(old["MODEL.STRIDE_SIZE"])
    values: dict[str, Any] = {
        "model.backbone": BACKBONES[kind],
        "model.stride": None if stride == (16, 16) else stride,
        "model.heads": "direct" if old["MODEL.DIRECT"] else "split",
        "model.drop_path": old["MODEL.DROP_PATH"] if kind == "vit_base_patch16_224" else 0.0,
        "model.missing": "zeros",
        "model.fusion": fusion,
    }
    if old["MODEL.USE_SDTPS"]:  # wins over HDM when both are on
        values |= {
            "model.fusion": "sdtps",
            "model.fusion_weight": old["MODEL.SDTPS_LOSS_WEIGHT"],
            "model.slimming": slimming_options(
                "demo_sdtps",
                keep_ratio=old["MODEL.SDTPS_SPARSE_RATIO"],
                merge_ratio=old["MODEL.SDTPS_AGGR_RATIO"],
                beta=old["MODEL.SDTPS_BETA"],
                estimator="gumbel" if old["MODEL.SDTPS_USE_GUMBEL"] else "topk",
                tau=old["MODEL.SDTPS_GUMBEL_TAU"],
            ),
        }
    return values


def _data_values(old: Mapping[str, Any]) -> dict[str, Any]:
    size = tuple(old["INPUT.SIZE_TRAIN"])
    if tuple(old["INPUT.SIZE_TEST"]) != size and tuple(old["INPUT.SIZE_TEST"]) != (256, 128):
        raise ConfigError(f"INPUT.SIZE_TEST {old['INPUT.SIZE_TEST']} differs from INPUT.SIZE_TRAIN {size}")
    if old["DATALOADER.SAMPLER"] != "softmax_triplet":
        raise ConfigError(f"DATALOADER.SAMPLER '{old['DATALOADER.SAMPLER']}': only softmax_triplet is known")
    batch, images = old["SOLVER.IMS_PER_BATCH"], old["DATALOADER.NUM_INSTANCE"]
    if batch % images:
        raise ConfigError(
            f"SOLVER.IMS_PER_BATCH {batch} is not a multiple of DATALOADER.NUM_INSTANCE {images}"
        )
    return {
        "transforms.height": size[0],
        "transforms.width": size[1],
        "transforms.mean": _one_value("INPUT.PIXEL_MEAN", old),
        "transforms.std": _one_value("INPUT.PIXEL_STD", old),
        "batch.identities": batch // images,
    }


def _training_values(old: Mapping[str, Any]) -> dict[str, Any]:
    smoothing = 0.1 if old["MODEL.IF_LABELSMOOTH"] == "on" else 0.0
    backbone_lr = 5e-6 if old["MODEL.TRANSFORMER_TYPE"] == "ViT-B-16" else 0.8 * old["SOLVER.BASE_LR"]
    return {
        "loss.label_smoothing": smoothing,
        "loss.metric": "triplet" if old["MODEL.NO_MARGIN"] else "triplet_margin",
        "optim.name": str(old["SOLVER.OPTIMIZER_NAME"]).lower(),
        "optim.backbone_lr": backbone_lr,
    }


def _one_value(key: str, old: Mapping[str, Any]) -> float:
    values = {float(v) for v in old[key]}
    if len(values) != 1:
        raise ConfigError(f"{key} {list(old[key])}: one value for all channels is supported")
    return values.pop()


def load_demo_checkpoint(
    checkpoint: Mapping[str, Any] | str | Path,
    options: Mapping[str, Any],
    num_classes: int,
    num_cameras: int,
    *,
    drop_heads: bool = False,
    drop_cameras: bool = False,
) -> ReIDModel:
    """Build the model of an old checkpoint (a state dict or a file) and load it, in eval mode.

    `options` is the flat dict of old dotted keys; sizes are read off the tensors. A checkpoint trained
    on another number of classes or cameras is refused unless its heads or camera vectors may be
    dropped. Every key must find its place. Raises `ModelError` naming the keys otherwise.
    """
    stored = read_weights(checkpoint) if isinstance(checkpoint, (str, Path)) else checkpoint
    state: dict[str, Tensor] = unwrap_state_dict(stored)
    values = read_demo_options(options).values
    size = (int(values["transforms.height"]), int(values["transforms.width"]))
    tower = {k.removeprefix(_TOWER): v for k, v in state.items() if k.startswith(_TOWER)}
    if "BACKBONE.cv_embed" in state:
        tower["cv_embed"] = state["BACKBONE.cv_embed"]
    rest = {key: value for key, value in state.items() if not key.startswith("BACKBONE.")}
    if not tower:
        raise ModelError("not a DeMo checkpoint: no key starts with 'BACKBONE.base.'")
    _check_counts(tower, rest, num_classes, num_cameras, drop_heads, drop_cameras)
    config = _vit(tower, values, num_cameras)
    backbone = ViT(config, size)
    if drop_cameras:
        tower = {key: value for key, value in tower.items() if key not in ("cv_embed", "sie_embed")}
    load_weights(backbone, tower, source_grid=config.grid(size), where="the checkpoint's backbone")
    model = ReIDModel(
        backbone,
        DEFAULT_MODALITIES,
        num_classes,
        fusion=values["model.fusion"],
        heads=values["model.heads"],
        global_local=values["model.global_local"],
        slimming=values.get("model.slimming", SlimmingOptions()),
        merged_tokens=_merged_tokens(rest),
        moe_heads=values["model.moe_heads"],
        missing="zeros",
        fusion_weight=values.get("model.fusion_weight", 1.0),
    )
    _load_rest(model, rest, drop_heads)
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


def _check_counts(
    tower: Mapping[str, Tensor],
    rest: Mapping[str, Tensor],
    num_classes: int,
    num_cameras: int,
    drop_heads: bool,
    drop_cameras: bool,
) -> None:
    classes = {len(v) for k, v in rest.items() if k.startswith("classifier")}
    if classes - {num_classes} and not drop_heads:
        raise ModelError(
            f"the checkpoint's classifiers have {sorted(classes)} classes, not {num_classes}; "
            f"give that number, or drop_heads=True to start with new heads"
        )
    for key in ("cv_embed", "sie_embed"):
        if key in tower and len(tower[key]) != num_cameras and not drop_cameras:
            raise ModelError(
                f"the checkpoint's '{key}' has {len(tower[key])} cameras, not {num_cameras}; "
                f"give that number, or drop_cameras=True to start with new camera vectors"
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
        (r"sdtps\.(\w+)_sparse\.score_predictor\.(.+)", r"slimmer.scorers.\1.mlp.\2"),
        (r"sdtps\.(\w+)_aggr\.(.+)", r"slimmer.mergers.\1.\2"),
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
    """Rename everything outside the backbone; also returns the keys that have no place."""
    rules = _rules()
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
        elif key.startswith("generalFusion.") and key.endswith("_token"):
            queries[key.removeprefix("generalFusion.").removesuffix("_token")] = tensor
        else:
            new_key = _rename(key, rules)
            if new_key is None:
                strangers.append(key)
            else:
                converted[new_key] = tensor
    if queries:
        names = [subset_name(s) for s in all_subsets()]
        converted["hdm.queries"] = torch.cat([queries[name] for name in names])
    for new, parts in experts.items():
        converted[new] = _stack_experts(new, parts)
    return converted, strangers


def _rename(key: str, rules: list[tuple[re.Pattern[str], str]]) -> str | None:
    for old, new in rules:
        match = old.fullmatch(key)
        if match:
            return match.expand(new)
    return None


def _stack_experts(name: str, parts: Mapping[tuple[int, int], Tensor]) -> Tensor:
    """Tensors of H × S experts as one; norms are flat over (head, feature, channel)."""
    if name.endswith("num_batches_tracked"):
        return next(iter(parts.values()))
    H, S = (max(key[axis] for key in parts) + 1 for axis in (0, 1))
    stacked = torch.stack([torch.stack([parts[h, s] for s in range(S)]) for h in range(H)])
    return stacked.flatten() if "norm" in name else stacked


def _load_rest(model: ReIDModel, rest: Mapping[str, Tensor], drop_heads: bool) -> None:
    converted, strangers = convert_demo_state(rest)
    own = {k: v for k, v in model.state_dict().items() if not k.startswith("backbone.")}
    if drop_heads:
        converted = {k: v for k, v in converted.items() if not k.startswith("heads.")}
        own = {k: v for k, v in own.items() if not k.startswith("heads.")}
    faults = [f"no place for '{key}'" for key in strangers]
    faults += [f"no place for '{key}' (renamed)" for key in converted if key not in own]
    faults += [f"missing '{key}'" for key in own if key not in converted]
    faults += [
        f"'{key}' is {tuple(converted[key].shape)}, not {tuple(own[key].shape)}"
        for key in own
        if key in converted and converted[key].shape != own[key].shape
    ]
    if faults:
        raise ModelError("the checkpoint does not fit the options:\n  " + "\n  ".join(faults))
    model.load_state_dict(converted, strict=False)
