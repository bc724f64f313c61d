"""Images that just lie in a folder: no identities, no cameras, perhaps several spectra.

photos/a.jpg, photos/trip/b.jpg                    samples of one spectrum
shots/rgb/0001.png, shots/tir/0001.png             a folder per spectrum (any name or alias of it)
shots/0001_rgb.png, shots/0001_tir.png             the name at the end, after _ or - or .
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from slimreid.data.importing import image_files, import_layout
from slimreid.data.layouts import LAYOUTS
from slimreid.data.manifest import ImageRef, Manifest, Sample
from slimreid.errors import ConfigError, DataError
from slimreid.files import relative_posix
from slimreid.modalities import RGB, find_modality


def open_folder(folder: Path, modalities: Sequence[str], default: str | None = None) -> tuple[Manifest, str]:
    """Any folder of images as a manifest for a model of some modalities, and how it was understood.

    A layout that SlimReID knows is taken with its identities if it covers every image; otherwise see
    `read_loose`, also for errors.
    """
    try:
        found = import_layout(folder, "auto")
    except DataError:
        return read_loose(folder, modalities, default), "identities unknown"
    known = {m for m in found.manifest.modalities if m in modalities}
    files = {image.path for s in found.manifest.samples for image in s.images.values()}
    every = {relative_posix(path, folder) for path in image_files(folder)}
    # Without split folders a strip is told by its file name alone, which is too little to cut images up.
    strip = found.flat and LAYOUTS[found.layout].strip
    if not known or files != every or strip or default:
        return read_loose(folder, modalities, default), "identities unknown"
    samples = [s for s in _cut(found.manifest, modalities) if s.images]
    chosen = tuple(m for m in modalities if m in known)
    manifest = Manifest(tuple(samples), chosen, folder, found.manifest.protocol, found.manifest.origin)
    return manifest, f"layout {found.layout}"


def _cut(manifest: Manifest, modalities: Sequence[str]) -> list[Sample]:
    """The samples with only these modalities."""
    return [
        replace(s, images={m: s.images[m] for m in modalities if m in s.images}) for s in manifest.samples
    ]


def read_loose(folder: Path, modalities: Sequence[str], default: str | None = None) -> Manifest:
    """All images below a folder as samples of unknown identity ('') and camera ('').

    Spectra are told by folder or by the end of the name; images that name none are of `default`: the
    model's only modality, or rgb. Raises `DataError` for a folder without images or with two images of one
    sample in the same spectrum, `ConfigError` for a default that the model does not know.
    """
    default = default or _usual(modalities)
    if default is not None and default not in modalities:
        raise ConfigError(f"modality '{default}'; the model knows {', '.join(modalities)}")
    samples: dict[str, dict[str, ImageRef]] = {}
    for path in image_files(folder):
        relative = relative_posix(path, folder)
        named = _named(relative, modalities)
        if named is None and default is None:
            raise DataError(
                f"{path}: neither its folder nor its name says which spectrum it is; the model knows "
                f"{', '.join(modalities)}, name one with --modality"
            )
        modality, key = named or (str(default), relative)
        images = samples.setdefault(key, {})
        if modality in images:
            raise DataError(
                f"{path} and {folder / images[modality].path} are the same image of one sample; remove one"
            )
        images[modality] = ImageRef(relative)
    if not samples:
        raise DataError(f"{folder}: no images below this folder")
    found = tuple(m for m in modalities if any(m in images for images in samples.values()))
    rows = [
        Sample("gallery", "", "", "", {m: images[m] for m in modalities if m in images}, row=n)
        for n, images in enumerate(samples.values(), start=1)
    ]
    return Manifest(tuple(rows), found, folder)


def _usual(modalities: Sequence[str]) -> str | None:
    if len(modalities) == 1:
        return modalities[0]
    return RGB if RGB in modalities else None


def _named(relative: str, modalities: Sequence[str]) -> tuple[str, str] | None:
    """The spectrum that a path names, and what is left of the path: the same for all spectra of a sample."""
    path = PurePosixPath(relative)
    folders = list(path.parts[:-1])
    for at, part in enumerate(folders):
        name = part if part in modalities else find_modality(part)
        if name in modalities and name is not None:
            rest = [*folders[:at], "*", *folders[at + 1 :], path.stem]
            return name, "/".join(rest)
    match = re.fullmatch(r"(.*)[_\-.]([A-Za-z0-9]+)", path.stem)
    if match and match[2].lower() in modalities:
        return match[2].lower(), "/".join([*folders, f"{match[1]}_*"])
    return None
