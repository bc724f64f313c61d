"""Faults of image files: unreadable ones, and modalities of one sample that differ in shape."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from slimreid.data.images.decode import ImageInfo, image_info, read_images, several_message
from slimreid.data.manifest import ImageRef, Manifest, Sample
from slimreid.data.problems import Problem
from slimreid.data.sample_reader import same_aspect
from slimreid.data.workers import work_ahead
from slimreid.errors import DataError, SlimReIDWarning
from slimreid.progress import progress

Size = tuple[int, int]
"""Width and height."""

MEMORY = 1 << 30
"""Bytes that images may take while they are decoded, all threads together."""

_BYTES_PER_PIXEL = 16  # a 16-bit image as 32-bit values, their copy for the percentiles, and 8-bit RGB
_AHEAD = 64


def open_images(manifest: Manifest, show_progress: bool | None) -> tuple[dict[ImageRef, Size], list[Problem]]:
    """Decode every image once; sizes of the good ones, and all problems with files."""
    rows: dict[tuple[ImageRef, ...], Sample] = {}
    for sample in manifest.samples:  # query and gallery may share images
        rows.setdefault(tuple(sample.images.values()), sample)
    memory = _Memory(MEMORY)

    def read(sample: Sample) -> tuple[dict[ImageRef, Size], list[Problem]]:
        found: dict[ImageRef, Size] = {}
        faults: list[Problem] = []
        for name, image in sample.images.items():
            try:
                info = image_info(manifest.file(image))
                with memory.take(_BYTES_PER_PIXEL * info.width * info.height + info.file_size):
                    height, width = read_images({name: image}, manifest.root)[name].shape[:2]
            except DataError as error:
                faults.append(_unreadable(sample.row, manifest, image, str(error)))
                continue
            found[image] = (width, height)
            faults += _doubtful(sample.row, name, image, info)
        return found, faults

    sizes: dict[ImageRef, Size] = {}
    problems: list[Problem] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlimReIDWarning)  # it becomes a problem with a row number instead
        results = work_ahead(read, rows.values(), _AHEAD)
        for found, faults in progress(results, "opening images", len(rows), show_progress):
            sizes |= found
            problems += faults
    return sizes, problems


def _unreadable(row: int, manifest: Manifest, image: ImageRef, text: str) -> Problem:
    message, _, cure = text.rpartition("; ")
    reason = message.removeprefix(f"{manifest.file(image)}: ")
    cause = re.sub(r"\(.*\)|[\d×,]+", "", reason, flags=re.DOTALL)  # without what differs between files
    return Problem("error", row, message, cure, cause)


def _doubtful(row: int, name: str, image: ImageRef, info: ImageInfo) -> Iterator[Problem]:
    """What a person should know of a file that can be read."""
    if info.deep and image.window is None:
        yield Problem(
            "warning",
            row,
            f"{image.path}: values of more than 8 bits and no window, so every image is stretched to its own "
            f"range and the same value differs from image to image",
            f"write 'low high' in a column {name}_window, or set data.windows.{name} for training",
            f"window {name}",
        )
    if info.several:
        cure = "save the page that is meant as a file of its own"
        yield Problem("warning", row, f"{image.path}: {several_message()}", cure, "several")


class _Memory:
    """An amount of memory that threads take a part of, waiting until there is enough."""

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self.changed = threading.Condition()

    @contextmanager
    def take(self, amount: int) -> Iterator[None]:
        amount = min(amount, self.total)
        with self.changed:
            self.changed.wait_for(lambda: self.free >= amount)
            self.free -= amount
        try:
            yield
        finally:
            with self.changed:
                self.free += amount
                self.changed.notify_all()


def misaligned(manifest: Manifest, sizes: Mapping[ImageRef, Size]) -> Iterator[Problem]:
    """Samples whose modalities differ in size (a warning) or in shape (an error)."""
    for sample in manifest.samples:
        known = {name: sizes[image] for name, image in sample.images.items() if image in sizes}
        if len(set(known.values())) < 2:
            continue
        first, *others = known
        text = ", ".join(f"{name} {w}×{h}" for name, (w, h) in known.items())
        if all(same_aspect(known[first], known[other]) for other in others):
            cure = "this works, but check that they show the same field of view"
            yield Problem("warning", sample.row, f"sizes differ: {text}", cure, "sizes")
        else:
            cure = f"crop or resize all modalities of a sample to the shape of {first}"
            yield Problem("error", sample.row, f"shapes differ: {text}", cure, "shapes")
