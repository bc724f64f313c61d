"""How the choice of patches of a modality depends on which others are there to guide it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from slimreid.data.batches import ModalBatch
from slimreid.data.dataset import ReIDDataset
from slimreid.data.manifest import SPLITS
from slimreid.devices import autocast
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.metrics.kept_patches import kept_masks, shared_share
from slimreid.inference.features.data import ModelData, camera_numbers, eval_config
from slimreid.inference.similarity import Subset
from slimreid.inference.trained_model import TrainedModel
from slimreid.modalities import all_subsets
from slimreid.progress import progress


@dataclass(frozen=True)
class GuideOverlap:
    """Share of the patches kept with all guides that is kept with fewer; 0 to 1."""

    subsets: tuple[Subset, ...]
    """Guides that are left, from none to all."""
    shares: Mapping[str, Mapping[Subset, float]]
    """Modality -> guides left (never itself among them) -> mean share over the samples."""
    chance: float
    """Share of patches kept, which is what two choices by chance have in common."""
    samples: int

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "samples": self.samples,
            "chance": self.chance,
            "shares": {
                name: {"+".join(subset) or "none": share for subset, share in found.items()}
                for name, found in self.shares.items()
            },
        }


@torch.no_grad()
def guide_overlaps(
    loaded: TrainedModel,
    data: ModelData,
    *,
    limit: int = 128,
    stage: int = -1,
    batch: int = 32,
    show_progress: bool | None = None,
) -> GuideOverlap:
    """Compare the choice of each modality with all guides and with every subset of them.

    Uses at most `limit` samples that have all modalities of the model, evenly spread; `stage` counts those
    in the backbone. Raises `ConfigError` for a model without guides or a stage that does not exist, and
    `DataError` when no sample has all modalities.
    """
    model, names = loaded.model, loaded.modalities
    options = model.options
    if options.reduction == "none" or options.missing != "skip" or len(names) < 2:
        raise ConfigError(
            f"{loaded.path}: only token reduction with missing 'skip' and several modalities has guides"
        )
    stages = len(model.in_backbone.stages) if model.in_backbone is not None else 1
    if not -stages <= stage < stages:
        raise ConfigError(f"stage {stage} does not exist; there are 0 to {stages - 1}")
    whole = [s for s in data.manifest.samples if set(names) <= set(s.images)]
    if not whole or limit < 1:
        raise DataError(f"{data.path}: no sample with all of {', '.join(names)}")
    rows = np.unique(np.linspace(0, len(whole) - 1, min(limit, len(whole))).round().astype(int))
    config = eval_config(loaded, data, workers=0)
    dataset = ReIDDataset(
        data.manifest.with_samples(whole[i] for i in rows),
        SPLITS,
        config.transforms,
        data=config.data,
        label_encoder=camera_numbers(loaded, data),
    )
    kept: dict[Subset, list[np.ndarray[Any, np.dtype[np.bool_]]]] = {s: [] for s in all_subsets(names)}
    model.eval()
    starts = range(0, len(dataset), batch)
    for start in progress(starts, "embedding images", len(starts), show_progress):
        shown_rows = range(start, min(start + batch, len(dataset)))
        images = dataset.collate([dataset[i] for i in shown_rows]).to_images()
        for subset in kept:
            shown = images.only(subset)
            assert shown is not None
            with autocast(loaded.precision, loaded.device):
                slimmed = model(ModalBatch.from_images(shown).to(loaded.device), with_reduced=True).reduced
            kept[subset].append(kept_masks(slimmed)[stage])
    joined = {subset: np.concatenate(parts) for subset, parts in kept.items()}
    return _compared(joined, names, len(dataset))


def _compared(
    kept: Mapping[Subset, np.ndarray[Any, np.dtype[np.bool_]]], names: tuple[str, ...], samples: int
) -> GuideOverlap:
    """Choices (S, M, N) per subset that was shown -> their overlaps with the one of all."""
    full = kept[names]
    shares: dict[str, dict[Subset, float]] = {}
    guides: list[Subset] = [(), *all_subsets(names)[:-1]]
    for m, name in enumerate(names):
        found = {}
        for left in guides:
            shown = tuple(n for n in names if n in left or n == name)
            if name not in left:
                found[left] = float(shared_share(full[:, m], kept[shown][:, m]).mean())
        shares[name] = found
    return GuideOverlap(tuple(guides), shares, float(full.mean()), samples)
