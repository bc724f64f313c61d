"""Model files: one safetensors file with the weights and, in its header, all that is needed to use them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from slimreid import __version__
from slimreid.errors import ModelError
from slimreid.files import atomic_write
from slimreid.inference.adaptation import Adaptation
from slimreid.inference.kinds import Floats
from slimreid.inference.model_card import (
    ADAPTATION,
    FORMAT,
    HEADER,
    IMPOSTORS,
    TABLES,
    ModelCard,
    checksum,
    digest,
    read_header,
)


def fingerprint(state: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and values of tensors, whatever their order."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    return digest((n, str(t.dtype), tuple(t.shape), _bytes(t)) for n, t in tensors.items())


def _bytes(tensor: Tensor) -> Any:
    """The bytes of a tensor, whatever its type: numpy does not know bfloat16."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b""


def write_model(
    path: Path,
    state: Mapping[str, Tensor],
    card: ModelCard,
    impostors: Mapping[str, Floats] | None = None,
    adaptation: Adaptation | None = None,
) -> str:
    """Write a model file atomically and return its fingerprint; the same input gives the same bytes.

    `impostors`: per kind of feature, how alike different training identities are, see `Similarity`;
    `adaptation`: what is known of the cameras of a site.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    print_ = fingerprint(tensors)
    extra: dict[str, NDArray[Any]] = {f"{IMPOSTORS}{kind}": x for kind, x in (impostors or {}).items()}
    header = {"format": FORMAT, "slimreid": __version__, "fingerprint": print_, **asdict(card)}
    if adaptation is not None:
        header["adaptation"] = adaptation.values
        extra |= {f"{ADAPTATION}{name}": array for name, array in adaptation.to_arrays().items()}
    # As JSON gives it back: tuples become lists.
    header = json.loads(json.dumps(header))
    header["checksum"] = checksum(header, extra)
    tables = {name: torch.from_numpy(table) for name, table in extra.items()}
    # One entry only: the order of several would change from run to run.
    content = save({**tensors, **tables}, metadata={HEADER: json.dumps(header, ensure_ascii=False)})
    with atomic_write(path) as file:
        file.write(content)
    return print_


def read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and header of a model file; raises `ModelError` if it is not one or is damaged."""
    header = read_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if not name.startswith(TABLES)]  # noqa: SIM118
            state = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: not a readable safetensors file ({error})") from None
    if fingerprint(state) != header["fingerprint"]:
        raise ModelError(f"{path}: the weights do not match their fingerprint; the file is damaged")
    return state, header
