"""Names and paths of forgotten rows taken out of the log."""

from __future__ import annotations

from typing import Any

FORGOTTEN = "[forgotten]"
"""What stands in the log for names and paths that were erased."""


def without_words(value: Any, words: set[str]) -> Any:
    """JSON in which every text that is one of the words, or a path with one as a part, is replaced."""
    if isinstance(value, dict):
        return {key: without_words(inner, words) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_words(inner, words) for inner in value]
    if isinstance(value, str) and (
        value in words or not words.isdisjoint(value.replace("\\", "/").split("/"))
    ):
        return FORGOTTEN
    return value
