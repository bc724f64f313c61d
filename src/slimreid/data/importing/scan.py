"""Which files of a folder belong to a dataset, and what their paths say."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slimreid.data.importing.layouts import Layout
from slimreid.data.importing.modality_names import NamedPath, read_name
from slimreid.data.importing.template import Template, compile_template
from slimreid.data.importing.walk import image_files
from slimreid.data.manifest import Split
from slimreid.errors import ConfigError, DataError
from slimreid.modalities import canonical, find_modality


@dataclass(frozen=True)
class SourceFile:
    """An image file of the source, taken apart."""

    path: Path
    key: str
    """The same for all modalities of one sample."""
    fields: Mapping[str, str]
    modality: str | None
    """None where the path names none."""
    splits: tuple[Split, ...]
    unclear: str = ""
    """A word in the path that may mean two modalities."""


@dataclass
class Scan:
    """What was found below a folder."""

    flat: bool
    """Whether the source has no split folders, so that all rows are marked `train`."""
    fields: frozenset[str]
    """What the paths say: split, modality, identity, camera, ..."""
    files: list[SourceFile] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    """Images whose path does not fit the layout."""


def scan_source(
    source: Path, layout: Layout, declared: tuple[str, ...] | None, identities: int | None = None
) -> Scan:
    """All image files below `source` that fit a layout; stops after so many `identities`, if given.

    Raises `DataError` for a word in place of a modality that means none.
    """
    root, template = source, compile_template(layout.template)
    if layout.template.startswith("{split}/"):
        for sub in layout.roots:
            if any((source / sub / folder).is_dir() for folder in layout.splits):
                root = source / sub
                break
        else:
            template = compile_template(layout.template.removeprefix("{split}/"))
    scan = Scan("split" not in template.fields, template.fields)
    seen: set[str] = set()
    for path in image_files(root, layout.splits if template.text.startswith("{split}/") else None):
        file = _read_path(path, root, template, layout, declared, lenient=identities is not None)
        if isinstance(file, SourceFile):
            scan.files.append(file)
            seen.add(file.fields["identity"])
        elif file == _STRANGE:
            scan.strangers.append(path.relative_to(root).as_posix())
        if len(seen) == identities:
            break
    return scan


_STRANGE, _LEFT_OUT = "strange", "left out"


def _read_path(
    path: Path,
    root: Path,
    template: Template,
    layout: Layout,
    declared: tuple[str, ...] | None,
    lenient: bool,
) -> SourceFile | str:
    """The file taken apart, or why it is not one of the dataset."""
    relative = unicodedata.normalize("NFC", path.relative_to(root).with_suffix("").as_posix())
    named = NamedPath(layout.modality, relative)
    if layout.named_by_file and "modality" not in template.fields:
        # The suffix is cut off again when the name is read, so it must not take a part of the name.
        named = read_name(f"{relative}.x", declared or ())
    match = template.match(named.key, path.suffix)
    if match is None:
        return _STRANGE
    fields = match.groupdict()
    splits = layout.splits.get(fields["split"]) if "split" in fields else ("train",)
    if splits is None:
        return _STRANGE
    if fields["identity"] in layout.ignore:
        return _LEFT_OUT
    modality, key = named.modality, named.key
    if "modality" in fields:
        word = fields["modality"]
        modality = word if declared and word in declared else find_modality(word)
        if modality is None and declared is None and not lenient:
            raise DataError(_unknown_modality(path, word))
        if modality is None:
            return _LEFT_OUT
        start, end = match.span("modality")
        key = f"{key[:start]}*{key[end:]}"
    if declared and modality and modality not in declared:
        return _LEFT_OUT
    return SourceFile(path, key, fields, modality, splits, named.unclear)


def _unknown_modality(path: Path, word: str) -> str:
    try:
        hint = canonical(word)
    except ConfigError as error:
        hint = str(error)
    return f"{path}: {hint}; rename the folder, or name all your modalities: --modalities rgb,{word.lower()}"
