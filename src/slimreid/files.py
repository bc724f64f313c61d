"""Small helpers for files: atomic writing, content fingerprints, natural order of names."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp"})


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing bytes so that it appears whole or not at all.

    The bytes go to a temporary sibling, are flushed to disk, and take the name only at the end;
    after an error nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, with the same line ends on every system."""
    with atomic_write(path) as file:
        file.write(text.encode("utf-8"))


def check_writable(path: Path) -> None:
    """Raise `OSError` naming the place where a file could not be written: before long work, not after it.

    The folder is made if it is not there.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which `cam2` comes before `cam10`."""
    parts = re.split(r"(\d+)", text)
    return tuple((0, int(p), p) if p.isdecimal() else (1, 0, p) for p in parts if p)


def relative_posix(path: Path, folder: Path) -> str:
    """`path` relative to `folder` with forward slashes; absolute where no relative way exists."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # another drive on Windows
        return path.resolve().as_posix()
