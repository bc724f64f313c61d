"""Models, ready for use: what training wrote, run by torch, or an exported one, run by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slimreid.config.model import DEFAULT_MODEL
from slimreid.errors import ConfigError
from slimreid.extras import explain_missing
from slimreid.inference.exported_card import is_exported
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.shipped import find_model, resolve_model

if TYPE_CHECKING:
    import torch

__all__ = ["LoadedModel", "load"]


def load(
    path: Path | str = DEFAULT_MODEL,
    device: torch.device | str | None = "cpu",
    threads: int | None = None,
) -> LoadedModel:
    """Load a model for use: a model file, the folder of a run or checkpoint, or an exported model.

    Args:
        path: File, folder, or the name of a model that ships, such as people-tiny. An exported model, which
            those that ship are, needs no torch.
        device: cpu, cuda or mps; None = a GPU if there is one. An exported model runs on the CPU.
        threads: Threads of an exported model; None = as many as this process may use. Models that torch
            runs take what torch is set to.

    Raises:
        ModelError: Naming the file and what is wrong with it.
        ConfigError: For a device or number of threads that cannot be used.
        MissingExtraError: Where what runs the model is not installed.
    """
    path = resolve_model(path)
    if is_exported(path):
        with explain_missing():
            from slimreid.inference.exported_model import load_exported
        return load_exported(path, None if device is None else str(device), threads)
    path = find_model(path)  # a wrong path is said before torch is asked for
    if threads is not None:
        raise ConfigError(f"threads are chosen for exported models; {path} is run by torch")
    with explain_missing():
        from slimreid.inference.trained_model import load_trained
    return load_trained(path, device)
