"""Features of whole datasets: each image is read once, whatever number of modality subsets is asked for."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.data.loader import BatchLoader, eval_loader
from slimreid.data.manifest import SPLITS, Manifest, Sample
from slimreid.data.splits import files_of
from slimreid.devices import Precision, usable_precision
from slimreid.errors import SlimReIDWarning
from slimreid.inference.batches import Subset, check_kind, embed_batches, memory_explained
from slimreid.inference.features.cache import FeatureCache, Stored, features_key
from slimreid.inference.features.data import Cameras, ModelData, camera_numbers, eval_config
from slimreid.inference.load import LoadedModel
from slimreid.models.reid_model import BOTH, ReIDModel
from slimreid.progress import progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Features:
    """Features of the R rows of a manifest, in one subset of modalities."""

    modalities: Subset
    branches: dict[str, Tensor]
    """Per branch of the model (U, D) float32, as the model gives them; U different samples."""
    position: Tensor
    """(R,) int64: which of the U belongs to each row; −1 for rows with no image of the subset."""
    present: Tensor
    """(U, M) bool: which of the model's modalities each sample was seen in."""
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
        at = self._at(rows)
        parts = self.branches.values() if kind == BOTH else [self.branches[kind]]
        return F.normalize(torch.cat([part[at] for part in parts], dim=1))

    def presence(self, rows: Tensor | None = None) -> Tensor:
        """Which of the model's modalities the samples of `rows` (n,) were seen in: (n, M) bool."""
        return self.present[self._at(rows)]

    def _at(self, rows: Tensor | None) -> Tensor:
        at = self.position[self.rows if rows is None else rows]
        if bool((at < 0).any()):
            raise ValueError("a row has no features; ask for `rows` only")
        return at


@dataclass(frozen=True)
class Extraction:
    """How features of a dataset are computed; None = as in the model's run."""

    cameras: Cameras = "auto"
    batch: int | None = None
    """Samples embedded at once."""
    workers: int | None = None
    """Processes that load images."""
    cache: Path | None = None
    """Folder where features are kept and found again; None = they are not kept."""
    skip_broken: bool | None = None
    """Whether samples whose files cannot be read are left out."""
    show_progress: bool | None = None


@torch.no_grad()
def extract_features(
    loaded: LoadedModel,
    data: ModelData,
    subsets: Sequence[Subset] | None = None,
    options: Extraction | None = None,
) -> dict[Subset, Features]:
    """Features of all rows of `data` in each subset of modalities (default: all that the data has).

    Images are decoded once for all subsets, and samples that appear in several rows (as query and gallery)
    are embedded once. Features in the cache are used while weights, options, rows and files are the same.
    Raises `DataError` for a broken file that is not to be left out.
    """
    options = options or Extraction()
    subsets = tuple(dict.fromkeys(subsets or [data.manifest.modalities]))
    config = eval_config(loaded, data, options.batch, options.workers, options.skip_broken)
    book = camera_numbers(loaded, data, options.cameras)
    unique, inverse = _different(data.manifest)
    device = next(loaded.model.parameters()).device
    precision = usable_precision(config.train.precision, device)
    store = None
    if options.cache is not None:
        key = features_key(loaded, unique, config, book.camera, precision)
        store = FeatureCache(options.cache, key, loaded.modalities)
    found = {subset: stored for subset in subsets if store and (stored := store.read(subset))}
    if wanted := [subset for subset in subsets if subset not in found]:
        loader = eval_loader(config, SPLITS, unique, label_encoder=book)
        with warnings.catch_warnings(), memory_explained(config.batch.test):
            # Cameras that the model does not know are reported by the caller, once and by name.
            warnings.simplefilter("ignore", SlimReIDWarning)
            fresh = _extract(loaded.model, loader, wanted, device, precision, options.show_progress)
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
    present: list[list[Tensor]] = [[] for _ in subsets]
    branches: list[list[dict[str, Tensor]]] = [[] for _ in subsets]
    names = [name for name in model.sizes if name != BOTH]
    bar = progress(loader, "embedding images", len(loader), show_progress)
    for found in embed_batches(model, bar, device, precision, subsets):
        rows[found.subset].append(found.batch.index.cpu())
        present[found.subset].append(found.batch.presence_of(model.modalities).cpu())
        branches[found.subset].append({n: found.features[n].float().cpu() for n in names})
    stored = {}
    M = len(model.modalities)
    for subset, index, seen, parts in zip(subsets, rows, present, branches, strict=True):
        stored[subset] = Stored(
            rows=torch.cat(index) if index else torch.zeros(0, dtype=torch.int64),
            present=torch.cat(seen) if seen else torch.zeros(0, M, dtype=torch.bool),
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
    return Features(subset, stored.branches, position[inverse], stored.present, dropped)
