"""Features of whole datasets: each image is read once, whatever number of modality subsets is asked for."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from slimreid.arrays import Bools, Floats, Ints
from slimreid.config.model import BOTH
from slimreid.data.manifest import Manifest, Sample
from slimreid.data.sample_reader import BatchReader
from slimreid.errors import SlimReIDWarning
from slimreid.inference.features.cache import FeatureCache, Stored, features_key
from slimreid.inference.features.data import Cameras, ModelData, camera_numbers, eval_config
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.similarity import Subset, check_kind, join_branches, memory_explained
from slimreid.progress import progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Features:
    """Features of the R rows of a manifest, in one subset of modalities."""

    modalities: Subset
    branches: dict[str, Floats]
    """Per branch of the model (U, D) float32, as the model gives them; U different samples."""
    position: Ints
    """(R,) int64: which of the U belongs to each row; −1 for rows with no image of the subset."""
    present: Bools
    """(U, M) bool: which of the model's modalities each sample was seen in."""
    dropped: dict[int, str] = field(default_factory=dict)
    """Row of the manifest -> why its files could not be read."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of features: the branches of the model, and both together."""
        return (*self.branches, BOTH)

    @property
    def rows(self) -> Ints:
        """Rows of the manifest that have features, ascending."""
        return np.flatnonzero(self.position >= 0)

    def get(self, kind: str = BOTH, rows: Ints | None = None) -> Floats:
        """L2-normalised features (n, D) of `rows` (n,), default: of all that have any.

        Raises `ConfigError` for a kind that the model does not have.
        """
        check_kind(kind, self.kinds)
        at = self._at(rows)
        return join_branches({name: part[at] for name, part in self.branches.items()}, kind)

    def presence(self, rows: Ints | None = None) -> Bools:
        """Which of the model's modalities the samples of `rows` (n,) were seen in: (n, M) bool."""
        return self.present[self._at(rows)]

    def _at(self, rows: Ints | None) -> Ints:
        at = self.position[self.rows if rows is None else rows]
        if (at < 0).any():
            raise ValueError("a row has no features; ask for `rows` only")
        return at


@dataclass(frozen=True)
class Extraction:
    """How features of a dataset are computed; None = as in the model's run."""

    cameras: Cameras = "auto"
    batch: int | None = None
    """Samples embedded at once."""
    workers: int | None = None
    """Threads that load images."""
    cache: Path | None = None
    """Folder where features are kept and found again; None = they are not kept."""
    skip_broken: bool | None = None
    """Whether samples whose files cannot be read are left out."""
    show_progress: bool | None = None


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
    store = None
    if options.cache is not None:
        key = features_key(loaded, unique, config, book.camera)
        store = FeatureCache(options.cache, key, loaded.modalities)
    found = {subset: stored for subset in subsets if store and (stored := store.read(subset))}
    if wanted := [subset for subset in subsets if subset not in found]:
        reader = BatchReader(config, unique, book, loaded.resize)
        with warnings.catch_warnings(), memory_explained(config.batch.test):
            # Cameras that the model does not know are reported by the caller, once and by name.
            warnings.simplefilter("ignore", SlimReIDWarning)
            fresh = _extract(loaded, reader, wanted, options.show_progress)
        for subset, stored in fresh.items():
            if store:
                store.write(subset, stored)
        found |= fresh
    return {subset: _spread(subset, found[subset], inverse) for subset in subsets}


def _different(manifest: Manifest) -> tuple[Manifest, Ints]:
    """The samples that differ in files or camera, and for each row (R,) which of them it is."""
    number: dict[tuple[str, str], int] = {}
    unique: list[Sample] = []
    inverse = []
    for sample in manifest.samples:
        at = number.setdefault((sample.files_key, sample.camera), len(unique))
        if at == len(unique):
            unique.append(sample)
        inverse.append(at)
    return manifest.with_samples(unique), np.array(inverse, np.int64)


def _extract(
    loaded: LoadedModel, reader: BatchReader, subsets: Sequence[Subset], show_progress: bool | None
) -> dict[Subset, Stored]:
    """Branches and rows of everything that is read, per subset."""
    found: dict[Subset, list[Stored]] = {subset: [] for subset in subsets}
    for whole in progress(reader, "embedding images", len(reader), show_progress):
        for subset in subsets:
            if (batch := whole.only(subset)) is not None:
                present = batch.presence_of(loaded.modalities)
                found[subset].append(Stored(batch.index, loaded.features(batch), present))
    none = {name: np.zeros((0, size), np.float32) for name, size in loaded.sizes.items() if name != BOTH}
    nothing = Stored(np.zeros(0, np.int64), none, np.zeros((0, len(loaded.modalities)), np.bool_))
    joined = {}
    for subset, parts in found.items():
        every = [nothing, *parts]
        branches = {name: np.concatenate([part.branches[name] for part in every]) for name in none}
        rows, present = (np.concatenate([getattr(p, n) for p in every]) for n in ("rows", "present"))
        joined[subset] = Stored(rows, branches, present, dict(reader.dropped))
    return joined


def _spread(subset: Subset, stored: Stored, inverse: Ints) -> Features:
    """Features of different samples as those of the rows (R,) they stand for."""
    position = np.full(int(inverse.max()) + 1, -1, np.int64)
    position[stored.rows] = np.arange(len(stored.rows))
    dropped = {row: stored.dropped[n] for row, n in enumerate(inverse.tolist()) if n in stored.dropped}
    return Features(subset, stored.branches, position[inverse], stored.present, dropped)
