"""Small helpers for files: reading regular files only, writing whole or not at all, order of names."""

from __future__ import annotations

import csv
import errno
import glob
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from slimreid.errors import DataError

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
        with os.fdopen(handle, "wb") as file, naming(path):
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an `OSError` in the block say which file it is about; a full disk names none by itself."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, with the same line ends on every system."""
    with atomic_write(path) as file:
        file.write(text.encode("utf-8"))


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV, with the same line ends on every system; None is an empty cell."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def write_new(path: Path, content: bytes, overwrite: bool = False) -> bool:
    """Write a file atomically, but not over another one unless `overwrite`; False if nothing changed.

    Raises `DataError` where the file exists with other content.
    """
    if path.is_file():
        if path.stat().st_size == len(content) and path.read_bytes() == content:
            return False
        refuse_existing(path, overwrite)
    with atomic_write(path) as file:
        file.write(content)
    return True


def refuse_existing(path: Path, overwrite: bool = False) -> None:
    """Raise `DataError` if a file of this name exists, unless `overwrite`."""
    if path.is_file() and not overwrite:
        raise DataError(f"{path} exists; choose another name, or replace it with --overwrite")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A temporary folder beside `out` that takes its name when the work succeeded and vanishes otherwise.

    What a killed process left of the same folder is removed first. Raises `DataError` when `out` exists
    and is not an empty folder.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} exists and is not an empty folder; choose another folder or remove it first")
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    for left in out.parent.glob(f".{glob.escape(out.name)}.partial-*"):
        if not _is_running(left.name.rpartition("-")[2]):
            shutil.rmtree(left, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", suffix=f"-{os.getpid()}", dir=out.parent))
    try:
        partial.chmod(0o777 & ~_umask())
        yield partial
        if out.exists():
            out.rmdir()
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _is_running(number: str) -> bool:
    """Whether a process of this number runs; True where nobody can say."""
    if not number.isdecimal() or os.name != "posix":
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def open_regular(path: Path, limit: int) -> BinaryIO:
    """Open a regular file of at most `limit` bytes for reading.

    Pipes and devices are refused, because reading one may never end. Raises `DataError` with the path.
    """
    try:
        _check_regular(path, path.stat(), limit)  # before opening: that alone can wait, or act on a device
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        file = os.fdopen(handle, "rb")
        try:
            _check_regular(path, os.fstat(handle), limit)  # it may have been replaced meanwhile
        except BaseException:
            file.close()
            raise
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; correct the path") from None
    except (OSError, ValueError) as error:  # ValueError: a character no path can have
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({reason}); correct the path") from None
    return file


def _check_regular(path: Path, state: os.stat_result, limit: int) -> None:
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(state.st_mode):
        raise DataError(f"{path}: not a regular file but a pipe or device; correct the path")
    if state.st_size > limit:
        raise DataError(
            f"{path}: {state.st_size:,} bytes are more than the {limit:,} allowed; is it the right file?"
        )


def file_digest(path: Path) -> str:
    """SHA-256 of the content of a file; raises `OSError`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def is_torch_file(path: Path) -> bool:
    """Whether a file begins as torch's files do: as a zip, or as a pickle of protocol 2 or later."""
    with path.open("rb") as file:
        return zipfile.is_zipfile(path) or file.read(1) == b"\x80"


def printable(text: str) -> str:
    """`text` with bytes that are not UTF-8 (in file names) as \\xNN, so that it can be written anywhere."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def require_utf8(path: Path) -> None:
    """Raise `DataError` for a path that no UTF-8 file could hold."""
    text = str(path)
    if printable(text) != text:
        raise DataError(f"{printable(text)}: the name is not UTF-8; rename it, for example with convmv")


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


def user_cache_folder() -> Path:
    """Where SlimReID remembers things for the user: `$XDG_CACHE_HOME/slimreid` or `~/.cache/slimreid`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "slimreid"


def natural_key(text: str) -> tuple[tuple[int, int, str, str], ...]:
    """Sort key under which `cam2` comes before `cam10`, for numbers of any length."""
    return tuple(_number_key(p) if p.isdecimal() else (1, 0, p, "") for p in re.split(r"(\d+)", text) if p)


def _number_key(digits: str) -> tuple[int, int, str, str]:
    plain = digits if digits.isascii() else "".join(str(unicodedata.decimal(d)) for d in digits)
    value = plain.lstrip("0")
    return 0, len(value), value, digits


def relative_posix(path: Path, folder: Path) -> str:
    """`path` relative to `folder` with forward slashes; absolute where no relative way exists."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # another drive on Windows
        return path.resolve().as_posix()
