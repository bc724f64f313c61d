"""The image files below a folder, and what a person sees there."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from slimreid.files import IMAGE_SUFFIXES, natural_key, printable, require_utf8


def image_files(root: Path, only: Collection[str] | None = None) -> Iterator[Path]:
    """Image files below `root` (inside its sub-folders `only`, if given), sorted by path.

    Hidden files and folders are left out. Raises `DataError` for a name that is not UTF-8: neither a
    manifest nor a file of embeddings could hold it.
    """
    for folder, folders, files in os.walk(root):
        if only is not None and Path(folder) == root:
            folders[:] = [name for name in folders if name in only]
            files = []
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=natural_key)
        for name in sorted(files, key=natural_key):
            path = Path(folder, name)
            if path.suffix.lower() in IMAGE_SUFFIXES and not name.startswith("."):
                require_utf8(path)
                yield path


def describe_tree(root: Path, depth: int = 3, most: int = 6) -> str:
    """The first few folders and files below `root`, indented, for error messages."""
    lines: list[str] = []

    def walk(folder: Path, level: int) -> None:
        entries = sorted(folder.iterdir(), key=lambda p: (p.is_file(), natural_key(p.name)))
        for entry in entries[:most]:
            lines.append(f"{'  ' * (level + 1)}{printable(entry.name)}{'/' if entry.is_dir() else ''}")
            if entry.is_dir() and level + 1 < depth:
                walk(entry, level + 1)
        if len(entries) > most:
            lines.append(f"{'  ' * (level + 1)}... and {len(entries) - most} more")

    walk(root, 0)
    return "\n".join(lines) or "  (nothing)"
