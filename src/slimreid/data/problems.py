"""What is wrong with a dataset, in a form that can be listed, grouped and printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

_SHOWN_RANGES = 6


@dataclass(frozen=True)
class Problem:
    """Something wrong with a dataset: where, what, and how to mend it."""

    level: Literal["error", "warning"]
    row: int | None
    message: str
    cure: str
    cause: str = ""
    """The same for problems that are mended in the same way; '' = the message itself."""

    def __str__(self) -> str:
        where = f"row {self.row}: " if self.row else ""
        return f"{where}{self.message}; {self.cure}"


@dataclass(frozen=True)
class ProblemGroup:
    """Problems of one cause."""

    problems: tuple[Problem, ...]

    @property
    def level(self) -> Literal["error", "warning"]:
        """Error or warning, the same for all."""
        return self.problems[0].level

    def __str__(self) -> str:
        first, *others = self.problems
        if not others:
            return str(first)
        rows = sorted({p.row for p in others if p.row})
        count = f"{len(others):,} more of this kind"
        return f"{first} ({count}: {row_ranges(rows)})" if rows else f"{first} ({count})"


def group_problems(problems: Iterable[Problem]) -> list[ProblemGroup]:
    """Problems by cause, in the order in which the causes first come; errors before warnings."""
    groups: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        groups.setdefault((problem.level, problem.cause or problem.message), []).append(problem)
    found = [ProblemGroup(tuple(group)) for group in groups.values()]
    return sorted(found, key=lambda group: group.level)


def row_ranges(rows: list[int]) -> str:
    """Ascending row numbers in short: `rows 3-7, 9, 12 ...`."""
    ranges = list(_ranges(rows))
    text = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:_SHOWN_RANGES])
    return f"row{'s' * (len(rows) > 1)} {text}{' ...' if len(ranges) > _SHOWN_RANGES else ''}"


def _ranges(rows: list[int]) -> Iterator[tuple[int, int]]:
    start = rows[0]
    for row, following in pairwise(rows):
        if following != row + 1:
            yield start, row
            start = following
    yield start, rows[-1]
