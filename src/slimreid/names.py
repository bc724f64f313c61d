"""The known name that a mistyped one is nearest to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_names(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Up to `count` known names that are similar to `word`, the most similar first."""
    return difflib.get_close_matches(word, list(known), n=count, cutoff=0.5)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean '...'?` for the end of a message; empty where no known name is similar."""
    near = nearest_names(word, known)
    return f"; did you mean '{near[0]}'?" if near else ""
