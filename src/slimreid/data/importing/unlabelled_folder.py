"""Images in a folder without a manifest: perhaps no identities, no cameras, perhaps several modalities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from slimreid.data.importing.datasets import import_layout
from slimreid.data.importing.layouts import IDENTITY_FOLDERS, LAYOUTS
from slimreid.data.importing.modality_names import read_name, unclear_message
from slimreid.data.importing.scan import image_files
from slimreid.data.manifest import ImageRef, Manifest, Sample
from slimreid.errors import ConfigError, DataError
from slimreid.files import relative_posix
from slimreid.modalities import RGB


@dataclass(frozen=True)
class OpenedFolder:
    """A folder of images as a dataset."""

    manifest: Manifest
    how: str
    """How the folder was understood."""
    notes: tuple[str, ...] = ()
    """What was guessed or left out."""


def open_folder(folder: Path, modalities: Sequence[str], default: str | None = None) -> OpenedFolder:
    """Any folder of images as a dataset for a model of some modalities.

    A layout that SlimReID knows is taken with its identities if it covers every image; otherwise see
    `read_unlabelled`, also for errors.
    """
    found = None
    if default is None:
        with suppress(DataError):  # then it has none of the layouts
            found = import_layout(folder, "auto")
    if found is None or found.layout == IDENTITY_FOLDERS:  # any folders look like those of identities
        return read_unlabelled(folder, modalities, default)
    known = {m for m in found.manifest.modalities if m in modalities}
    files = {image.path for s in found.manifest.samples for image in s.images.values()}
    every = {relative_posix(path, folder) for path in image_files(folder)}
    # Without split folders a strip is told by its file name alone, which is too little to cut images up.
    strip = found.flat and LAYOUTS[found.layout].strip
    if not known or files != every or strip:
        return read_unlabelled(folder, modalities, default)
    samples = [s for s in _cut(found.manifest, modalities) if s.images]
    chosen = tuple(m for m in modalities if m in known)
    manifest = Manifest(tuple(samples), chosen, folder, found.manifest.protocol, found.manifest.origin)
    return OpenedFolder(manifest, f"layout {found.layout}")


def _cut(manifest: Manifest, modalities: Sequence[str]) -> list[Sample]:
    """The samples with only these modalities."""
    return [
        replace(s, images={m: s.images[m] for m in modalities if m in s.images}) for s in manifest.samples
    ]


def read_unlabelled(folder: Path, modalities: Sequence[str], default: str | None = None) -> OpenedFolder:
    """All images below a folder as samples of unknown identity ('') and camera ('').

    The modality is told by the path (`slimreid.data.importing.modality_names`); images that name none are
    of `default`: the model's only modality, or rgb. Raises `DataError` for a folder without images of
    the model's modalities, for a path that is not clear and for two images of one sample in the same
    modality; `ConfigError` for a default that the model does not know.
    """
    usual = default or _usual(modalities)
    if default is not None and default not in modalities:
        raise ConfigError(f"modality '{default}'; the model knows {', '.join(modalities)}")
    samples: dict[str, dict[str, ImageRef]] = {}
    guessed: list[str] = []
    left_out: Counter[str] = Counter()
    for path in image_files(folder):
        relative = relative_posix(path, folder)
        named = read_name(relative, modalities)
        if named.unclear and default is None:
            raise DataError(unclear_message(path, named.unclear))
        modality = named.modality or usual
        if modality is None:
            raise DataError(
                f"{path}: neither its folder nor its name says which modality it is; the model knows "
                f"{', '.join(modalities)}, name one with --modality"
            )
        if modality not in modalities:
            left_out[modality] += 1
            continue
        if named.modality is None:
            guessed.append(relative)
        images = samples.setdefault(named.key, {})
        if modality in images:
            raise DataError(
                f"{path} and {folder / images[modality].path} are the same image of one sample; remove one"
            )
        images[modality] = ImageRef(relative)
    if not samples:
        unknown = f" of {', '.join(modalities)}, only of {', '.join(left_out)}" if left_out else ""
        raise DataError(f"{folder}: no images{unknown} below this folder")
    notes = [
        f"{n} {name} images are left out: the model does not know {name}" for name, n in left_out.items()
    ]
    if guessed and default is None and len(modalities) > 1:
        notes.append(
            f"{len(guessed)} images name no modality and are taken as {usual}, first: {guessed[0]}; "
            f"--modality says otherwise"
        )
    found = tuple(m for m in modalities if any(m in images for images in samples.values()))
    rows = [
        Sample("gallery", "", "", "", {m: images[m] for m in modalities if m in images}, row=n)
        for n, images in enumerate(samples.values(), start=1)
    ]
    return OpenedFolder(Manifest(tuple(rows), found, folder), "identities unknown", tuple(notes))


def _usual(modalities: Sequence[str]) -> str | None:
    if len(modalities) == 1:
        return modalities[0]
    return RGB if RGB in modalities else None
