"""What a person sees of a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

import rich.progress as bars
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from slimreid.evaluation.reports.formatting import points
from slimreid.progress import errors
from slimreid.training.callbacks.base import Callback, EpochReport, Plan, StepReport
from slimreid.training.step import ACCURACY

PLAIN_SECONDS = 60.0
"""Within an epoch, plain lines come no more often than this."""


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    whole = int(max(0, round(seconds)))
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"


class Progress(Callback):
    """Keeps what both displays show: speed over the last updates, and time left."""

    def __init__(self) -> None:
        self.plan = Plan(0, 0)
        self.speed = 0.0
        self._began = time.monotonic()
        self._done = 0

    def start(self, plan: Plan) -> None:
        """Remember how much there is to do."""
        self.plan, self._began, self._done = plan, time.monotonic(), 0

    def step(self, report: StepReport) -> None:
        """Follow the speed; a mean that forgets, so that a slow start does not stay."""
        now = report.images / max(report.seconds, 1e-9)
        self.speed = now if self._done == 0 else 0.9 * self.speed + 0.1 * now
        self._done += 1

    @property
    def seconds_left(self) -> float:
        """By what was done since the start, evaluations included."""
        everything = (self.plan.epochs - self.plan.first_epoch) * self.plan.updates
        if not self._done:
            return 0.0
        return (time.monotonic() - self._began) * (everything - self._done) / self._done


class PlainDisplay(Progress):
    """One line per epoch, and one a minute within long epochs."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._last = time.monotonic()

    def start(self, plan: Plan) -> None:
        """Say where the run begins."""
        super().start(plan)
        if plan.first_epoch:
            self._print(f"resuming after epoch {plan.first_epoch} of {plan.epochs}")

    def step(self, report: StepReport) -> None:
        """A line now and then."""
        super().step(report)
        if time.monotonic() - self._last >= PLAIN_SECONDS:
            where = f"epoch {report.epoch}/{self.plan.epochs} step {report.in_epoch}/{self.plan.updates}"
            self._print(
                f"{where}  {_losses(report.losses)}  lr {_rate(report.rates)}  {self.speed:.1f} images/s"
                f"  {duration(self.seconds_left)} left"
            )

    def epoch(self, report: EpochReport) -> None:
        """The line of the epoch."""
        figures = "".join(f"  {part}: {_figures(found)}" for part, found in report.figures.items())
        best = f"  best mAP {points(report.best.map)} (epoch {report.best.epoch})" if report.best else ""
        self._print(
            f"epoch {report.epoch}/{self.plan.epochs}  {_losses(report.losses)}  lr {_rate(report.rates)}"
            f"  {report.images_per_second:.1f} images/s  {duration(self.seconds_left)} left{figures}{best}"
        )

    def _print(self, line: str) -> None:
        self._last = time.monotonic()
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveDisplay(PlainDisplay):
    """A table that is drawn over and over; epochs stay above it as lines."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._rows: dict[str, str] = {}
        self._live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._table)

    def start(self, plan: Plan) -> None:
        """Show the table."""
        super().start(plan)
        self._live.start()

    def step(self, report: StepReport) -> None:
        """Update losses, accuracy, learning rate, speed and time left."""
        Progress.step(self, report)  # without lines in between
        losses = {name: f"{value:.4f}" for name, value in report.losses.items() if name != ACCURACY}
        self._rows |= {
            "epoch": f"{report.epoch} of {self.plan.epochs}",
            "step": f"{report.in_epoch} of {self.plan.updates}",
            **losses,
            "training accuracy": f"{points(report.losses.get(ACCURACY, 0.0))} %",
            "learning rate": _rate(report.rates),
            "images/s": f"{self.speed:.1f}",
            "time left": duration(self.seconds_left),
        }
        self._rows.pop("evaluating", None)

    def evaluating(self, part: str, done: int, total: int) -> None:
        """Show how far the evaluation is; the row goes at the next update."""
        self._rows["evaluating"] = f"{part}, {done} of {total}"

    def epoch(self, report: EpochReport) -> None:
        """The line of the epoch, and the best so far."""
        super().epoch(report)
        if report.best:
            self._rows["best so far"] = (
                f"{points(report.best.map)} mAP on {report.best.split}, epoch {report.best.epoch}"
            )

    def close(self) -> None:
        """Take the table away."""
        self._live.stop()

    def _table(self) -> Table:
        table = Table(show_header=False, box=None)
        for name, value in self._rows.items():
            table.add_row(name, value)
        return table


class TrainingBar(Callback):
    """One bar for a whole run, on standard error; nothing where that is not a terminal."""

    def __init__(self, name: str) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._bar = bars.Progress(*columns, console=errors, disable=not errors.is_terminal, transient=True)
        self._name = name
        self._task = self._bar.add_task(f"training {name}", total=None)

    def start(self, plan: Plan) -> None:
        """Show the bar, advanced by the epochs done before."""
        done = plan.first_epoch * plan.updates
        self._bar.update(self._task, total=plan.epochs * plan.updates, completed=done)
        self._bar.start()

    def step(self, report: StepReport) -> None:
        """Advance the bar by one update."""
        self._bar.update(self._task, completed=report.step)

    def epoch(self, report: EpochReport) -> None:
        """Say how good the model is by now."""
        if report.best:
            told = f"training {self._name}, best mAP on {report.best.split} {points(report.best.map)}"
            self._bar.update(self._task, description=told)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()


def make_display(console: Console) -> Callback:
    """The display that suits a console."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


def _losses(losses: dict[str, float]) -> str:
    parts = [f"{name} {value:.4f}" for name, value in losses.items() if name != ACCURACY]
    return "  ".join([*parts, f"accuracy {points(losses.get(ACCURACY, 0.0))}"])


def _rate(rates: dict[str, float]) -> str:
    """The highest learning rate of all groups but those of biases, which have a factor of their own."""
    weights = [rate for name, rate in rates.items() if not name.endswith("bias")]
    return f"{max(weights or rates.values(), default=0.0):.2e}"


def _figures(found: dict[str, float]) -> str:
    return " ".join(f"{name} {points(value)}" for name, value in found.items())
