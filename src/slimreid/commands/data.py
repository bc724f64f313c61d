"""`slimreid data ...`: make, import, check and look at datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slimreid.console import console, table
from slimreid.errors import ConfigError, DataError, SlimReIDError

if TYPE_CHECKING:
    from slimreid.data.check import CheckReport
    from slimreid.data.importing import Imported
    from slimreid.data.manifest import Manifest

SHOWN_PROBLEMS = 40


def synth(
    out: Path,
    identities: int = 64,
    cameras: int = 4,
    images_per_camera: int = 3,
    size: str | None = None,
    seed: int = 0,
    objects: Literal["people", "vehicles"] = "people",
    difficulty: float = 0.5,
    val_identities: float = 0.1,
    workers: int | None = None,
) -> None:
    """Generate a tri-spectral world to train on, as image files with a manifest.

    Args:
        out: New folder; it gets RGBNT201's layout, manifest.csv and the true object masks.
        identities: People or vehicles in the world.
        cameras: Cameras, each with its own place, colours and gain.
        images_per_camera: Images of each identity by each camera.
        size: Height x width in pixels; default 128x64 for people, 64x128 for vehicles.
        seed: The same seed gives the same bytes.
        objects: What the world is populated with.
        difficulty: From 0 (hardly any nuisance) to 1 (all of it strong).
        val_identities: Share of training identities held out for choosing checkpoints; 0 = none.
        workers: Processes; default: one per core.
    """
    from slimreid.data.synthetic import SynthOptions
    from slimreid.data.synthetic.world import make_world

    options = SynthOptions(
        identities=identities,
        cameras=cameras,
        images_per_camera=images_per_camera,
        size=_parse_size(size) if size else None,
        seed=seed,
        objects=objects,
        difficulty=difficulty,
    )
    count = make_world(out, options, val_identities, workers)
    console.print(f"{count} samples of {identities} {objects} written to {out}")
    console.print(f"next: slimreid data check {out}")


def _names(text: str | None) -> list[str] | None:
    """`rgb,tir` or `[rgb, tir]` as a list."""
    return [word.strip() for word in text.strip("[]").split(",")] if text else None


def _parse_size(text: str) -> tuple[int, int]:
    height, _, width = text.lower().partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise ConfigError(f"size must be HEIGHTxWIDTH, for example 128x64, not '{text}'")
    return int(height), int(width)


def import_(
    source: Path,
    layout: str = "auto",
    out: Path | None = None,
    template: str | None = None,
    modalities: str | None = None,
    val_identities: float = 0.1,
    train_identities: str | None = None,
    test_identities: str | None = None,
    query_every: int = 3,
    split: Literal["train", "val", "query", "gallery"] | None = None,
) -> None:
    """Read a dataset folder into a manifest.

    Args:
        source: Folder of the dataset.
        layout: rgbnt201, rgbnt100, msvr310, wmveid863, market1501, folder, or auto to recognise one.
        out: Manifest to write; default: manifest.csv in the source folder.
        template: Path pattern for layout folder, e.g. '{split}/{identity}/{modality}_{camera}_{}'.
        modalities: Spectra to take, e.g. rgb,tir; names of your own are possible.
        val_identities: Share of training identities held out for choosing checkpoints; 0 = none.
        train_identities: For a source without splits: range of sorted identities to train on, e.g. 0:150.
        test_identities: For a source without splits: range of sorted identities to test on, e.g. 600:700.
        query_every: With test_identities: every n-th test image becomes a query.
        split: For a source without splits: put everything into this split.
    """
    from slimreid.data.importing import import_layout
    from slimreid.data.manifest import MANIFEST_NAME, write_manifest
    from slimreid.data.splits import hold_out_val

    target = out or source / MANIFEST_NAME
    imported = import_layout(
        source, layout, relative_to=target.parent, template=template, modalities=_names(modalities)
    )
    manifest = _divide(imported, train_identities, test_identities, query_every, split)
    manifest, moved = hold_out_val(manifest, val_identities)
    write_manifest(manifest, target)
    for note in imported.notes:
        console.print(f"note: {note}", markup=False)
    if moved:
        console.print(f"val: {moved} training identities held out (--val-identities {val_identities:g})")
    elif val_identities and manifest.select("train") and not manifest.select("val"):
        console.print("note: too few identities seen from two places, so no val split was made")
    console.print(f"{len(manifest.samples)} rows ({imported.layout}) written to {target}")
    console.print(f"next: slimreid data check {target}")


def _divide(
    imported: Imported,
    train: str | None,
    test: str | None,
    query_every: int,
    split: Literal["train", "val", "query", "gallery"] | None,
) -> Manifest:
    """Give splits to a source that has none."""
    from dataclasses import replace

    from slimreid.data.splits import split_flat

    ranges = train is not None or test is not None
    if not imported.flat:
        if ranges or split:
            raise ConfigError(
                "this source has splits of its own; leave out --train-identities, "
                "--test-identities and --split"
            )
        return imported.manifest
    if ranges and split:
        raise ConfigError("--split goes without --train-identities and --test-identities")
    if split:
        return imported.manifest.with_samples(replace(s, split=split) for s in imported.manifest.samples)
    if train is None or test is None:
        raise DataError(
            "this source has no splits; say which identities to train and to test on, for example "
            "--train-identities 0:150 --test-identities 600:700, or --split gallery for everything"
        )
    return split_flat(imported.manifest, train, test, query_every)


def check(
    path: Path,
    protocol: Literal["camera", "scene", "none"] | None = None,
    modalities: str | None = None,
    json: bool = False,
) -> int:
    """Check a manifest and every file in it; exit code 1 if there are errors.

    Args:
        path: Manifest, or a folder with manifest.csv.
        protocol: Which gallery images a query must ignore; default: what the manifest says.
        modalities: Path columns to use, e.g. rgb,depth.
        json: Print everything as JSON.
    """
    from slimreid.data.check import check_dataset

    try:
        report = check_dataset(path, protocol, _names(modalities))
    except SlimReIDError as error:
        if not json:
            raise
        _print_json({"ok": False, "error": str(error)})
        return 1
    if json:
        _print_json(report.to_dict())
    else:
        _print_report(report)
    return 1 if report.errors else 0


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _print_report(report: CheckReport) -> None:
    if report.counts:
        console.print(table(list(report.counts[0]), [list(row.values()) for row in report.counts]))
    sizes = [
        (name, ", ".join(f"{size} ({n:,})" for size, n in list(found.items())[:3]), len(found))
        for name, found in report.sizes.items()
    ]
    console.print(table(["modality", "most frequent sizes", "sizes"], sizes))
    console.print(f"protocol: {report.protocol}" + (f"; origin: {report.origin}" if report.origin else ""))
    for level, colour in (("error", "red"), ("warning", "yellow")):
        found = [p for p in report.problems if p.level == level]
        for problem in found[:SHOWN_PROBLEMS]:
            console.print(f"[{colour}]{level}[/] ", end="")
            console.print(str(problem), markup=False, soft_wrap=True)
        if len(found) > SHOWN_PROBLEMS:
            console.print(f"... and {len(found) - SHOWN_PROBLEMS} more {level}s; --json lists all")
    warnings = len(report.problems) - len(report.errors)
    console.print(f"{len(report.errors)} errors, {warnings} warnings")


def simulate(
    manifest: Path, out: Path = Path("simulated"), seed: int = 0, workers: int | None = None
) -> None:
    """Make near infrared and thermal images for a visible-light dataset, from its pixels alone.

    Args:
        manifest: Manifest of an rgb-only dataset.
        out: New folder for the images and their manifest.
        seed: The same seed gives the same bytes.
        workers: Processes; default: one per core.
    """
    from slimreid.data.manifest import read_manifest
    from slimreid.data.simulate_set import simulate_manifest

    result = simulate_manifest(read_manifest(manifest), out, seed, workers)
    console.print(f"{len(result.samples)} rows ({result.origin}) written to {out}")


def sheet(
    manifest: Path,
    out: Path = Path("sheet.png"),
    split: Literal["train", "val", "query", "gallery"] | None = None,
    identities: int = 6,
    images: int = 4,
    seed: int = 0,
    modalities: str | None = None,
) -> None:
    """Draw a contact sheet: a few identities, each seen by several cameras in all spectra.

    Args:
        manifest: Manifest, or a folder with manifest.csv.
        out: Picture (.png, .jpg) or a page to open in a browser (.html).
        split: Take identities of this split only.
        identities: How many identities.
        images: How many samples of each.
        seed: Chooses which.
        modalities: Path columns to use, e.g. rgb,depth.
    """
    from slimreid.data.manifest import read_manifest
    from slimreid.visual.dataset_views import dataset_rows, save_sheet

    for name, value, least in (("identities", identities, 1), ("images", images, 1), ("seed", seed, 0)):
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, not {value}")
    table_ = read_manifest(manifest, _names(modalities))
    rows = dataset_rows(table_, split, identities, images, seed)
    save_sheet(rows, table_.modalities, out, title=f"{manifest}", note=table_.origin)
    console.print(f"contact sheet of {len(rows)} identities: {out}")
