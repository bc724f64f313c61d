"""Find a model by its path, or by its name where it ships, and load it, run by torch or by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slimreid.config.model import DEFAULT_MODEL
from slimreid.errors import ConfigError, ModelError, did_you_mean
from slimreid.extras import explain_missing
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.model_card import CARD_NAME, INT8_CARD_NAME, MODEL_NAME, is_exported

if TYPE_CHECKING:
    import torch

    from slimreid.inference.trained_model import TrainedModel

PRETRAINED = Path(__file__).parents[1] / "pretrained"
"""A folder per model, as `research/compact.py` writes it."""
_INT8 = "-int8"


def load(
    path: Path | str = DEFAULT_MODEL,
    device: torch.device | str | None = "cpu",
    threads: int | None = None,
) -> LoadedModel:
    """Load a model for use: a model file, the folder of a run or checkpoint, or an exported model.

    Args:
        path: File, folder, or the name of a built-in model, such as people-tiny. An exported model, which
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
    if threads is not None:
        raise ConfigError(f"threads can be set for exported models only; {path} is run by torch")
    return load_trained(path, device)


def load_trained(path: Path | str, device: torch.device | str | None = "cpu") -> TrainedModel:
    """Load a trained model from its file, or from the folder of a run or checkpoint, in eval mode.

    `device` None = a GPU if there is one. Raises `ModelError` naming the file and what is wrong with it,
    `ConfigError` for a device that cannot be used.
    """
    path = find_model(path)  # a wrong path is said before torch is asked for
    with explain_missing():
        from slimreid.inference.trained_model import read_trained
    return read_trained(path, device)


def shipped_models() -> dict[str, Path]:
    """The card of each built-in model, by name; the names of int8 models end in `-int8`."""
    found = {}
    for card in sorted(PRETRAINED.glob(f"*/{CARD_NAME}")):
        found[card.parent.name] = card
        if (int8 := card.with_name(INT8_CARD_NAME)).is_file():
            found[f"{card.parent.name}{_INT8}"] = int8
    return found


def shipped_name(path: Path) -> str | None:
    """The name of the built-in model with this card; None for a model of the user."""
    return next((name for name, card in shipped_models().items() if card == path), None)


def resolve_model(given: Path | str) -> Path:
    """What a word for a model means: a path that exists, else the card of a built-in model.

    Raises `ModelError` for a name that no model has, with the nearest, or that this installation lacks.
    """
    path, name = Path(given), str(given)
    if path.is_file() or is_exported(path):
        return path
    models = shipped_models()
    if name in models:
        return models[name]
    if path.exists() or path.name != name:  # not a name
        return path
    if name in (DEFAULT_MODEL, f"{DEFAULT_MODEL}{_INT8}"):
        raise ModelError(
            f"{name}: this installation lacks the built-in model; install SlimReID again, or name a model "
            "of yours with --model"
        )
    if near := did_you_mean(name, models):
        raise ModelError(f"{name}: no such model{near}")
    return path


def find_model(given: Path | str) -> Path:
    """The model file that torch runs: the file itself, or the one in a run's or checkpoint's folder.

    Raises `ModelError` where there is none.
    """
    path = resolve_model(given)
    if is_exported(path):
        raise ModelError(f"{path}: an exported model, which torch does not run; give the run it came from")
    if path.is_dir():
        inside = path / MODEL_NAME
        if not inside.is_file():
            raise ModelError(f"{path}: no {MODEL_NAME} in this folder; give a model file or a finished run")
        return inside
    if not path.is_file():
        raise ModelError(f"{path}: no such model; give a {MODEL_NAME} or the folder of a run")
    return path


def results_folder(path: Path) -> Path:
    """Where results about a model are kept: beside its file; `runs/NAME` for a built-in one."""
    name = shipped_name(path)
    return path.parent if name is None else Path("runs") / name
