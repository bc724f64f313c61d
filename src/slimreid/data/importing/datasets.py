"""Reading a dataset folder into a manifest: one scanner for all layouts and for path templates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slimreid.data.images.decode import image_info
from slimreid.data.importing.layouts import IDENTITY_FOLDERS, LAYOUTS, Layout
from slimreid.data.importing.modality_names import unclear_message
from slimreid.data.importing.scan import Scan, SourceFile, compile_template, describe_tree, scan_source
from slimreid.data.manifest import SPLITS, Box, ImageRef, Manifest, Protocol, Sample
from slimreid.errors import ConfigError, DataError
from slimreid.files import natural_key, relative_posix
from slimreid.modalities import RGB, declare, order

_SHOWN = 10
NO_CAMERA = "0"
"""Camera of samples whose paths name none."""


@dataclass(frozen=True)
class Imported:
    """A dataset read from disk: its table, and what a person should know about it."""

    manifest: Manifest
    layout: str
    flat: bool
    """Whether the source has no split folders, so that all rows are marked `train`."""
    notes: tuple[str, ...] = ()


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
    scan = scan_source(source, chosen, declared)
    if not scan.files:
        raise DataError(_wrong_root(source, [chosen], scan.strangers))
    notes = []
    if scan.strangers:
        notes.append(f"{len(scan.strangers)} images do not fit the layout, first: {scan.strangers[0]}")
    files, guesses = _guess_modality(scan.files, chosen, declared)
    samples, incomplete = _to_samples(files, chosen, relative_to or source)
    protocol, without_cameras = _protocol(scan, chosen)
    found = order(m for s in samples for m in s.images)
    absent = [name for name in declared or () if name not in found]
    if absent:
        raise DataError(f"{source}: no image of '{absent[0]}' was found; found are {', '.join(found)}")
    manifest = Manifest(tuple(samples), declared or found, relative_to or source, protocol)
    return Imported(manifest, name, scan.flat, (*notes, *guesses, *incomplete, *without_cameras))


def _choose(source: Path, layout: str, template: str | None) -> tuple[str, Layout]:
    if template is not None:
        if layout not in ("auto", "folder"):
            raise ConfigError(f"--template needs --layout folder, not with '{layout}'")
        compile_template(template)
        return "folder", replace(LAYOUTS["folder"], template=template, tree=(template,), named_by_file=True)
    if layout == "auto":
        for name, candidate in LAYOUTS.items():
            # Any folder in a folder could be a person; two of them are taken for people.
            needed = 2 if name == IDENTITY_FOLDERS else 1
            if (
                len({f.fields["identity"] for f in scan_source(source, candidate, None, needed).files})
                >= needed
            ):
                return name, candidate
        raise DataError(_wrong_root(source, list(LAYOUTS.values()), []))
    if layout not in LAYOUTS:
        raise ConfigError(f"unknown layout '{layout}'; use one of auto, {', '.join(LAYOUTS)}")
    return layout, LAYOUTS[layout]


def _guess_modality(
    files: list[SourceFile], layout: Layout, declared: tuple[str, ...] | None
) -> tuple[list[SourceFile], list[str]]:
    """Files whose path names no modality as rgb, or as the only one that is declared; and a note of it."""
    silent = [file for file in files if file.modality is None]
    if layout.strip or not silent:
        return files, []
    default = declared[0] if declared and len(declared) == 1 else RGB
    for file in silent:
        if file.unclear and not declared:
            raise DataError(unclear_message(file.path, file.unclear))
    if declared and default not in declared:
        raise DataError(f"{silent[0].path}: the path names none of {', '.join(declared)}; rename it")
    guessed = [replace(file, modality=default) if file.modality is None else file for file in files]
    note = f"{len(silent)} images name no modality and are taken as {default}, first: {silent[0].path}"
    return guessed, [] if declared and len(declared) == 1 else [note]


def _protocol(scan: Scan, layout: Layout) -> tuple[Protocol, list[str]]:
    """The protocol that the paths allow, and a note where it is not the usual one."""
    if layout.protocol != "camera" or "camera" in scan.fields:
        return layout.protocol, []
    if "scene" in scan.fields:
        return "scene", ["the paths name scenes but no cameras, so the protocol is 'scene'"]
    return "none", [
        "the paths name no cameras, so the protocol is 'none': a query may find every image but itself"
    ]


def _to_samples(files: list[SourceFile], layout: Layout, start: Path) -> tuple[list[Sample], list[str]]:
    """Join the modalities of each sample; a note names the samples that lack some."""
    groups: dict[str, dict[str | None, SourceFile]] = defaultdict(dict)
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
        camera, scene = fields.get("camera", NO_CAMERA), fields.get("scene", "")
        samples += [Sample(s, fields["identity"], camera, scene, images, extras) for s in one.splits]
    samples.sort(key=_sample_order)
    return samples, _incomplete_note(incomplete)


def _incomplete_note(incomplete: Sequence[str]) -> list[str]:
    if not incomplete:
        return []
    shown = "\n    ".join(incomplete[:_SHOWN])
    more = f"\n    and {len(incomplete) - _SHOWN} more" if len(incomplete) > _SHOWN else ""
    return [f"{len(incomplete)} samples lack a modality (their cell stays empty):\n    {shown}{more}"]


def _sample_order(sample: Sample) -> tuple[object, ...]:
    rank = SPLITS.index(sample.split)
    path = next(iter(sample.images.values())).path
    return rank, natural_key(sample.identity), natural_key(sample.camera), natural_key(path)


def _strip(path: Path, modalities: tuple[str, ...], start: Path) -> dict[str, ImageRef]:
    """The images of a strip: equal parts, side by side."""
    info = image_info(path)
    part, rest = divmod(info.width, len(modalities))
    if rest:
        raise DataError(
            f"{path}: a strip of {info.width}×{info.height} does not divide into {len(modalities)} equal "
            f"images; 768×128 was expected"
        )
    location = relative_posix(path, start)
    boxes: list[Box] = [(i * part, 0, (i + 1) * part, info.height) for i in range(len(modalities))]
    return {name: ImageRef(location, box) for name, box in zip(modalities, boxes, strict=True)}


def _wrong_root(source: Path, layouts: list[Layout], strangers: list[str]) -> str:
    expected = "\n".join(f"  {line.title + ':':18}{row}" for line in layouts for row in line.tree)
    reason = f"\n{len(strangers)} images were seen but do not fit, first: {strangers[0]}" if strangers else ""
    return (
        f"{source}: no images in the expected layout\nexpected below this folder:\n{expected}\n"
        f"found:\n{describe_tree(source)}{reason}\ngive the folder that holds the splits, or another --layout"
    )
