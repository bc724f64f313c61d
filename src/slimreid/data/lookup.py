"""Finding one sample of a manifest by what a person calls it."""

from __future__ import annotations

from pathlib import PurePosixPath

from slimreid.data.manifest import SPLITS, Manifest, Sample
from slimreid.errors import DataError, nearest_names

_ORDER = ("query", "val", "gallery", "train")
"""Where a name is looked for first: the same images often stand in query and gallery."""


def find_sample(manifest: Manifest, text: str) -> int:
    """Index in `manifest.samples` of the sample that `text` names.

    `text` is the name or path of one of its files, with or without suffix (`000258_cam1_0_00`), a number
    that counts the queries from 0 (`17`), or a split and a number (`train:17`). Where several rows have the
    file, a query is meant first. Raises `DataError` with near names when there is none, or when it means
    several different samples.
    """
    word = text.strip().replace("\\", "/")
    named = [i for i, sample in enumerate(manifest.samples) if word in _names(sample)]
    if named:
        return _first_meant(manifest, word, named)
    split, _, number = word.rpartition(":")
    if number.isdecimal() and len(number) < 10 and (not split or split in SPLITS):
        return _numbered(manifest, split, int(number))
    raise DataError(f"no sample '{text}' in {manifest.root}{_near(manifest, word)}")


def _names(sample: Sample) -> set[str]:
    """All that a sample may be called: paths and names of its files, with and without suffix."""
    names = set()
    for image in sample.images.values():
        path = PurePosixPath(image.path)
        names |= {str(path), path.name, str(path.with_suffix("")), path.stem}
    return names


def _first_meant(manifest: Manifest, word: str, found: list[int]) -> int:
    """The one sample meant; the same images as query and as gallery item are one."""
    found = sorted(found, key=lambda i: _ORDER.index(manifest.samples[i].split))
    different = list({repr(sorted(manifest.samples[i].images.items())): i for i in reversed(found)}.values())
    if len(different) > 1:
        paths = [next(iter(manifest.samples[i].images.values())).path for i in reversed(different)]
        shown = ", ".join(paths[:5]) + (" ..." if len(paths) > 5 else "")
        raise DataError(f"'{word}' means {len(different)} samples; give the path of one of them: {shown}")
    return found[0]


def _numbered(manifest: Manifest, split: str, number: int) -> int:
    """The n-th sample of a split; without one, of the queries, or of all rows where there are none."""
    if not split:
        split = next((s for s in ("query", "val") if manifest.select(s)), "")
    rows = [i for i, sample in enumerate(manifest.samples) if not split or sample.split == split]
    if number >= len(rows):
        what = f"{split} rows" if split else "rows"
        last = f"they are 0 to {len(rows) - 1}" if rows else "there are none"
        raise DataError(f"{manifest.root}: no {number} among the {what}; {last}")
    return rows[number]


def _near(manifest: Manifest, word: str) -> str:
    stems = {PurePosixPath(ref.path).stem for sample in manifest.samples for ref in sample.images.values()}
    near = nearest_names(PurePosixPath(word).stem, sorted(stems), count=3)
    if near:
        return f"; near it: {', '.join(near)}"
    return "; give a file's name, the number of a query from 0, or a split and a number such as train:3"
