"""The modalities SlimReID knows: their names, order, aliases and short names.

This is the only place that names them. Everything else loops over a tuple of names, of any length
from one up, so a new modality (depth, event, ...) is one more line in `MODALITIES`, or just a name
that the user declares (`data.modalities: [rgb, depth]`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slimreid.errors import ConfigError, nearest_names

_NAME = re.compile(r"[a-z][a-z0-9]*")


@dataclass(frozen=True)
class Modality:
    """One modality: how it is called here, by people and by the public datasets."""

    name: str
    letter: str
    """One-letter short name, used for subsets: `rn` = rgb + nir."""
    label: str
    """Name for tables and pictures."""
    aliases: tuple[str, ...] = ()
    """Words in names of folders, files and columns that mean this modality (case does not matter)."""
    colour: bool = False
    """Whether its three channels are colours, so that colour jitter makes sense."""


RGB, NIR, TIR = "rgb", "nir", "tir"

MODALITIES: dict[str, Modality] = {
    m.name: m
    for m in (
        Modality(RGB, "r", "visible", ("vis", "visible", "color", "colour"), colour=True),
        Modality(NIR, "n", "near infrared", ("ni", "near-infrared", "nearinfrared")),
        Modality(TIR, "t", "thermal infrared", ("ti", "th", "thermal", "lwir", "mwir")),
    )
}

DEFAULT_MODALITIES: tuple[str, ...] = tuple(MODALITIES)


_BY_ALIAS = {alias: m.name for m in MODALITIES.values() for alias in (m.name, *m.aliases)}


def find_modality(word: str) -> str | None:
    """Canonical name of a modality given by name or alias in any case, or None if it is not known."""
    return _BY_ALIAS.get(word.lower().replace("_", "-").replace(" ", "-"))


def canonical(word: str) -> str:
    """Canonical name of `word`; raises `ConfigError` with the nearest known name."""
    name = find_modality(word)
    if name is None:
        near = nearest_names(word.lower(), _BY_ALIAS)
        hint = f"; did you mean '{_BY_ALIAS[near[0]]}'?" if near else ""
        raise ConfigError(f"unknown modality '{word}'{hint} (known: {', '.join(MODALITIES)})")
    return name


def describe(name: str) -> Modality:
    """What is known of a modality; a declared one that is not in the table gets plain defaults."""
    return MODALITIES.get(name) or Modality(name, name[0], name)


def order(names: Iterable[str]) -> tuple[str, ...]:
    """`names` without repeats in canonical order: the known ones first, declared ones as given."""
    unique = list(dict.fromkeys(names))
    known = [name for name in MODALITIES if name in unique]
    return (*known, *(name for name in unique if name not in MODALITIES))


def declare(words: Sequence[str]) -> tuple[str, ...]:
    """Modalities of a dataset as the user names them: aliases are resolved, new names are accepted.

    Raises `ConfigError` when there is none, when one is named twice or is not a plain lower-case word.
    """
    names = [find_modality(word) or word for word in words]
    if not names:
        raise ConfigError("at least one modality is needed, for example [rgb]")
    if len(set(names)) != len(names):
        raise ConfigError(f"a modality is named twice in {list(words)}")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"modality '{name}' is not a plain lower-case word of letters and digits")
    return order(names)


def _letters(modalities: Sequence[str]) -> dict[str, str] | None:
    letters = {name: describe(name).letter for name in modalities}
    return letters if len(set(letters.values())) == len(letters) else None


def subset_name(subset: Iterable[str], modalities: Sequence[str] = DEFAULT_MODALITIES) -> str:
    """Short name of a subset, `rn` for rgb + nir; full names joined by `+` where letters collide."""
    chosen = set(subset)
    members = [name for name in modalities if name in chosen]
    if not members or len(members) != len(chosen):
        raise ConfigError(f"{sorted(chosen)} is not a non-empty subset of {list(modalities)}")
    letters = _letters(modalities)
    return "".join(letters[m] for m in members) if letters else "+".join(members)


def parse_subset(text: str, modalities: Sequence[str] = DEFAULT_MODALITIES) -> tuple[str, ...]:
    """Read a subset given as letters (`rn`), as names or aliases joined by `+` or `,`, or as `all`."""
    if text == "all":
        return tuple(modalities)
    parts = [find_modality(part) or part for part in re.split(r"[+,]", text)]
    letters = _letters(modalities)
    if len(parts) == 1 and parts[0] not in modalities and letters:
        by_letter = {letter: name for name, letter in letters.items()}
        parts = [by_letter.get(letter, letter) for letter in text]
    if not text or len(set(parts)) != len(parts) or not set(parts) <= set(modalities):
        names = ", ".join(subset_name(s, modalities) for s in all_subsets(modalities))
        raise ConfigError(f"'{text}' is not a set of modalities; use one of: {names}")
    return tuple(name for name in modalities if name in parts)


def all_subsets(modalities: Sequence[str] = DEFAULT_MODALITIES) -> list[tuple[str, ...]]:
    """All non-empty subsets, small ones first."""
    sizes = range(1, len(modalities) + 1)
    return [subset for size in sizes for subset in itertools.combinations(modalities, size)]
