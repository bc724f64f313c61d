"""What a model file or an exported model says about its weights, read without them. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from slimreid.config import Config
from slimreid.config.files import config_from_dict
from slimreid.errors import ConfigError, ModelError
from slimreid.files import is_torch_file
from slimreid.inference.adaptation import Adaptation, adaptation_from
from slimreid.json_files import json_digest

CARD_NAME = "model.json"
INT8_CARD_NAME = "int8.model.json"
"""Card of a second model, in int8, over the weights of the same folder (see `research/compact.py`)."""

CHOSEN_ON_TEST = "the checkpoint was chosen on the test set, so its figures are too good"
"""What every result of such a model must say."""


MODEL_NAME = "model.safetensors"
FORMAT = 2
HEADER = "slimreid"
"""Key of the header in the metadata of the file."""
IMPOSTORS, ADAPTATION = "impostors.", "adaptation."
"""Starts of the names of tables that are no weights."""
TABLES = (IMPOSTORS, ADAPTATION)
Values = tuple[str, str, tuple[int, ...], Any]
"""Name, type as torch calls it, shape and bytes of an array."""
HEADER_KINDS: dict[str, type] = {
    "fingerprint": str,
    "config": dict,
    "modalities": list,
    "identities": list,
    "cameras": list,
    "epoch": int,
    "select_on": str,
}
"""What every header must hold."""


@dataclass(frozen=True)
class ModelCard:
    """What a model file says about its weights."""

    config: Config
    """All options of the run it comes from."""
    modalities: tuple[str, ...]
    """Modalities of the model, in order."""
    identities: tuple[str, ...]
    """Names of the training identities, in the order of the classes."""
    cameras: tuple[str, ...]
    """Names of the training cameras, in the order of the camera embedding."""
    epoch: int
    """Epochs of training behind these weights."""
    select_on: str
    """How the checkpoint was chosen: on `val`, on `test`, or `last` = not chosen."""
    protocol: str = "camera"
    """Evaluation protocol of the data."""
    origin: str = ""
    """What the pixels were, if the manifest says so, e.g. 'real rgb, simulated nir/tir'."""


def feature_fingerprint(
    card: ModelCard, weights: str, precision: str, adaptation: Adaptation | None = None
) -> str:
    """SHA-256 over all that decides the features of an image: weights, precision, preprocessing, adaptation.

    Features of two models may be compared if and only if they agree in this.
    """
    data, transforms, scale = card.config.data, card.config.transforms, card.config.model.second_scale
    content = [
        weights,
        precision,
        card.modalities,
        [transforms.size, transforms.mean, transforms.std, transforms.test_resize],
        [data.windows, data.scaled_decode],
        *([] if scale == 1 else [scale]),
        *([] if adaptation is None else [adaptation.digest]),
    ]
    return json_digest(content)


def card_from_header(path: Path, header: Mapping[str, Any]) -> ModelCard:
    """The card in the header of a model file; raises `ModelError` for options this version does not know."""
    values = {name: header[name] for name in ModelCard.__dataclass_fields__ if name in header}
    for name in ("modalities", "identities", "cameras"):
        values[name] = tuple(values[name])
    try:
        values["config"] = config_from_dict(header["config"])
    except ConfigError as error:
        raise ModelError(f"{path}: its options do not fit this SlimReID: {error}") from None
    return ModelCard(**values)


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
    """The header of a model file, its tables of impostors under `impostors` and its `adaptation`, if any.

    Raises `ModelError`.
    """
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            extra = {name: file.get_tensor(name) for name in file.keys() if name.startswith(TABLES)}  # noqa: SIM118
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
    header["impostors"], arrays = (
        {name.removeprefix(start): table for name, table in extra.items() if name.startswith(start)}
        for start in TABLES
    )
    if "adaptation" in header:
        try:
            header["adaptation"] = adaptation_from(header["adaptation"], arrays)
        except (KeyError, TypeError) as error:
            raise ModelError(f"{path}: its adaptation is damaged ({error!r}); adapt it again") from None
    return header


def file_fingerprint(path: Path) -> str:
    """`feature_fingerprint` of the model in a file, without reading the weights; raises `ModelError`."""
    header = read_header(path)
    card = card_from_header(path, header)
    precision = card.config.train.precision
    return feature_fingerprint(card, header["fingerprint"], precision, header.get("adaptation"))


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
        advice = "newer; update SlimReID" if number > FORMAT else "older; train the model again"
        raise ModelError(f"{path}: written by SlimReID {header.get('slimreid')}, which is {advice}")
    for name, kind in HEADER_KINDS.items():
        if not isinstance(header.get(name), kind):
            raise ModelError(f"{damaged}: '{name}' is {header.get(name)!r}; copy or download the file again")
    found: dict[str, Any] = header
    return found


def card_path(path: Path | str) -> Path:
    """The card of an exported model, given its folder or the card itself."""
    path = Path(path)
    return path if path.name in (CARD_NAME, INT8_CARD_NAME) else path / CARD_NAME


def is_exported(path: Path | str) -> bool:
    """Whether a path is the folder of an exported model, or its card."""
    return card_path(path).is_file()
