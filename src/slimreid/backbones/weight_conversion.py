"""One engine that recognises a family of weights and renames them by its table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from slimreid.backbones.weight_formats import FORMATS, Rule, WeightFormat
from slimreid.config.backbones import ViTConfig
from slimreid.errors import ModelError

_WRAPPERS = ("state_dict", "model", "model_state_dict")
_MAX_WRAPPERS = 10
_MODULE_PREFIXES = ("module.", "_orig_mod.")
_FIELDS = {
    "i": r"(?P<i>\d+)",
    "wb": r"(?P<wb>weight|bias)",
    "any": r".+",
    "layer": r"(?:encoder\.layer|model\.layer|layers|layer)",
}


@dataclass(frozen=True)
class ConvertedWeights:
    """Weights under the names of `slimreid.backbones.vit.ViT`; positions still in the grid of the file."""

    family: str
    tensors: dict[str, Tensor]
    sources: dict[str, tuple[str, ...]]
    """The keys of the file behind each tensor."""
    unexpected: tuple[str, ...]
    """Keys of the file that no rule of the family knows, or whose partners are missing."""
    extras: tuple[str, ...]
    """Keys of the file that are known and left out (heads, text tower)."""


def unwrap_state_dict(stored: Any) -> dict[str, Any]:
    """The state dict inside what a file holds: `model`/`state_dict` wrappers and `module.` prefixes go.

    Raises `ModelError` when there is none.
    """
    for _ in range(_MAX_WRAPPERS):  # a dict may hold itself
        if not isinstance(stored, Mapping):
            break
        inner = next((stored[key] for key in _WRAPPERS if isinstance(stored.get(key), Mapping)), None)
        if inner is None:
            break
        stored = inner
    else:
        raise ModelError(f"more than {_MAX_WRAPPERS} dicts nested in each other, but no state dict")
    if not isinstance(stored, Mapping) or not any(isinstance(value, Tensor) for value in stored.values()):
        raise ModelError(f"no state dict of tensors in it, but {_describe(stored)}")
    state = {str(key): value for key, value in stored.items()}
    for prefix in _MODULE_PREFIXES * 2:  # both may be there, in either order
        if all(key.startswith(prefix) for key in state):
            state = {key[len(prefix) :]: value for key, value in state.items()}
    return state


def detect_family(keys: Iterable[str]) -> str:
    """Name of the family (a key of `FORMATS`) whose marks are all among `keys`; raises `ModelError`."""
    keys = list(keys)
    for name, table in FORMATS.items():
        if _find_prefix(table, keys) is not None:
            return name
    sample = ", ".join(sorted(keys)[:5])
    raise ModelError(f"weights of no known family ({', '.join(FORMATS)}); keys are {sample}, …")


def convert_state_dict(state: Mapping[str, Any], family: str | None = None) -> ConvertedWeights:
    """Rename weights of `family` (None = detect it) to the names of `ViT`. Shapes are not checked here.

    Raises `ModelError` when the family is not known or its marks are not there.
    """
    family = family or detect_family(state)
    if family not in FORMATS:
        raise ModelError(f"unknown family of weights '{family}' (known: {', '.join(FORMATS)})")
    table = FORMATS[family]
    prefix = _find_prefix(table, list(state))
    if prefix is None:
        raise ModelError(f"not weights of family '{family}': {' and '.join(table.marks)} must be there")
    rules = [(_compile(rule.old, prefix), rule) for rule in table.rules]
    extra = [_compile(pattern, prefix) for pattern in table.extras]

    found: dict[str, list[tuple[Rule, str]]] = defaultdict(list)  # new name -> its parts
    unexpected, extras = [], []
    for key, value in state.items():
        hit = _match(key, rules) if isinstance(value, Tensor) else None
        if hit is not None:
            new, rule = hit
            found[new].append((rule, key))
        elif any(pattern.fullmatch(key) for pattern in extra):
            extras.append(key)
        else:
            unexpected.append(key)

    tensors, sources = {}, {}
    for new, parts in found.items():
        parts.sort(key=lambda entry: entry[0].part or 0)
        joined = _join(parts, table, state)
        if joined is None:
            unexpected.extend(key for _, key in parts)
        else:
            tensors[new], sources[new] = joined, tuple(key for _, key in parts)
    return ConvertedWeights(family, tensors, sources, tuple(unexpected), tuple(extras))


def infer_config(tensors: Mapping[str, Tensor], style: ViTConfig) -> ViTConfig:
    """`style` with every size read off converted weights; the channels per head stay those of `style`."""
    embed = tensors.get("patch_embed.weight")
    if embed is None:
        raise ModelError("cannot tell the size of weights without a patch embedding")
    width = embed.shape[0]
    gates = 2 if style.activation == "swiglu" else 1
    numbers = {int(name.split(".")[1]) for name in tensors if name.startswith("blocks.")}
    registers, cameras = tensors.get("register_tokens"), tensors.get("camera_embedding")
    projection = tensors.get("projection.weight")
    return replace(
        style,
        width=width,
        depth=max(numbers) + 1,
        heads=max(1, width // style.head_width),
        mlp_width=tensors["blocks.0.mlp.fc1.weight"].shape[0] // gates,
        patch_size=embed.shape[2],
        stride=style.stride,
        conv_bias="patch_embed.bias" in tensors,
        registers=0 if registers is None else registers.shape[1],
        projection=None if projection is None else projection.shape[0],
        cameras=0 if cameras is None else cameras.shape[0],
    )


def _describe(stored: Any) -> str:
    if isinstance(stored, Mapping):
        return f"a dict of {', '.join(map(str, list(stored)[:5])) or 'nothing'}"
    return f"a {type(stored).__name__}"


def _compile(template: str, prefix: str) -> re.Pattern[str]:
    """Regular expression of a table entry."""
    pieces = re.split(r"\{(\w+)\}", template)
    fields = {**_FIELDS, "p": re.escape(prefix)}
    return re.compile("".join(fields[s] if odd % 2 else re.escape(s) for odd, s in enumerate(pieces)))


def _find_prefix(table: WeightFormat, keys: list[str]) -> str | None:
    for prefix in table.prefixes:
        marks = [_compile(mark, prefix) for mark in table.marks]
        if all(any(mark.fullmatch(key) for key in keys) for mark in marks):
            return prefix
    return None


def _match(key: str, rules: list[tuple[re.Pattern[str], Rule]]) -> tuple[str, Rule] | None:
    for pattern, rule in rules:
        match = pattern.fullmatch(key)
        if match:
            return rule.new.format(**match.groupdict()), rule
    return None


def _join(parts: list[tuple[Rule, str]], table: WeightFormat, state: Mapping[str, Any]) -> Tensor | None:
    """Tensor made of the parts found (in order), or None when one is missing or there twice."""
    have = {rule.part: _change(state[key], rule.change) for rule, key in parts}
    if len(have) != len(parts):
        return None
    if None in have:
        return have[None] if len(have) == 1 else None
    absent = {r.part: r.absent for r in table.rules if r.new == parts[0][0].new and r.part is not None}
    pieces = []
    for part in sorted(absent):
        if part in have:
            pieces.append(have[part])
        elif absent[part] == "zeros":
            pieces.append(torch.zeros_like(next(iter(have.values()))))
        elif absent[part] == "refuse":
            return None
    return torch.cat(pieces)


def _change(tensor: Tensor, change: str) -> Tensor:
    if change == "transpose":
        return tensor.t() if tensor.ndim == 2 else tensor
    if change == "row":
        return tensor.reshape(*[1] * (3 - tensor.ndim), *tensor.shape)
    return tensor
