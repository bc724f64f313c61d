"""Trained models that torch runs, from the files that training writes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from slimreid import __version__
from slimreid.arrays import Floats, Ints, Pixels
from slimreid.config.model import BOTH, ORIGINAL
from slimreid.data.augment.transforms import fast_resize
from slimreid.data.batches import ModalBatch
from slimreid.data.sample_reader import ImageBatch
from slimreid.devices import Precision, autocast, choose_device, usable_precision
from slimreid.errors import ConfigError, DataError, ModelError
from slimreid.files import atomic_write
from slimreid.inference.adaptation import Adaptation
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.model_card import (
    ADAPTATION,
    FORMAT,
    HEADER,
    IMPOSTORS,
    TABLES,
    ModelCard,
    card_from_header,
    checksum,
    digest,
    feature_fingerprint,
    read_header,
)
from slimreid.inference.similarity import Similarity, Subset, check_kind
from slimreid.modalities import all_subsets
from slimreid.models.reid_model import ReIDModel, build_model


@dataclass(frozen=True, repr=False)
class TrainedModel(LoadedModel):
    """A trained model that torch runs."""

    model: ReIDModel
    """In eval mode."""
    card: ModelCard
    fingerprint: str
    """SHA-256 of the weights: two models with the same one give the same embeddings."""
    path: Path
    impostors: Mapping[str, Floats] = field(default_factory=dict)
    """Per kind of feature, how alike different training identities are; see `Similarity`."""
    adaptation: Adaptation | None = None

    @property
    def sizes(self) -> Mapping[str, int]:
        """Channels of each kind of feature, `both` last."""
        return self.model.sizes

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def precision(self) -> Precision:
        """Number format in which features are computed: that of training where the device has it."""
        return usable_precision(self.config.train.precision, self.device)

    @property
    def feature_fingerprint(self) -> str:
        """SHA-256 over weights, precision and preprocessing: only features that agree in it are compared."""
        precision = self.config.train.precision
        return feature_fingerprint(self.card, self.fingerprint, precision, self.adaptation)

    def similarity(self, feature: str = BOTH) -> Similarity:
        """How features of a kind are compared; raises `ConfigError` for one the model does not have."""
        # Without a second branch both together are the first one again.
        of = ORIGINAL if feature == BOTH and self.second is None else feature
        return feature_similarity(self.model, feature, self.impostors.get(of))

    def resize(self, image: Pixels, size: tuple[int, int], mode: str) -> Pixels:
        """Resize (H, W, 3) uint8 to (3, *size) uint8, by torch."""
        return fast_resize(image, size, mode)

    def unadapted(self) -> TrainedModel:
        """The same model without an adaptation."""
        return replace(self, adaptation=None)

    def plain_features(self, batch: ImageBatch) -> dict[str, Floats]:
        """Features (B, D) of a batch per branch, as the model gives them, not normalised."""
        tensors = ModalBatch.from_images(batch)
        (found,) = embed_batches(self.model, [tensors], self.device, self.precision)
        return {n: f.float().cpu().numpy() for n, f in found.features.items() if n != BOTH}

    @torch.no_grad()
    def kept_patches(self, batch: ImageBatch) -> Ints:
        """Numbers (B, M, K) of the patches that the last stage of token reduction kept."""
        output = self.model(ModalBatch.from_images(batch).to(self.device), with_reduced=True)
        kept: Ints = output.reduced.selections[-1].index.cpu().numpy()
        return kept


def read_trained(path: Path, device: torch.device | str | None = "cpu") -> TrainedModel:
    """The trained model in a file, in eval mode; `device` None = a GPU if there is one.

    Raises `ModelError` naming what is wrong with the file, `ConfigError` for a device that cannot be used.
    """
    place = device if isinstance(device, torch.device) else choose_device(device)
    return assemble(path, *read_model(path), place)


def assemble(
    path: Path, state: Mapping[str, Tensor], header: Mapping[str, Any], device: torch.device | str = "cpu"
) -> TrainedModel:
    """The model whose file at `path` holds these weights and this header, in eval mode."""
    card = card_from_header(path, header)
    model = build_from_card(card)
    load_state(model, state, path)
    tables = header.get("impostors", {})
    for kind, table in tables.items():
        try:
            feature_similarity(model, kind, table)
        except (ConfigError, DataError) as error:
            raise ModelError(f"{path}: its statistics of impostors are wrong: {error}") from None
    adaptation = header.get("adaptation")
    loaded = TrainedModel(model.to(device).eval(), card, header["fingerprint"], path, tables, adaptation)
    loaded.check_adaptation()
    return loaded


def architecture(loaded: LoadedModel) -> ReIDModel:
    """The model as torch has it; that of an exported model has random weights."""
    return loaded.model if isinstance(loaded, TrainedModel) else build_from_card(loaded.card)


def build_from_card(card: ModelCard) -> ReIDModel:
    """The model a card describes, with random weights."""
    config, classes, cameras = card.config, len(card.identities), len(card.cameras)
    size = config.transforms.size
    return build_model(config.model, size, card.modalities, classes, cameras, load_weights=False)


def load_state(model: ReIDModel, state: Mapping[str, Tensor], where: Path | str) -> None:
    """Put weights into a model to the last key; raises `ModelError` naming the keys that do not fit."""
    if faults := mismatches(model.state_dict(), state):
        more = f"\n  and {len(faults) - 10} more" if len(faults) > 10 else ""
        raise ModelError(f"{where}: the weights do not fit\n  " + "\n  ".join(faults[:10]) + more)
    model.load_state_dict(state)


def mismatches(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """Why weights do not fit a model's own: one line per key that is missing, strange or of another shape."""
    faults = [f"missing '{name}'" for name in own if name not in given]
    faults += [f"no place for '{name}'" for name in given if name not in own]
    faults += [
        f"'{name}' is {tuple(given[name].shape)}, not {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in given and given[name].shape != tensor.shape
    ]
    return faults


@dataclass(frozen=True)
class EmbeddedBatch:
    """What a model makes of one batch."""

    batch: ModalBatch
    """On the model's device."""
    features: dict[str, Tensor]
    """By kind, (B, D), as the model gives them."""


@torch.no_grad()
def embed_batches(
    model: ReIDModel, batches: Iterable[ModalBatch], device: torch.device, precision: Precision = "fp32"
) -> Iterator[EmbeddedBatch]:
    """Run a model in eval mode over batches.

    This is the only place where torch computes features for use: training, evaluation and embedding all
    come here.
    """
    training = model.training
    model.eval()
    try:
        for batch in batches:
            batch = batch.to(device, non_blocking=True)
            with autocast(precision, device):
                features = model(batch).features
            yield EmbeddedBatch(batch, features)
    finally:
        model.train(training)


def feature_similarity(model: ReIDModel, feature: str, impostors: Floats | None = None) -> Similarity:
    """How features of a kind are compared; raises `ConfigError` for a kind the model does not have."""
    check_kind(feature, tuple(model.sizes))
    single = [(name,) for name in model.modalities]
    blocks: dict[str, Sequence[Subset]] = {ORIGINAL: single}
    if model.second:
        blocks[model.second] = single if model.hdm is None else all_subsets(model.modalities)
    chosen = blocks.values() if feature == BOTH else [blocks[feature]]
    return Similarity(model.modalities, tuple(itertools.chain(*chosen)), impostors)


def fingerprint(state: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and values of tensors, whatever their order."""

    def content(tensor: Tensor) -> Any:  # as bytes: numpy does not know bfloat16
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        return plain.view(torch.uint8).numpy().data if tensor.numel() else b""

    return digest((n, str(t.dtype), tuple(t.shape), content(t)) for n, t in state.items())


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
