"""What a person sees in the terminal: one console, tables that line up."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Literal, ParamSpec

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from slimreid.errors import ConfigError, SlimReIDError
from slimreid.progress import errors

P = ParamSpec("P")

MB = 2**20
SHORT_CELL = 16
"""Letters up to which a figure stays in one line."""

console = Console(highlight=False, markup=False, emoji=False)
"""Standard output. Text is printed as it is: names of cameras, columns and files may hold brackets."""


def say(line: str) -> None:
    """Print a line as it is, whatever the width of the terminal."""
    console.print(line, soft_wrap=True)


def print_json(value: object) -> None:
    """Print as JSON, whatever the width of the terminal; paths become texts."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print lines that each begin with a name."""
    for name, text in facts:
        console.print(f"{name:<11}", style="bold", end="")
        say(text)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> Table:
    """A table: the first column to the left, the others to the right.

    Where the terminal is narrow, long cells go on in the next line; nothing is cut off.
    """
    result = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    shown = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    for number, column in enumerate(columns):
        is_short = max((len(row[number]) for row in shown), default=0) <= SHORT_CELL
        justify: Literal["left", "right"] = "right" if number else "left"
        result.add_column(column, justify=justify, overflow="fold", no_wrap=bool(number) and is_short)
    for cells in shown:
        result.add_row(*cells)
    return result


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print a table; where the terminal is too narrow, as several that repeat the first column."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(cell_len(text) for text in column) for column in zip(columns, *cells, strict=True)]
    for group in _column_groups(widths, console.width):
        chosen = [0, *group]
        shown = [[row[i] for i in chosen] for row in cells]
        console.print(table([columns[i] for i in chosen], shown, title))


def _column_groups(widths: Sequence[int], most: int) -> list[list[int]]:
    """The columns after the first, divided so that each group fits beside it into `most` letters."""
    frame = 3  # a line and two spaces
    first = min(widths[0], most // 3) + frame + 1
    groups: list[list[int]] = [[]]
    left = most - first
    for number, width in enumerate(widths[1:], start=1):
        if groups[-1] and width + frame > left:
            groups.append([])
            left = most - first
        groups[-1].append(number)
        left -= width + frame
    return groups


@contextmanager
def quietened(name: str, level: int) -> Iterator[None]:
    """Within the block a logger says only what is of `level` or above; afterwards it speaks as before."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)


def ending_in_one_line(main: Callable[P, int]) -> Callable[P, int]:
    """Let the `main` of a script end with one line and an exit code where a user's mistake stops it.

    2 for wrong options (`ConfigError`), 1 for other errors of ours; everything else passes.
    """

    @wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return main(*args, **kwargs)
        except SlimReIDError as error:
            errors.print(f"error: {error}", soft_wrap=True)
            return 2 if isinstance(error, ConfigError) else 1

    return run
