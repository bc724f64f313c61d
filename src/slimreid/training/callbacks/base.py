"""What a run tells while it is trained, and the base of all that listen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slimreid.training.checkpoint.state import Best


@dataclass(frozen=True)
class Plan:
    """How much there is to do."""

    epochs: int
    updates: int
    """Updates in an epoch."""
    first_epoch: int = 0
    """Epochs done before, when a run goes on."""


@dataclass(frozen=True)
class StepReport:
    """One update of the weights."""

    epoch: int
    """Counts from 1."""
    step: int
    """Updates since the beginning of the run."""
    in_epoch: int
    """Updates in this epoch so far."""
    losses: dict[str, float]
    """Named losses and training accuracy, means over the batches of the update."""
    rates: dict[str, float]
    """Learning rate per parameter group."""
    images: int
    """Images seen in this update, over all processes."""
    seconds: float
    """How long it took, waiting for data included."""


@dataclass(frozen=True)
class EpochReport:
    """One epoch, and how good the model is after it."""

    epoch: int
    step: int
    losses: dict[str, float]
    """Means over the epoch."""
    rates: dict[str, float]
    figures: dict[str, dict[str, float]]
    """Part (`val`, `test`) -> mAP, rank-1, ... in [0, 1]; empty when nothing was evaluated."""
    best: Best | None
    seconds: float
    images_per_second: float


class Callback:
    """Is told what happens in a run; every method may be left out."""

    def start(self, plan: Plan) -> None:
        """Training begins or goes on."""

    def step(self, report: StepReport) -> None:
        """The weights were updated."""

    def evaluating(self, part: str, done: int, total: int) -> None:
        """`done` of `total` batches of a part are evaluated."""

    def epoch(self, report: EpochReport) -> None:
        """An epoch is over; its checkpoint is not written yet."""

    def saved(self, folder: Path) -> None:
        """A checkpoint is on disk."""

    def close(self) -> None:
        """Nothing more will come."""
