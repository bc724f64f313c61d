"""Model files: one safetensors file with the weights and, in its header, all that is needed to use them."""

from __future__ import annotations

import hashlib
import json
from argparse import ArgumentError
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jsonargparse import ArgumentParser
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from slimreid import __version__
from slimreid.complaints import explain
from slimreid.config import Config
from slimreid.config_io import add_config_options, complete_options, known_keys, to_config
from slimreid.errors import ConfigError, ModelError
from slimreid.files import atomic_write
from slimreid.models.build import build_model
from slimreid.models.reid_model import ReIDModel

if TYPE_CHECKING:
    from slimreid.embedding import Images

MODEL_NAME = "model.safetensors"
FORMAT = 1
_HEADER = "slimreid"

CHOSEN_ON_TEST = "the checkpoint was chosen on the test set, so its figures are too good"
"""What every result of such a model must say."""


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


@dataclass(frozen=True)
class LoadedModel:
    """A trained model, ready for use, with everything its file says."""

    model: ReIDModel
    """In eval mode."""
    card: ModelCard
    fingerprint: str
    """SHA-256 of the weights: two models with the same one give the same embeddings."""
    path: Path

    @property
    def config(self) -> Config:
        """Options of the run it comes from."""
        return self.card.config

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities of the model, in order."""
        return self.card.modalities

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras it knows."""
        return self.card.cameras

    @property
    def identities(self) -> tuple[str, ...]:
        """Names of the identities it was trained on."""
        return self.card.identities

    def embed(
        self,
        images: Images,
        *,
        feature: str = "both",
        cameras: Sequence[str | None] | None = None,
        batch: int | None = None,
        show_progress: bool | None = None,
    ) -> Tensor:
        """L2-normalised embeddings (B, D), float32 on CPU, of paths, PIL images, arrays or tensors.

        `images`: {modality: one or a list of B, None for gaps}, a list of dicts {modality: image}, or for a
        model of one modality an image or a list. See `slimreid.embedding.embed`.
        """
        from slimreid.embedding import embed

        return embed(self, images, feature=feature, cameras=cameras, batch=batch, show_progress=show_progress)


def fingerprint(state: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and values of tensors, whatever their order."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()


def write_model(path: Path, state: Mapping[str, Tensor], card: ModelCard) -> str:
    """Write a model file atomically and return its fingerprint; the same input gives the same bytes."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    print_ = fingerprint(tensors)
    header = {"format": FORMAT, "slimreid": __version__, "fingerprint": print_, **asdict(card)}
    # One entry only: the order of several would change from run to run.
    content = save(tensors, metadata={_HEADER: json.dumps(header, ensure_ascii=False)})
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
            state = {name: file.get_tensor(name) for name in file.keys() if weights}  # noqa: SIM118
    except FileNotFoundError:
        raise ModelError(f"{path}: no such model file") from None
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: not a readable safetensors file ({error})") from None
    if _HEADER not in metadata:
        raise ModelError(
            f"{path}: safetensors without SlimReID's header; backbone weights go to model.pretrained"
        )
    return _header(path, metadata[_HEADER]), state


def _header(path: Path, text: str) -> dict[str, Any]:
    """Read and check the header; raises `ModelError` if it is damaged or of a newer version."""
    damaged = f"{path}: its header is damaged"
    try:
        header = json.loads(text)
    except ValueError as error:
        raise ModelError(f"{damaged} ({error}); copy or download the file again") from None
    number = header.get("format") if isinstance(header, dict) else None
    if not isinstance(number, int):
        raise ModelError(f"{damaged}: no 'format'; copy or download the file again")
    if number > FORMAT:
        raise ModelError(
            f"{path}: written by SlimReID {header.get('slimreid')}, which is newer; update SlimReID"
        )
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


def card_from_header(path: Path, header: Mapping[str, Any]) -> ModelCard:
    """The card in the header of a model file; raises `ModelError` for options this version does not know."""
    values = {name: header[name] for name in ModelCard.__dataclass_fields__ if name in header}
    for name in ("modalities", "identities", "cameras"):
        values[name] = tuple(values[name])
    try:
        values["config"] = config_from_dict(complete_options(header["config"]))
    except ConfigError as error:
        raise ModelError(f"{path}: its options do not fit this SlimReID: {error}") from None
    return ModelCard(**values)


def config_from_dict(options: Mapping[str, Any]) -> Config:
    """A config from nested plain values, as JSON holds them; raises `ConfigError` naming the key."""
    parser = ArgumentParser(exit_on_error=False)
    add_config_options(parser)
    try:
        return to_config(parser.instantiate(parser.parse_object(dict(options))))
    except ArgumentError as error:
        raise ConfigError(explain(str(error), known_keys())) from None


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


def load(path: Path | str, device: torch.device | str = "cpu") -> LoadedModel:
    """Load a trained model from its file, or from the folder of a run or checkpoint, in eval mode.

    Raises `ModelError` naming the file and what is wrong with it.
    """
    path = find_model(path)
    return assemble(path, *read_model(path), device)


def assemble(
    path: Path, state: Mapping[str, Tensor], header: Mapping[str, Any], device: torch.device | str = "cpu"
) -> LoadedModel:
    """The model whose file at `path` holds these weights and this header, in eval mode."""
    card = card_from_header(path, header)
    model = build_from_card(card)
    load_state(model, state, path)
    return LoadedModel(model.to(device).eval(), card, header["fingerprint"], path)


def choose_device(name: str | None = None) -> torch.device:
    """The device named, or a GPU if there is one; raises `ConfigError` for one that cannot be used."""
    if name is None:
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return found or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise ConfigError(f"device '{name}' cannot be used ({reason}); use cpu, or leave it out") from None
    return device


def build_from_card(card: ModelCard) -> ReIDModel:
    """The model a card describes, with random weights."""
    config = card.config
    return build_model(
        config.model,
        config.transforms.size,
        card.modalities,
        len(card.identities),
        len(card.cameras),
        load_weights=False,
    )


def load_state(model: ReIDModel, state: Mapping[str, Tensor], where: Path | str) -> None:
    """Put weights into a model to the last key; raises `ModelError` naming the keys that do not fit."""
    own = model.state_dict()
    faults = [f"missing '{name}'" for name in own if name not in state]
    faults += [f"no place for '{name}'" for name in state if name not in own]
    faults += [
        f"'{name}' is {tuple(state[name].shape)}, not {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    if faults:
        more = f"\n  and {len(faults) - 10} more" if len(faults) > 10 else ""
        raise ModelError(f"{where}: the weights do not fit\n  " + "\n  ".join(faults[:10]) + more)
    model.load_state_dict(state)
