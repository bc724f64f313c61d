"""What a person sees in the terminal: one console, tables that line up, progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from functools import wraps
from typing import ParamSpec, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from slimreid.errors import ConfigError, SlimReIDError

T = TypeVar("T")
P = ParamSpec("P")

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def progress(
    items: Iterable[T], description: str, total: int | None = None, show: bool | None = None
) -> Iterator[T]:
    """Iterate with a progress bar on standard error; without one where that is not a terminal.

    `show` forces the bar on or off.
    """
    visible = errors.is_terminal if show is None else show
    if total is None and isinstance(items, Sized):
        total = len(items)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, disable=not visible, transient=True) as bar:
        yield from bar.track(items, total=total, description=description)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> Table:
    """A table: the first column to the left, numbers to the right."""
    result = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for number, column in enumerate(columns):
        result.add_column(column, justify="right" if number else "left")
    for row in rows:
        result.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    return result


def ending_in_one_line(main: Callable[P, int]) -> Callable[P, int]:
    """Let the `main` of a script end with one line and an exit code where a user's mistake stops it.

    2 for wrong options (`ConfigError`), 1 for other errors of ours; everything else passes.
    """

    @wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return main(*args, **kwargs)
        except SlimReIDError as error:
            errors.print(f"error: {error}", markup=False, soft_wrap=True)
            return 2 if isinstance(error, ConfigError) else 1

    return run
