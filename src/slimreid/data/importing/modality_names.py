"""Which modality a path names: the one set of rules for importing and for unlabelled folders.

    rgb/0001.png, night/thermal/0001.png      a folder that is called like a modality
    0001_rgb.png, 0001-thermal.png, a.TI.png  the last word of the name
    rgb_0001.png, anna/nir.png                the first word (of three letters or more), or the whole name

A word is any name or alias in `slimreid.modalities`, in any case, or a modality that the user declared.
`ir` and `infrared` may mean two modalities, so they are never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from slimreid.errors import DataError
from slimreid.modalities import MODALITIES, find_modality

_UNCLEAR = ("ir", "infrared")
_SEPARATOR = r"[ _.\-]+"


@dataclass(frozen=True)
class NamedPath:
    """A path taken apart: what it says of the modality, and the rest."""

    modality: str | None
    """None where the path names none."""
    key: str
    """The path without suffix and without the modality: the same for all modalities of a sample."""
    unclear: str = ""
    """A word that may mean two modalities, where the path names none clearly."""


def read_name(relative: str, declared: Iterable[str] = ()) -> NamedPath:
    """Take apart a path (forward slashes); `declared` are modalities besides the known ones.

    Raises `DataError` for a path that names two modalities.
    """
    path = PurePosixPath(relative)
    own = tuple(declared)
    folders = [(part, _modality(part, own)) for part in path.parts[:-1]]
    word, rest = _word_in_name(path.stem, own)
    found = {name for _, name in folders if name}
    named = _modality(word, own) if word else None
    if named:
        found.add(named)
    if len(found) > 1:
        names = " and ".join(sorted(found))
        raise DataError(f"{relative}: the path names {names}; rename it so that it names one modality")
    parts = [part for part, name in folders if not name] + ([rest] if rest else [])
    return NamedPath(next(iter(found), None), "/".join(parts), "" if found else word)


def unclear_message(path: Path | str, word: str) -> str:
    """What to say of a path with a word that may mean two modalities."""
    return f"{path}: '{word}' may be nir or tir; write _nir or _tir, or name the one modality there is"


def _modality(word: str, declared: tuple[str, ...]) -> str | None:
    return next((name for name in declared if name.lower() == word.lower()), None) or find_modality(word)


def _word_in_name(stem: str, declared: tuple[str, ...]) -> tuple[str, str]:
    """The word for a modality in a file's name ('' for none), and the name without it."""
    for pattern in _patterns(declared):
        if match := pattern.fullmatch(stem):
            return match["word"], (match.groupdict().get("rest") or "")
    return "", stem


@lru_cache(maxsize=16)
def _patterns(declared: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    known = [word for m in MODALITIES.values() for word in (m.name, *m.aliases)]
    words = sorted({*known, *_UNCLEAR, *declared}, key=len, reverse=True)  # the longest that fits
    any_word = "|".join(re.escape(word).replace(r"\-", r"[ _\-]") for word in words)
    long_word = "|".join(re.escape(word).replace(r"\-", r"[ _\-]") for word in words if len(word) > 2)
    texts = (
        rf"(?P<word>{any_word})",
        rf"(?P<rest>.+?){_SEPARATOR}(?P<word>{any_word})",
        rf"(?P<word>{long_word}){_SEPARATOR}(?P<rest>.+)",
    )
    return tuple(re.compile(text, re.IGNORECASE) for text in texts)
