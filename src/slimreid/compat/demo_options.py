"""DeMo's config files and KEY VALUE pairs as options of ours, by the table in `demo_keys`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

from slimreid.compat.demo_keys import OLD_KEYS, check_value
from slimreid.config.token_reduction import DEMO_SDTPS
from slimreid.config.yaml_text import EMPTY, parse_yaml, read_yaml
from slimreid.errors import ConfigError, nearest_names

BACKBONES = {"ViT-B-16": "clip_vit_b16", "vit_base_patch16_224": "vit_b16"}


_KEY = re.compile(r"[A-Z][A-Z0-9_]*(\.[A-Z][A-Z0-9_]*)*")


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
    """Translate old options, nested or flat.

    Raises `ConfigError` naming the key for refused or contradictory options and values of a wrong kind.
    """
    given = flatten(options)
    dead, unknown = [], []
    for key, value in given.items():
        known = OLD_KEYS.get(key)
        if known is None:
            near = nearest_names(key, OLD_KEYS)
            unknown.append(f"{key} (did you mean {near[0]}?)" if near else key)
        elif known.refused and value:
            raise ConfigError(f"{key} is {value!r}: {known.refused}")
        elif known.dead:
            dead.append(f"{key}: {known.dead}")
        elif not known.refused:
            given[key] = check_value(key, value)
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
        "model.reduction": "none",
        "model.fusion": fusion,
    }
    if old["MODEL.USE_SDTPS"]:  # wins over HDM when both are on
        gumbel = old["MODEL.SDTPS_USE_GUMBEL"]
        values |= {
            "model.reduction": "after_backbone",
            "model.fusion": "mean",
            "model.fusion_weight": old["MODEL.SDTPS_LOSS_WEIGHT"],
            "model.after_backbone": replace(
                DEMO_SDTPS,
                keep_ratio=old["MODEL.SDTPS_SPARSE_RATIO"],
                merge_ratio=old["MODEL.SDTPS_AGGR_RATIO"],
                beta=old["MODEL.SDTPS_BETA"],
                estimator="gumbel" if gumbel else "topk",
                tau=old["MODEL.SDTPS_GUMBEL_TAU"] if gumbel else 1.0,
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
    if images < 1 or batch < 1 or batch % images:
        raise ConfigError(
            f"SOLVER.IMS_PER_BATCH {batch} is not a positive multiple of DATALOADER.NUM_INSTANCE {images}"
        )
    return {
        "transforms.height": size[0],
        "transforms.width": size[1],
        "transforms.mean": _one_value("INPUT.PIXEL_MEAN", old),
        "transforms.std": _one_value("INPUT.PIXEL_STD", old),
        "batch.num_ids": batch // images,
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


def read_demo_file(path: Path, pairs: Sequence[str] = ()) -> dict[str, Any]:
    """Old options (flat, dotted) of a YAML file, with KEY VALUE pairs on top.

    Raises `ConfigError` when the file or a value cannot be read, or a key has no value.
    """
    found = read_yaml(path)
    if not isinstance(found or {}, Mapping):
        raise ConfigError(f"{path}: not a DeMo config; it must hold sections such as MODEL and SOLVER")
    if len(pairs) % 2:
        raise ConfigError(f"'{pairs[-1]}' has no value; write old options as KEY VALUE pairs")
    options = flatten(found or {})
    for key, text in zip(pairs[::2], pairs[1::2], strict=True):
        try:
            options[key] = parse_yaml(text)
        except ConfigError:
            raise ConfigError(
                f"{key}: '{text}' cannot be read as a value; is a bracket or quote open?"
            ) from None
    return {key: None if value is EMPTY else _literal(value) for key, value in options.items()}


def _literal(value: Any) -> Any:
    """Old configs write tuples and quoted text as Python does: `('RGBNT201')`, `(256, 128)`."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError):
        return value


def demo_config_options(path: Path | str, pairs: Sequence[str] = ()) -> dict[str, Any]:
    """Our options, nested, that stand for those of a DeMo config; raises `ConfigError` for refused ones."""
    return _nested(read_demo_options(read_demo_file(Path(path), pairs)).values)


def take_pairs(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split off DeMo's KEY VALUE pairs; a value that follows an option of ours is not a key."""
    rest: list[str] = []
    pairs: list[str] = []
    i = 0
    while i < len(arguments):
        word = arguments[i]
        if word.startswith("--") and "=" not in word:
            rest += arguments[i : i + 2]
            i += 2
        elif not word.startswith("-") and _KEY.fullmatch(word):
            pairs += arguments[i : i + 2]
            i += 2
        else:
            rest.append(word)
            i += 1
    return rest, pairs


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested dicts of plain values."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    return nested
