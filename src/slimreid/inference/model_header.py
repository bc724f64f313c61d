"""The header of a model file: all that is said of the weights, read without them. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from slimreid.errors import ModelError
from slimreid.files import is_torch_file
from slimreid.inference.model_card import ModelCard, card_from_header

MODEL_NAME = "model.safetensors"
FORMAT = 2
HEADER = "slimreid"
"""Key of the header in the metadata of the file."""
IMPOSTORS = "impostors."
"""Start of the names of tables that are no weights."""

Values = tuple[str, str, tuple[int, ...], Any]
"""Name, type as torch calls it, shape and bytes of an array."""


def digest(values: Iterable[Values]) -> str:
    """SHA-256 over names, types, shapes and values of arrays, whatever their order."""
    found = hashlib.sha256()
    for name, kind, shape, content in sorted(values, key=lambda each: each[0]):
        found.update(f"{name}\0{kind}\0{shape}\0".encode())
        found.update(content)
    return found.hexdigest()


def checksum(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over a header, except its own `checksum`, and arrays: all that is read back of a file."""
    plain = {name: value for name, value in header.items() if name != "checksum"}
    text = json.dumps(plain, sort_keys=True, ensure_ascii=True)
    values = digest((n, f"torch.{a.dtype.name}", a.shape, a.tobytes()) for n, a in arrays.items())
    return hashlib.sha256(f"{text}\0{values}".encode()).hexdigest()


def read_card(path: Path) -> tuple[ModelCard, str]:
    """What a model file says about its weights, and their fingerprint, without reading them.

    Raises `ModelError` if it is not a model file or its header is damaged.
    """
    header = read_header(path)
    return card_from_header(path, header), header["fingerprint"]


def read_header(path: Path) -> dict[str, Any]:
    """The header of a model file, with the tables of impostors under `impostors`; raises `ModelError`."""
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            extra = {name: file.get_tensor(name) for name in file.keys() if name.startswith(IMPOSTORS)}  # noqa: SIM118
    except FileNotFoundError:
        raise ModelError(f"{path}: no such model file") from None
    except (SafetensorError, OSError) as error:
        if is_torch_file(path):
            raise ModelError(
                f"{path}: a PyTorch checkpoint, not a model of SlimReID; turn one of DeMo into a run with "
                f"'slimreid import-demo CONFIG.yml {path} --out RUN'; backbone weights go to model.pretrained"
            ) from None
        raise ModelError(f"{path}: not a readable safetensors file ({error})") from None
    if HEADER not in metadata:
        raise ModelError(
            f"{path}: safetensors without SlimReID's header; backbone weights go to model.pretrained"
        )
    header = _header(path, metadata[HEADER])
    if checksum(header, extra) != header.get("checksum"):
        raise ModelError(f"{path}: its header does not match its checksum; copy or download the file again")
    header["impostors"] = {name.removeprefix(IMPOSTORS): table for name, table in extra.items()}
    return header


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
