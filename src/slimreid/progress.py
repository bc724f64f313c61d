"""Progress bars on standard error; none where that is not a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")

errors = Console(stderr=True, highlight=False, markup=False, emoji=False)
"""Standard error; text is printed as it is."""


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
