"""What becomes of the choice of patches during training, epoch by epoch, on samples that stay the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from slimreid.data.loader import eval_loader
from slimreid.data.manifest import Manifest, Sample, Split
from slimreid.data.masks import object_shares, read_mask
from slimreid.errors import TrainingError
from slimreid.evaluation.parts import SPLITS_OF
from slimreid.evaluation.selection import Bools, kept_masks, mask_overlap, shared_share
from slimreid.models.reid_model import ReIDModel
from slimreid.training.learner import Learner
from slimreid.training.records import EpochReport, Plan, Watcher
from slimreid.types import ModalBatch

SELECTION_NAME = "selection.jsonl"
SAMPLES = 48
"""Samples whose choice is followed."""
SHOWN = 4
"""Samples whose kept patches are written out."""


@dataclass(frozen=True, eq=False)
class WatchedSamples:
    """Samples that stay the same, as evaluation sees them, and where their object is."""

    samples: tuple[Sample, ...]
    batch: ModalBatch
    shares: NDArray[np.float64] | None
    """(S, N): share of each patch that is object; None where a sample has no mask."""


def score_parameters(model: ReIDModel) -> list[nn.Parameter]:
    """The parameters by which patches are scored; empty where nothing of the score is learned."""
    slimmer = model.inside or model.slimmer
    return [] if slimmer is None else list(slimmer.scorers.parameters())


def watched_samples(learner: Learner, manifest: Manifest, count: int = SAMPLES) -> WatchedSamples:
    """Samples evenly spread over val, or else over the queries, or else over the training rows."""
    choices: tuple[Split, ...] = (SPLITS_OF["val"][0], SPLITS_OF["test"][0], "train")
    split = next(split for split in choices if manifest.select(split))
    config = replace(learner.config, data=replace(learner.config.data, workers=0))
    dataset = eval_loader(config, (split,), manifest).dataset
    rows = np.unique(np.linspace(0, len(dataset) - 1, min(count, len(dataset))).round().astype(int))
    batch = dataset.collate([dataset[int(row)] for row in rows])
    samples = tuple(dataset.samples[int(row)] for row in rows)
    masks = [read_mask(manifest, sample) for sample in samples]
    grid = learner.model.backbone.grid
    found = [object_shares(mask, grid) for mask in masks if mask is not None]
    return WatchedSamples(samples, batch, np.stack(found) if len(found) == len(samples) else None)


class SelectionWatch(Watcher):
    """Writes `selection.jsonl`: one row per epoch, and one of epoch 0 for the untrained model.

    A row has, per stage of slimming, the overlap of the kept patches with the true mask (where there are
    masks) and the share of them that was kept after the epoch before (`same`); the norm of the gradient of
    the score's parameters at every update; and the kept patches of a few samples. All shares are 0 to 1.
    """

    def __init__(self, folder: Path, learner: Learner, manifest: Manifest) -> None:
        self.path, self.learner = folder / SELECTION_NAME, learner
        self.watched = watched_samples(learner, manifest)
        self.parameters = score_parameters(learner.model)
        self.norms: list[float | None] = []
        self.before: list[Bools] | None = None
        self.done = 0
        learner.updater.before_step = self._gradient

    def start(self, plan: Plan) -> None:
        """Cut the file back to the checkpoint, and look at the choice from which training goes on."""
        self.done = plan.first_epoch
        old = read_selection(self.path.parent) if self.done else []
        with self.path.open("w", encoding="utf-8", newline="\n") as file:
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
            slimmed = model(batch.to(device), with_slimmed=True).slimmed
        model.train(training)
        assert slimmed is not None
        kept = kept_masks(slimmed)
        present = np.ones(kept[0].shape[:2], dtype=bool)
        if model.missing == "skip":
            present = batch.present.numpy()
        labels = [f"block {s.block + 1}" for s in model.inside.stages] if model.inside else ["kept"]
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
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(row) + "\n")


def read_selection(run: Path) -> list[dict[str, Any]]:
    """Rows of a run's `selection.jsonl`; none where it was not watched. A last line cut short is left out.

    Raises `TrainingError` for a file that is damaged elsewhere.
    """
    path = run / SELECTION_NAME
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            if number == len(lines):
                break
            raise TrainingError(f"{path}: line {number} is damaged ({error}); remove the file") from None
    return rows


def selection_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows of a run as lists over epochs, of the last stage: what a result keeps of them.

    `gradient` is the median of each epoch, `gradient_max` the largest; None where there was none.
    """
    whole = [row for row in rows if not row.get("partial")]
    if not whole:
        return {}
    names = ("on_object", "chance", "recall", "iou", "same", "kept_share")
    found: dict[str, Any] = {"epoch": [row["epoch"] for row in whole]}
    found |= {name: [_rounded(row["stages"][-1].get(name)) for row in whole] for name in names}
    norms = [[n for n in row["gradient"] if n is not None] for row in whole]
    found["gradient"] = [_rounded(float(np.median(n))) if n else None for n in norms]
    found["gradient_max"] = [_rounded(max(n)) if n else None for n in norms]
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
