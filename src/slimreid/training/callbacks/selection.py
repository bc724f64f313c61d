"""What becomes of the choice of patches during training, epoch by epoch, on samples that stay the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from slimreid.arrays import Bools, Doubles
from slimreid.data.batches import ModalBatch
from slimreid.data.images.masks import object_shares, read_mask
from slimreid.data.loader import eval_loader
from slimreid.data.manifest import Manifest, Sample, Split
from slimreid.evaluation.metrics.kept_patches import kept_masks, mask_overlap, shared_share
from slimreid.evaluation.query_gallery import SPLITS_OF
from slimreid.models.reid_model import ReIDModel
from slimreid.runs.folder import RunFolder
from slimreid.training.callbacks.base import Callback, EpochReport, Plan
from slimreid.training.learner import Learner

SAMPLES = 48
"""Samples whose choice is followed."""
SHOWN = 4
"""Samples whose kept patches are written out."""


@dataclass(frozen=True, eq=False)
class WatchedSamples:
    """Samples that stay the same, as evaluation sees them, and where their object is."""

    samples: tuple[Sample, ...]
    batch: ModalBatch
    shares: Doubles | None
    """(S, N): share of each patch that is object; None where a sample has no mask."""


def score_parameters(model: ReIDModel) -> list[nn.Parameter]:
    """The parameters by which patches are scored; empty where nothing of the score is learned."""
    return [] if model.after_backbone is None else list(model.after_backbone.scorers.parameters())


def watched_samples(learner: Learner, manifest: Manifest) -> WatchedSamples:
    """Samples evenly spread over val, or else over the queries, or else over the training rows."""
    choices: tuple[Split, ...] = (SPLITS_OF["val"][0], SPLITS_OF["test"][0], "train")
    split = next(split for split in choices if manifest.select(split))
    config = replace(learner.config, data=replace(learner.config.data, workers=0))
    dataset = eval_loader(config, (split,), manifest).dataset
    rows = np.unique(np.linspace(0, len(dataset) - 1, min(SAMPLES, len(dataset))).round().astype(int))
    batch = dataset.collate([dataset[int(row)] for row in rows])
    samples = tuple(dataset.samples[int(row)] for row in rows)
    masks = [read_mask(manifest, sample) for sample in samples]
    grid = learner.model.backbone.grid
    found = [object_shares(mask, grid) for mask in masks if mask is not None]
    return WatchedSamples(samples, batch, np.stack(found) if len(found) == len(samples) else None)


class SelectionWatch(Callback):
    """Writes `selection.jsonl`: one row per epoch, and one of epoch 0 for the untrained model.

    A row has, per stage of token reduction, the overlap of the kept patches with the true mask (where there
    are masks) and the share of them that was kept after the epoch before (`same`); the norm of the gradient
    of the score's parameters at every update; and the kept patches of a few samples. All shares are 0 to 1.
    """

    def __init__(self, run: RunFolder, learner: Learner, manifest: Manifest) -> None:
        self.run, self.learner = run, learner
        self.watched = watched_samples(learner, manifest)
        self.parameters = score_parameters(learner.model)
        self.norms: list[float | None] = []
        self.before: list[Bools] | None = None
        self.done = 0
        learner.updater.before_step = self._gradient

    def start(self, plan: Plan) -> None:
        """Cut the file back to the checkpoint, and look at the choice from which training goes on."""
        self.done = plan.first_epoch
        old = self.run.selection() if self.done else ()
        with self.run.selection_file.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(row) + "\n" for row in old if row["epoch"] <= self.done)
        row = self._look(self.done)
        if not self.done:
            self._write(row)

    def epoch(self, report: EpochReport) -> None:
        """One row per epoch."""
        self.done = report.epoch
        self._write({**self._look(report.epoch), "gradient": self.norms})
        self.norms = []

    def close(self) -> None:
        """Write the gradients of an epoch that did not come to its end."""
        if self.norms:
            self._write({"epoch": self.done + 1, "partial": True, "stages": [], "gradient": self.norms})
        self.learner.updater.before_step = None

    def _gradient(self) -> None:
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if gradients:
            norm = float(torch.nn.utils.get_total_norm(gradients))
            self.norms.append(float(f"{norm:.6g}") if math.isfinite(norm) else None)

    @torch.no_grad()
    def _look(self, epoch: int) -> dict[str, Any]:
        """Which patches the model keeps now."""
        model, ema = self.learner.model, self.learner.ema
        training = model.training
        model.eval()
        batch = self.watched.batch
        device = next(model.parameters()).device
        with ema.swapped() if ema else nullcontext():
            reduced = model(batch.to(device), with_reduced=True).reduced
        model.train(training)
        assert reduced is not None
        kept = kept_masks(reduced)
        present = np.ones(kept[0].shape[:2], dtype=bool)
        if model.options.missing == "skip":
            present = batch.present.numpy()
        reducer = model.in_backbone
        labels = [f"block {s.block + 1}" for s in reducer.test_stages] if reducer else ["kept"]
        stages = [
            self._figures(label, kept[i], None if self.before is None else self.before[i], present)
            for i, label in enumerate(labels)
        ]
        self.before = kept
        return {"epoch": epoch, "stages": stages, "samples": self._shown(kept, present), "gradient": []}

    def _figures(self, label: str, kept: Bools, before: Bools | None, present: Bools) -> dict[str, Any]:
        """Figures of one stage: kept and before (S, M, N), present (S, M)."""
        rows = kept[present]
        figures: dict[str, Any] = {"label": label, "kept_share": float(rows.mean())}
        if self.watched.shares is not None:
            shares = np.broadcast_to(self.watched.shares[:, None], kept.shape)
            figures |= asdict(mask_overlap(rows, shares[present]))
            figures["by_modality"] = {
                name: mask_overlap(kept[present[:, m], m], shares[present[:, m], m]).on_object
                for m, name in enumerate(self.learner.model.modalities)
                if present[:, m].any()
            }
        figures["same"] = None if before is None else float(shared_share(rows, before[present]).mean())
        return figures

    def _shown(self, kept: Sequence[Bools], present: Bools) -> list[dict[str, Any]]:
        """Positions of the kept patches of a few samples, per modality and stage."""
        count = len(self.watched.samples)
        chosen = np.unique(np.linspace(0, count - 1, min(SHOWN, count)).round().astype(int))
        names = self.learner.model.modalities
        return [
            {
                "images": {name: image.path for name, image in self.watched.samples[i].images.items()},
                "kept": {
                    name: [np.flatnonzero(stage[i, m]).tolist() for stage in kept]
                    for m, name in enumerate(names)
                    if present[i, m]
                },
            }
            for i in chosen.tolist()
        ]

    def _write(self, row: Mapping[str, Any]) -> None:
        with self.run.selection_file.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(row) + "\n")
