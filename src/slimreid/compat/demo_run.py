"""An old config and checkpoint as a run that every command takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from slimreid.backbones.weight_files import read_weights
from slimreid.compat.demo import load_demo_checkpoint
from slimreid.compat.demo_options import demo_config_options, read_demo_file, read_demo_options
from slimreid.config import Config
from slimreid.config.files import config_from_dict, save_config
from slimreid.errors import ConfigError, ModelError
from slimreid.inference.model_card import MODEL_NAME, ModelCard
from slimreid.inference.trained_model import build_from_card, load_state, write_model
from slimreid.modalities import DEFAULT_MODALITIES


@dataclass(frozen=True)
class ImportedRun:
    """What became of an old checkpoint."""

    model: Path
    """The model file."""
    card: ModelCard
    fingerprint: str
    """SHA-256 of the weights."""
    notes: tuple[str, ...]
    """Old options without effect, and unknown ones."""


def import_demo(
    config: Path, checkpoint: Path, output: Path, *, pairs: Sequence[str] = (), manifest: Path | None = None
) -> ImportedRun:
    """Write the model of an old checkpoint as a run.

    Args:
        config: Old config (.yml).
        checkpoint: Old checkpoint (.pth), a state dict.
        output: Folder of the new run.
        pairs: Old KEY VALUE pairs that override the config.
        manifest: The data that the run is evaluated on by default.

    Raises:
        ConfigError: for refused options, or if `output` holds a model already.
        ModelError: for a checkpoint that cannot be read, or whose keys do not fit the options.
    """
    if (output / MODEL_NAME).exists():
        raise ConfigError(f"{output} holds a model already; choose another --out")
    state = read_weights(checkpoint)
    given = read_demo_file(config, pairs)
    classes, cameras = _count(state, checkpoint)
    model = load_demo_checkpoint(state, given, classes, cameras)
    card = ModelCard(
        config=_config(config, pairs, manifest),
        modalities=DEFAULT_MODALITIES,
        identities=tuple(str(number) for number in range(classes)),
        # DeMo counts cameras from 0; file names, and so manifests, from 1.
        cameras=tuple(str(number + 1) for number in range(cameras)),
        epoch=int(read_demo_options(given).values["train.epochs"]),
        select_on="test",  # DeMo keeps the epoch that is best on the test set
        protocol="scene" if "MSVR310" in str(given.get("DATASETS.NAMES", "")) else "camera",
    )
    found = model.state_dict()
    load_state(build_from_card(card), found, checkpoint)  # what every loader will do
    output.mkdir(parents=True, exist_ok=True)
    save_config(card.config, output)
    fingerprint = write_model(output / MODEL_NAME, found, card)
    return ImportedRun(output / MODEL_NAME, card, fingerprint, tuple(read_demo_options(given).notes()))


def _config(path: Path, pairs: Sequence[str], manifest: Path | None) -> Config:
    """The options of the old config, without the weights that training began from."""
    config = config_from_dict(demo_config_options(path, pairs))
    data = replace(config.data, manifest=str(manifest.resolve()) if manifest is not None else "")
    return replace(config, data=data, model=replace(config.model, pretrained=None))


def _count(state: Mapping[str, Any], path: Path) -> tuple[int, int]:
    """Numbers of identities and cameras that a checkpoint was trained on."""
    classes = {len(v) for k, v in state.items() if k.startswith("classifier") and isinstance(v, Tensor)}
    if len(classes) != 1:
        raise ModelError(f"{path}: not a DeMo checkpoint: its classifiers have {sorted(classes)} classes")
    names = ("BACKBONE.cv_embed", "BACKBONE.base.cv_embed", "BACKBONE.base.sie_embed")
    return classes.pop(), max((len(state[name]) for name in names if name in state), default=0)
