"""Reading a dataset folder into a manifest: one scanner for all layouts and for user templates."""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slimreid.data.decode import image_size
from slimreid.data.layouts import LAYOUTS, Layout
from slimreid.data.manifest import SPLITS, Box, ImageRef, Manifest, Sample, Split
from slimreid.data.template import Template, compile_template
from slimreid.errors import ConfigError, DataError
from slimreid.files import IMAGE_SUFFIXES, natural_key, relative_posix
from slimreid.modalities import RGB, canonical, declare, find_modality, order


@dataclass(frozen=True)
class Imported:
    """A dataset read from disk: its table, and what a person should know about it."""

    manifest: Manifest
    layout: str
    flat: bool
    """Whether the source has no split folders, so that all rows are marked `train`."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _File:
    """An image file of the source, taken apart."""

    path: Path
    key: str
    """The same for all spectra of one sample."""
    fields: Mapping[str, str]
    modality: str | None
    splits: tuple[Split, ...]


@dataclass
class _Scan:
    files: list[_File] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    """Images whose path does not fit the template."""


def import_layout(
    source: Path,
    layout: str = "auto",
    *,
    relative_to: Path | None = None,
    template: str | None = None,
    modalities: Sequence[str] | None = None,
) -> Imported:
    """Read a dataset folder into a manifest whose paths are relative to `relative_to` (default: `source`).

    `layout` is a key of `LAYOUTS` or `auto`; `template` replaces the path pattern of `folder`.
    The result is sorted and the same on every system. Raises `DataError` showing the tree that was
    expected and the one that was found.
    """
    if not source.is_dir():
        raise DataError(f"{source}: no such folder; give the folder that holds the dataset's images")
    name, chosen = _choose(source, layout, template)
    declared = declare(modalities) if modalities else None
    scan, flat = _scan(source, chosen, declared)
    if not scan.files:
        raise DataError(_wrong_root(source, [chosen], scan.strangers))
    samples, notes = _to_samples(scan.files, chosen, relative_to or source)
    if scan.strangers:
        notes.insert(0, f"{len(scan.strangers)} images do not fit the layout, first: {scan.strangers[0]}")
    found = order(m for s in samples for m in s.images)
    absent = [name for name in declared or () if name not in found]
    if absent:
        raise DataError(f"{source}: no image of '{absent[0]}' was found; found are {', '.join(found)}")
    manifest = Manifest(tuple(samples), declared or found, relative_to or source, chosen.protocol)
    return Imported(manifest, name, flat, tuple(notes))


def _choose(source: Path, layout: str, template: str | None) -> tuple[str, Layout]:
    if template is not None:
        if layout not in ("auto", "folder"):
            raise ConfigError(f"--template goes with --layout folder, not with '{layout}'")
        compile_template(template)
        own = replace(LAYOUTS["folder"], template=template, tree=(template,))
        if "{modality" not in template:
            own = replace(own, modality=RGB)
        return "folder", own
    if layout == "auto":
        for name, candidate in LAYOUTS.items():
            if _scan(source, candidate, None, first=True)[0].files:
                return name, candidate
        raise DataError(_wrong_root(source, list(LAYOUTS.values()), []))
    if layout not in LAYOUTS:
        raise ConfigError(f"unknown layout '{layout}'; use one of auto, {', '.join(LAYOUTS)}")
    return layout, LAYOUTS[layout]


def _scan(
    source: Path, layout: Layout, declared: tuple[str, ...] | None, first: bool = False
) -> tuple[_Scan, bool]:
    """All image files that fit, and whether the source is flat (has no split folders)."""
    template = compile_template(layout.template)
    if layout.template.startswith("{split}/"):
        for sub in layout.roots:
            if any((source / sub / folder).is_dir() for folder in layout.splits):
                return _scan_root(source / sub, template, layout, declared, first), False
        template = compile_template(layout.template.removeprefix("{split}/"))
    flat = "split" not in template.fields
    return _scan_root(source, template, layout, declared, first), flat


def _scan_root(
    root: Path, template: Template, layout: Layout, declared: tuple[str, ...] | None, first: bool
) -> _Scan:
    scan = _Scan()
    folders = set(layout.splits) if template.text.startswith("{split}/") else None
    for path in image_files(root, folders):
        relative = path.relative_to(root).with_suffix("").as_posix()
        match = template.match(unicodedata.normalize("NFC", relative))
        if match is None:
            scan.strangers.append(path.relative_to(root).as_posix())
            continue
        fields = match.groupdict()
        splits = layout.splits.get(fields["split"]) if "split" in fields else ("train",)
        if splits is None:
            scan.strangers.append(path.relative_to(root).as_posix())
            continue
        if fields["identity"] in layout.ignore:
            continue
        modality, key = layout.modality, match.string
        if "modality" in fields:
            word = fields["modality"]
            modality = word if declared and word in declared else find_modality(word)
            if modality is None or (declared and modality not in declared):
                if declared is None and not first:
                    raise DataError(_unknown_modality(path, word))
                continue
            start, end = match.span("modality")
            key = f"{key[:start]}*{key[end:]}"
        scan.files.append(_File(path, key, fields, modality, splits))
        if first:
            break
    return scan


def _unknown_modality(path: Path, word: str) -> str:
    try:
        hint = canonical(word)
    except ConfigError as error:
        hint = str(error)
    return f"{path}: {hint}; rename the folder, or name all your spectra: --modalities rgb,{word.lower()}"


def image_files(root: Path, only: set[str] | None = None) -> Iterator[Path]:
    """Image files below `root` (inside its sub-folders `only`, if given), sorted by path."""
    for folder, folders, files in os.walk(root):
        if only is not None and Path(folder) == root:
            folders[:] = [name for name in folders if name in only]
            files = []
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=natural_key)
        for name in sorted(files, key=natural_key):
            path = Path(folder, name)
            if path.suffix.lower() in IMAGE_SUFFIXES and not name.startswith("."):
                yield path


def _to_samples(files: list[_File], layout: Layout, start: Path) -> tuple[list[Sample], list[str]]:
    """Join the spectra of each sample; notes name the samples that lack some."""
    groups: dict[str, dict[str | None, _File]] = defaultdict(dict)
    for file in files:
        other = groups[file.key].setdefault(file.modality, file)
        if other is not file:
            raise DataError(f"{file.path} and {other.path} are the same image of one sample; remove one")
    modalities = layout.strip or order(f.modality for f in files if f.modality)
    samples: list[Sample] = []
    incomplete: list[str] = []
    for group in groups.values():
        one = next(iter(group.values()))
        if layout.strip:
            images = _strip(one.path, layout.strip, start)
        else:
            images = {m: ImageRef(relative_posix(group[m].path, start)) for m in modalities if m in group}
        lacking = [m for m in modalities if m not in images]
        if lacking:
            incomplete.append(f"{next(iter(images.values())).path} has no {', '.join(lacking)}")
        fields = one.fields
        extras = {name: value for name, value in fields.items() if name.startswith("x_")}
        for split in one.splits:
            camera, scene = fields.get("camera", "0"), fields.get("scene", "")
            samples.append(Sample(split, fields["identity"], camera, scene, images, extras))
    samples.sort(key=_sample_order)
    notes = []
    if incomplete:
        shown = "\n    ".join(incomplete[:10])
        more = f"\n    and {len(incomplete) - 10} more" if len(incomplete) > 10 else ""
        notes.append(
            f"{len(incomplete)} samples lack a spectrum (their cell stays empty):\n    {shown}{more}"
        )
    return samples, notes


def _sample_order(sample: Sample) -> tuple[object, ...]:
    rank = SPLITS.index(sample.split)
    path = next(iter(sample.images.values())).path
    return rank, natural_key(sample.identity), natural_key(sample.camera), natural_key(path)


def _strip(path: Path, modalities: tuple[str, ...], start: Path) -> dict[str, ImageRef]:
    """The images of a strip: equal parts, side by side."""
    width, height = image_size(path)
    part, rest = divmod(width, len(modalities))
    if rest:
        raise DataError(
            f"{path}: a strip of {width}×{height} does not divide into {len(modalities)} equal images; "
            f"768×128 was expected"
        )
    location = relative_posix(path, start)
    boxes: list[Box] = [(i * part, 0, (i + 1) * part, height) for i in range(len(modalities))]
    return {name: ImageRef(location, box) for name, box in zip(modalities, boxes, strict=True)}


def _wrong_root(source: Path, layouts: list[Layout], strangers: list[str]) -> str:
    expected = "\n".join(f"  {line.title + ':':18}{row}" for line in layouts for row in line.tree)
    reason = f"\n{len(strangers)} images were seen but do not fit, first: {strangers[0]}" if strangers else ""
    return (
        f"{source}: no images in the expected layout\nexpected below this folder:\n{expected}\n"
        f"found:\n{describe_tree(source)}{reason}\ngive the folder that holds the splits, or another --layout"
    )


def describe_tree(root: Path, depth: int = 3, most: int = 6) -> str:
    """The first few folders and files below `root`, indented, for error messages."""
    lines: list[str] = []

    def walk(folder: Path, level: int) -> None:
        entries = sorted(folder.iterdir(), key=lambda p: (p.is_file(), natural_key(p.name)))
        for entry in entries[:most]:
            lines.append(f"{'  ' * (level + 1)}{entry.name}{'/' if entry.is_dir() else ''}")
            if entry.is_dir() and level + 1 < depth:
                walk(entry, level + 1)
        if len(entries) > most:
            lines.append(f"{'  ' * (level + 1)}... and {len(entries) - most} more")

    walk(root, 0)
    return "\n".join(lines) or "  (nothing)"
