"""Read a state dict from a local file or folder, or from the Hugging Face hub."""

from __future__ import annotations

import logging
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from slimreid.backbones.weight_conversion import unwrap_state_dict
from slimreid.errors import ModelError
from slimreid.files import is_torch_file

logger = logging.getLogger(__name__)

HUB_SCHEME = "hf://"
HUB_FILES = ("model.safetensors", "pytorch_model.bin")
"""What is looked for in a folder or hub repository when no file is named."""


_DAMAGED = (
    *(SafetensorError, RuntimeError, EOFError, ValueError, OSError, zipfile.BadZipFile),
    # What a pickle with a wrong byte can raise while it is read.
    *(LookupError, TypeError, AttributeError, AssertionError, OverflowError, struct.error),
)


def read_weights(source: str | Path) -> dict[str, Any]:
    """State dict behind a path (.safetensors, .bin, .pt, .pth, TorchScript archive, folder) or `hf://` id.

    Tensors are on the CPU, in the dtype of the file. Raises `ModelError` naming the file and the cure.
    """
    text = str(source)
    path = fetch_from_hub(text) if text.startswith(HUB_SCHEME) else _find_file(Path(source))
    try:
        return unwrap_state_dict(_read(path))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def fetch_from_hub(address: str) -> Path:
    """Download (or find in the local cache) `hf://organisation/name[/file]`; raises `ModelError`."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    parts = address.removeprefix(HUB_SCHEME).split("/", maxsplit=2)
    if len(parts) < 2 or not all(parts):
        raise ModelError(f"{address}: a hub address is hf://organisation/name or hf://organisation/name/file")
    organisation, name, *file_named = parts
    files = tuple(file_named) or HUB_FILES
    for file in files:
        try:
            return Path(hf_hub_download(f"{organisation}/{name}", file))
        except LocalEntryNotFoundError as error:
            raise ModelError(
                f"{address}: {file} is not in the local cache and the hub cannot be reached; connect, or "
                "download the file elsewhere and give its path instead"
            ) from error
        except EntryNotFoundError:
            logger.info("%s has no %s", address, file)
        except (OSError, ValueError) as error:  # no such repository, gated, HTTP status, bad name
            raise ModelError(
                f"{address}: {type(error).__name__}: {error}; check the name, and for gated weights accept "
                "their licence on the hub and log in with `hf auth login`"
            ) from error
    raise ModelError(f"{address}: none of {', '.join(files)} is in this repository; name a file after the id")


def _find_file(path: Path) -> Path:
    if path.is_dir():
        inside = [path / name for name in HUB_FILES if (path / name).is_file()]
        if not inside:
            raise ModelError(
                f"{path}: none of {', '.join(HUB_FILES)} is in this folder; name the file itself"
            )
        return inside[0]
    if not path.is_file():
        raise ModelError(f"{path}: no such file of weights")
    return path


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if _is_torchscript(path):
            return torch.jit.load(path, map_location="cpu").state_dict()  # type: ignore[no-untyped-call]
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if not is_torch_file(path):
            raise ModelError(
                "not a file of weights; give a .safetensors, .pt, .pth or .bin file, or hf://organisation/name"
            ) from error
        raise ModelError(
            "contains more than tensors, which is not loaded for safety; save only its state dict, as "
            "torch.save(model.state_dict(), path) or .safetensors"
        ) from error
    except _DAMAGED as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"cannot be read as weights, download it again ({reason})") from error


def _is_torchscript(path: Path) -> bool:
    """Whether a file is a TorchScript archive (as OpenAI publishes CLIP): a zip with a constants table."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())
