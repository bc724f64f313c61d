"""Running out of memory, whoever says so."""

from __future__ import annotations

_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "failed to allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, of the machine or of a GPU."""
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in _WORDS)
