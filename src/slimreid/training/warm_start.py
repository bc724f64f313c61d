"""Starting from the weights of a trained model, as far as they fit."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torch import Tensor

from slimreid.backbones.layers import resample_positions
from slimreid.config.backbones import vit_config
from slimreid.config.model import FUSED, ORIGINAL, SLIMMED
from slimreid.data.manifest import LabelEncoder
from slimreid.errors import ConfigError, ModelError
from slimreid.inference.load import find_model
from slimreid.inference.model_card import ModelCard, card_from_header, read_card
from slimreid.inference.trained_model import read_model
from slimreid.models.reid_model import ReIDModel
from slimreid.training.distributed.processes import Processes, on_main
from slimreid.training.optimizer import CAMERAS

logger = logging.getLogger(__name__)

OPTION = "train.init_from"
_BLOCKS = "backbone.blocks."
_POSITIONS = "backbone.position_embedding"
# Their channels stand for certain modalities, whatever their shape.
_JOINT = ("hdm.", "moe.", *(f"heads.{branch}." for branch in (ORIGINAL, SLIMMED, FUSED)))


@dataclass(frozen=True)
class Taken:
    """Which tensors of a model came from another one."""

    taken: tuple[str, ...]
    fresh: tuple[str, ...]
    """Tensors of the model that stay as they were."""
    unused: tuple[str, ...]
    """Tensors of the other model that have no place, or do not fit theirs."""


@contextmanager
def naming(option: str) -> Iterator[None]:
    """Turn a `ModelError` into a `ConfigError` that says which option named the model."""
    try:
        yield
    except ModelError as error:
        raise ConfigError(f"{option}: {error}") from None


def source_card(path: str, option: str) -> tuple[ModelCard, str]:
    """Card and fingerprint of the model that an option names; raises `ConfigError` naming the option."""
    with naming(option):
        return read_card(find_model(path))


def init_from(model: ReIDModel, path: str, label_encoder: LabelEncoder, processes: Processes) -> None:
    """Give `model` the weights of the trained model at `path` where they fit, and log what did not.

    Only the main process reads the file. Raises `ConfigError` when it is no model or no block fits.
    """

    def read() -> tuple[dict[str, Tensor], ModelCard]:
        found = find_model(path)
        state, header = read_model(found)
        return state, card_from_header(found, header)

    with naming(OPTION):
        state, card = on_main(read, processes)
    report = take_weights(model, state, card, label_encoder.trained_identities, label_encoder.trained_cameras)
    if not any(name.startswith(_BLOCKS) for name in report.taken):
        raise ConfigError(
            f"{OPTION} {path}: no weights of its backbone '{card.config.model.backbone}' fit; give a model "
            "with the backbone of model.backbone"
        )
    logger.info(
        "%s %s (epoch %d): %d of %d tensors taken; fresh: %s; not used: %s",
        OPTION,
        path,
        card.epoch,
        len(report.taken),
        len(report.taken) + len(report.fresh),
        _grouped(report.fresh),
        _grouped(report.unused),
    )


def take_weights(
    model: ReIDModel,
    state: Mapping[str, Tensor],
    card: ModelCard,
    identities: tuple[str, ...],
    cameras: tuple[str, ...],
) -> Taken:
    """Copy every tensor of `state` into `model` whose name, shape and meaning fit.

    Classifiers fit only with the same identities, camera embeddings only with the same cameras, and what
    joins modalities (joint heads, DeMo's fusion) only with the same modalities, each in the same order.
    Learned positions of another grid are resampled. The head of a mean of patches is taken for that of a
    mean of slimmed tokens, and the other way round.
    """
    own = model.state_dict()
    given = {_renamed(name, model, card): value for name, value in state.items()}
    if _POSITIONS in given and _POSITIONS in own:
        given[_POSITIONS] = _positions(given[_POSITIONS], own[_POSITIONS], model, card)
    changed = []
    if card.identities != identities:
        changed += [name for name in own if name.endswith("classifier.weight")]
    if card.cameras != cameras:
        changed.append(CAMERAS)
    if card.modalities != model.modalities:
        changed += [name for name in own if name.startswith(_JOINT)]
    fits = {
        name: value
        for name, value in given.items()
        if name in own and value.shape == own[name].shape and name not in changed
    }
    model.load_state_dict({**own, **fits})
    return Taken(
        taken=tuple(fits),
        fresh=tuple(name for name in own if name not in fits),
        unused=tuple(name for name in state if _renamed(name, model, card) not in fits),
    )


def _renamed(name: str, model: ReIDModel, card: ModelCard) -> str:
    """The name in `model` of a tensor of the model of `card`."""
    theirs = card.config.model
    if theirs.fusion == model.options.fusion == "mean":  # a mean of tokens per modality, whatever its name
        return name.replace(f"heads.{theirs.second}", f"heads.{model.second}", 1)  # or heads.fused_rgb
    return name


def _positions(table: Tensor, own: Tensor, model: ReIDModel, card: ModelCard) -> Tensor:
    """Learned positions on the grid of `model`; as they are where their channels differ anyway."""
    options = card.config.model
    vit = replace(vit_config(options.backbone), stride=options.stride)
    if table.shape[2] != own.shape[2]:
        return table
    source = vit.grid(card.config.transforms.size)
    return resample_positions(table, source, model.backbone.grid, model.backbone.config.position_resampling)


def _grouped(names: Iterable[str]) -> str:
    """Names of tensors by their part of the model, with how many there are of each."""
    parts = Counter(".".join(name.split(".")[: 3 if name.startswith("heads.") else 2]) for name in names)
    return ", ".join(f"{part} ({count})" for part, count in parts.items()) or "none"
