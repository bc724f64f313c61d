"""Features of whole datasets: each image is read once, whatever number of modality subsets is asked for."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.console import progress
from slimreid.data.loader import BatchLoader, eval_loader
from slimreid.data.manifest import SPLITS, Manifest, Sample
from slimreid.errors import ConfigError, SlimReIDWarning
from slimreid.evaluation.data import Cameras, ModelData, camera_numbers, eval_config
from slimreid.evaluation.feature_cache import FeatureCache, Stored, features_key
from slimreid.evaluation.parts import files_of
from slimreid.loading import LoadedModel
from slimreid.models.reid_model import BOTH, ReIDModel
from slimreid.precision import Precision, autocast, usable_precision
from slimreid.types import ModalBatch

logger = logging.getLogger(__name__)

ALL = "all"
Subset = tuple[str, ...]
"""Modalities that a model is shown, in canonical order."""


@dataclass(frozen=True)
class EmbeddedBatch:
    """What a model makes of one batch in one subset of modalities."""

    subset: int
    """Which of the subsets asked for."""
    batch: ModalBatch
    """On the model's device; samples without any modality of the subset are left out."""
    features: dict[str, Tensor]
    """By kind, (B, D), as the model gives them."""


@torch.no_grad()
def embed_batches(
    model: ReIDModel,
    batches: Iterable[ModalBatch],
    device: torch.device,
    precision: Precision = "fp32",
    subsets: Sequence[Subset | None] = (None,),
) -> Iterator[EmbeddedBatch]:
    """Run a model in eval mode over batches, each in every subset (None = whatever is there).

    This is the only place where features for use are computed: training, evaluation and embedding all
    come here.
    """
    training = model.training
    model.eval()
    try:
        for whole in batches:
            for number, subset in enumerate(subsets):
                batch = whole if subset is None else show_only(whole, subset)
                if batch is None:
                    continue
                batch = batch.to(device, non_blocking=True)
                with autocast(precision, device):
                    features = model(batch).features
                yield EmbeddedBatch(number, batch, features)
    finally:
        model.train(training)


def show_only(batch: ModalBatch, subset: Subset) -> ModalBatch | None:
    """The samples of a batch that have one of these modalities, without their others; None for none."""
    columns = [m for m, name in enumerate(batch.modalities) if name in subset]
    present = batch.present[:, columns]
    rows = present.any(dim=1)
    if not bool(rows.any()):
        return None
    names = [batch.modalities[m] for m in columns]
    if bool(rows.all()):
        return replace(batch, images={n: batch.images[n] for n in names}, present=present)
    kept = rows.nonzero()[:, 0]
    return replace(
        batch,
        images={n: batch.images[n][kept] for n in names},
        present=present[kept],
        identity=batch.identity[kept],
        camera=batch.camera[kept],
        scene=batch.scene[kept],
        index=batch.index[kept],
        paths=tuple(batch.paths[i] for i in kept.tolist()),
    )


@dataclass(frozen=True, eq=False)
class Features:
    """Features of the R rows of a manifest, in one subset of modalities."""

    modalities: Subset
    branches: dict[str, Tensor]
    """Per branch of the model (U, D) float32, as the model gives them; U different samples."""
    position: Tensor
    """(R,) int64: which of the U belongs to each row; −1 for rows with no image of the subset."""
    dropped: dict[int, str] = field(default_factory=dict)
    """Row of the manifest -> why its files could not be read."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of features: the branches of the model, and both together."""
        return (*self.branches, BOTH)

    @property
    def rows(self) -> Tensor:
        """Rows of the manifest that have features, ascending."""
        return (self.position >= 0).nonzero()[:, 0]

    def get(self, kind: str = BOTH, rows: Tensor | None = None) -> Tensor:
        """L2-normalised features (n, D) of `rows` (n,), default: of all that have any.

        Raises `ConfigError` for a kind that the model does not have.
        """
        check_kind(kind, self.kinds)
        at = self.position[self.rows if rows is None else rows]
        if bool((at < 0).any()):
            raise ValueError("a row has no features; ask for `rows` only")
        parts = self.branches.values() if kind == BOTH else [self.branches[kind]]
        return F.normalize(torch.cat([part[at] for part in parts], dim=1))


def check_kind(kind: str, kinds: Sequence[str]) -> None:
    """Raise `ConfigError` for a kind of feature that is not among those of a model."""
    if kind not in kinds:
        raise ConfigError(f"the model has no feature '{kind}'; it has {', '.join(kinds)}")


def feature_kinds(model: ReIDModel, wanted: str = ALL) -> tuple[str, ...]:
    """The kinds of features meant by `wanted`; raises `ConfigError` for one that the model does not have."""
    if wanted != ALL:
        check_kind(wanted, tuple(model.sizes))
        return (wanted,)
    # Without a second branch both together are the first one again.
    return tuple(kind for kind in model.sizes if kind != BOTH or model.second)


@torch.no_grad()
def extract_features(
    loaded: LoadedModel,
    data: ModelData,
    subsets: Sequence[Subset] | None = None,
    *,
    cameras: Cameras = "auto",
    batch: int | None = None,
    workers: int | None = None,
    cache: Path | None = None,
    skip_broken: bool | None = None,
    show_progress: bool | None = None,
) -> dict[Subset, Features]:
    """Features of all rows of `data` in each subset of modalities (default: all that the data has).

    Images are decoded once for all subsets, and samples that appear in several rows (as query and gallery)
    are embedded once. `cache` is a folder where features are kept and found again while weights, options,
    rows and files are the same. Raises `DataError` for a broken file, unless `skip_broken` (None: the
    run's options) says to leave it out.
    """
    subsets = tuple(dict.fromkeys(subsets or [data.manifest.modalities]))
    config = eval_config(loaded, data, batch, workers, skip_broken)
    book = camera_numbers(loaded, data, cameras)
    unique, inverse = _different(data.manifest)
    device = next(loaded.model.parameters()).device
    precision = usable_precision(config.train.precision, device)
    store = None
    if cache is not None:
        key = features_key(loaded, unique, config, book.camera, precision)
        store = FeatureCache(cache, key, loaded.modalities)
    found = {subset: stored for subset in subsets if store and (stored := store.read(subset))}
    if wanted := [subset for subset in subsets if subset not in found]:
        loader = eval_loader(config, SPLITS, unique, codebook=book)
        with warnings.catch_warnings():
            # Cameras that the model does not know are reported by the caller, once and by name.
            warnings.simplefilter("ignore", SlimReIDWarning)
            fresh = _extract(loaded.model, loader, wanted, device, precision, show_progress)
        for subset, stored in fresh.items():
            if store:
                store.write(subset, stored)
        found |= fresh
    return {subset: _spread(subset, found[subset], inverse) for subset in subsets}


def _different(manifest: Manifest) -> tuple[Manifest, Tensor]:
    """The samples that differ in files or camera, and for each row (R,) which of them it is."""
    number: dict[tuple[str, str], int] = {}
    unique: list[Sample] = []
    inverse = []
    for sample in manifest.samples:
        at = number.setdefault((files_of(sample), sample.camera), len(unique))
        if at == len(unique):
            unique.append(sample)
        inverse.append(at)
    return manifest.with_samples(unique), torch.tensor(inverse, dtype=torch.int64)


def _extract(
    model: ReIDModel,
    loader: BatchLoader,
    subsets: Sequence[Subset],
    device: torch.device,
    precision: Precision,
    show_progress: bool | None,
) -> dict[Subset, Stored]:
    """Branches and rows of everything in the loader, per subset."""
    rows: list[list[Tensor]] = [[] for _ in subsets]
    branches: list[list[dict[str, Tensor]]] = [[] for _ in subsets]
    names = [name for name in model.sizes if name != BOTH]
    bar = progress(loader, "embedding images", len(loader), show_progress)
    for found in embed_batches(model, bar, device, precision, subsets):
        rows[found.subset].append(found.batch.index.cpu())
        branches[found.subset].append({n: found.features[n].float().cpu() for n in names})
    stored = {}
    for subset, index, parts in zip(subsets, rows, branches, strict=True):
        stored[subset] = Stored(
            rows=torch.cat(index) if index else torch.zeros(0, dtype=torch.int64),
            branches={
                n: torch.cat([part[n] for part in parts]) if parts else torch.zeros(0, model.sizes[n])
                for n in names
            },
            dropped=dict(loader.dropped),
        )
    return stored


def _spread(subset: Subset, stored: Stored, inverse: Tensor) -> Features:
    """Features of different samples as those of the rows (R,) they stand for."""
    position = torch.full((int(inverse.max()) + 1,), -1, dtype=torch.int64)
    position[stored.rows] = torch.arange(len(stored.rows))
    dropped = {row: stored.dropped[n] for row, n in enumerate(inverse.tolist()) if n in stored.dropped}
    return Features(subset, stored.branches, position[inverse], dropped)
