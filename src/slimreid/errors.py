"""What goes wrong because of the user's data or options, not a bug of ours; and hints for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "failed to allocate memory")


class SlimReIDError(Exception):
    """Base of all errors a user can mend; the command line shows the message without a traceback."""


class DataError(SlimReIDError):
    """A file, row or folder is not what it should be; the message names it and the cure."""


class ConfigError(SlimReIDError):
    """An option is unknown, out of range or contradicts another; the message names the key."""


class ModelError(SlimReIDError):
    """Weights or inputs do not fit the model; the message names the key or shape."""


class TrainingError(SlimReIDError):
    """A run cannot go on; the message says where it stopped, what is left, and the cure."""


class SlimReIDWarning(UserWarning):
    """Something worth knowing that does not stop the work."""


def nearest_names(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Up to `count` known names that are similar to `word`, the most similar first."""
    return difflib.get_close_matches(word, list(known), n=count, cutoff=0.5)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean '...'?` for the end of a message; empty where no known name is similar."""
    near = nearest_names(word, known)
    return f"; did you mean '{near[0]}'?" if near else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, of the machine or of a GPU."""
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in _WORDS)
