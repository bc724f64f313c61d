"""What a word for a model means: a path, or the name of a model that ships. Needs no torch."""

from __future__ import annotations

from pathlib import Path

from slimreid.config.model import DEFAULT_MODEL
from slimreid.errors import ModelError, did_you_mean
from slimreid.inference.exported_card import CARD_NAME, INT8_CARD_NAME, is_exported
from slimreid.inference.model_card import MODEL_NAME

PRETRAINED = Path(__file__).parents[1] / "pretrained"
"""A folder per model, as `exporting.compact` writes it."""
_INT8 = "-int8"


def shipped_models() -> dict[str, Path]:
    """The card of each model that ships, by name: the one of int8 ends in `-int8`."""
    found = {}
    for card in sorted(PRETRAINED.glob(f"*/{CARD_NAME}")):
        found[card.parent.name] = card
        if (int8 := card.with_name(INT8_CARD_NAME)).is_file():
            found[f"{card.parent.name}{_INT8}"] = int8
    return found


def shipped_name(path: Path) -> str | None:
    """The name of the model that ships with this card; None for a model of the user."""
    return next((name for name, card in shipped_models().items() if card == path), None)


def resolve_model(given: Path | str) -> Path:
    """What a word for a model means: a path that exists, else the card of a model that ships.

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
            f"{name}: this installation lacks the model that ships; install SlimReID again, or name a model "
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
    """Where what is found out about a model is kept: beside its file; `runs/NAME` for one that ships."""
    name = shipped_name(path)
    return path.parent if name is None else Path("runs") / name
