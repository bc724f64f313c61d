"""Progress of a long embedding, seen from the files that appear: rows, failures by kind, expected end."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from slimreid.bulk.summary import count_rows
from slimreid.errors import DataError
from slimreid.inference.embedding_sets.tables import parquet_files
from slimreid.progress import errors

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 30.0
"""Where there is no terminal, a line now and then takes the place of the bar."""


class Watch:
    """Counts the rows of a folder as files appear in it; a file is read once."""

    def __init__(self, folder: Path, total: int) -> None:
        self.folder, self.total = folder, total
        self.rows, self.statuses = 0, Counter[str]()
        self._seen: set[Path] = set()
        self.look()
        self.before, self.started = self.rows, time.monotonic()

    def look(self) -> None:
        """Count what is new."""
        for path in parquet_files(self.folder):
            if path in self._seen:
                continue
            try:
                rows, statuses = count_rows([path])
            except DataError:
                continue  # it is being written
            self._seen.add(path)
            self.rows += rows
            self.statuses.update(statuses)

    @property
    def rate(self) -> float:
        """Rows per second since the watch began."""
        return (self.rows - self.before) / max(time.monotonic() - self.started, 1e-9)

    def describe(self) -> str:
        """Rate and failures, for people."""
        failures = [f"{n:,} {kind}" for kind, n in sorted(self.statuses.items()) if kind != "ok"]
        return ", ".join([f"{self.rate:,.1f} rows/s", *failures])

    def line(self) -> str:
        """All of it in one line."""
        left = (self.total - self.rows) / self.rate if self.rate > 0 else float("nan")
        end = f", {left / 60:,.1f} min left" if left == left else ""
        return f"{self.rows:,} of {self.total:,} rows, {self.describe()}{end}"


@contextmanager
def watched(watch: Watch, show: bool | None = None, interval: float = 0.5) -> Iterator[None]:
    """Show the progress of the block: a bar in a terminal, else a line now and then."""
    visible = errors.is_terminal if show is None else show
    done = threading.Event()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[details]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, disable=not visible, transient=True) as bar:
        task = bar.add_task("embedding images", total=watch.total, completed=watch.rows, details="")

        def look() -> None:
            said = time.monotonic()
            while not done.wait(interval):
                watch.look()
                bar.update(task, completed=watch.rows, details=watch.describe())
                if not visible and time.monotonic() - said >= SECONDS_BETWEEN_LINES:
                    said = time.monotonic()
                    logger.info("%s", watch.line())

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
