"""Model files: one safetensors file with the weights and, in its header, all that is needed to use them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from slimreid import __version__
from slimreid.backbones.weight_files import is_torch_file
from slimreid.errors import ModelError
from slimreid.files import atomic_write
from slimreid.inference.model_card import ModelCard, card_from_header

MODEL_NAME = "model.safetensors"
FORMAT = 2
_HEADER = "slimreid"
_IMPOSTORS = "impostors."


def fingerprint(state: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and values of tensors, whatever their order."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()


def checksum(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over a header, except its own `checksum`, and tensors: all that is read back of a file."""
    plain = {name: value for name, value in header.items() if name != "checksum"}
    text = json.dumps(plain, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(f"{text}\0{fingerprint(tensors)}".encode()).hexdigest()


def write_model(
    path: Path,
    state: Mapping[str, Tensor],
    card: ModelCard,
    impostors: Mapping[str, NDArray[np.float32]] | None = None,
) -> str:
    """Write a model file atomically and return its fingerprint; the same input gives the same bytes.

    `impostors`: per kind of feature, how alike different training identities are, see `Similarity`.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    print_ = fingerprint(tensors)
    extra = {f"{_IMPOSTORS}{kind}": torch.from_numpy(table) for kind, table in (impostors or {}).items()}
    header = {"format": FORMAT, "slimreid": __version__, "fingerprint": print_, **asdict(card)}
    # As JSON gives it back: tuples become lists.
    header = json.loads(json.dumps(header))
    header["checksum"] = checksum(header, extra)
    # One entry only: the order of several would change from run to run.
    content = save({**tensors, **extra}, metadata={_HEADER: json.dumps(header, ensure_ascii=False)})
    with atomic_write(path) as file:
        file.write(content)
    return print_


def read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and header of a model file; raises `ModelError` if it is not one or is damaged."""
    header, state = _read(path, weights=True)
    if fingerprint(state) != header["fingerprint"]:
        raise ModelError(f"{path}: the weights do not match their fingerprint; the file is damaged")
    return state, header


def read_card(path: Path) -> tuple[ModelCard, str]:
    """What a model file says about its weights, and their fingerprint, without reading them.

    Raises `ModelError` if it is not a model file or its header is damaged.
    """
    header, _ = _read(path, weights=False)
    return card_from_header(path, header), header["fingerprint"]


def _read(path: Path, *, weights: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header of a model file and, if asked for, its tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            names = list(file.keys())
            extra = {name: file.get_tensor(name) for name in names if name.startswith(_IMPOSTORS)}
            state = {name: file.get_tensor(name) for name in names if weights and name not in extra}
    except FileNotFoundError:
        raise ModelError(f"{path}: no such model file") from None
    except (SafetensorError, OSError) as error:
        if is_torch_file(path):
            raise ModelError(
                f"{path}: a PyTorch checkpoint, not a model of SlimReID; turn one of DeMo into a run with "
                f"'slimreid import-demo CONFIG.yml {path} --out RUN'; backbone weights go to model.pretrained"
            ) from None
        raise ModelError(f"{path}: not a readable safetensors file ({error})") from None
    if _HEADER not in metadata:
        raise ModelError(
            f"{path}: safetensors without SlimReID's header; backbone weights go to model.pretrained"
        )
    header = _header(path, metadata[_HEADER])
    if checksum(header, extra) != header.get("checksum"):
        raise ModelError(f"{path}: its header does not match its checksum; copy or download the file again")
    header["impostors"] = {name.removeprefix(_IMPOSTORS): table.numpy() for name, table in extra.items()}
    return header, state


def _header(path: Path, text: str) -> dict[str, Any]:
    """Read and check the header; raises `ModelError` if it is damaged or of a newer version."""
    damaged = f"{path}: its header is damaged"
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{damaged} ({error}); copy or download the file again") from None
    number = header.get("format") if isinstance(header, dict) else None
    if not isinstance(number, int):
        raise ModelError(f"{damaged}: no 'format'; copy or download the file again")
    if number != FORMAT:
        age, cure = ("newer", "update SlimReID") if number > FORMAT else ("older", "train the model again")
        raise ModelError(f"{path}: written by SlimReID {header.get('slimreid')}, which is {age}; {cure}")
    for name, kind in _KINDS.items():
        if not isinstance(header.get(name), kind):
            raise ModelError(f"{damaged}: '{name}' is {header.get(name)!r}; copy or download the file again")
    found: dict[str, Any] = header
    return found


_KINDS: dict[str, type] = {
    "fingerprint": str,
    "config": dict,
    "modalities": list,
    "identities": list,
    "cameras": list,
    "epoch": int,
    "select_on": str,
}
"""What every header must hold."""


def find_model(path: Path | str) -> Path:
    """The model file meant by `path`: the file itself, or the one in a run's or checkpoint's folder."""
    path = Path(path)
    if path.is_dir():
        inside = path / MODEL_NAME
        if not inside.is_file():
            raise ModelError(f"{path}: no {MODEL_NAME} in this folder; give a model file or a finished run")
        return inside
    if not path.is_file():
        raise ModelError(f"{path}: no such model; give a {MODEL_NAME} or the folder of a run")
    return path
