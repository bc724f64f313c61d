"""`slimreid data import` and `check`: from a folder to a manifest that is right."""

from __future__ import annotations

import shlex
from dataclasses import replace

from slimreid.cli.console import console, print_json, say, table
from slimreid.cli.options.data import CheckOptions, ImportOptions
from slimreid.data.check import CheckReport, check_dataset
from slimreid.data.importing.datasets import Imported, import_layout
from slimreid.data.manifest import MANIFEST_NAME, Manifest, write_manifest
from slimreid.data.splits import hold_out_val, map_cameras, split_flat
from slimreid.errors import ConfigError, SlimReIDError

SHOWN_PROBLEMS = 40


def import_(options: ImportOptions) -> None:
    """Read a dataset folder into a manifest."""
    source, share = options.source, options.val_identities
    target = options.out or source / MANIFEST_NAME
    imported = import_layout(
        source,
        options.layout,
        relative_to=target.parent,
        template=options.template,
        modalities=options.modalities,
    )
    manifest = _divide(imported, options)
    if options.camera_map:
        manifest = map_cameras(manifest, options.camera_map)
    manifest, moved = hold_out_val(manifest, share)
    changed = write_manifest(manifest, target, options.overwrite)
    for note in imported.notes:
        say(f"note: {note}")
    if moved:
        say(f"val: {moved} training identities held out (--val-identities {share:g})")
    elif share and manifest.select("train") and not manifest.select("val"):
        seen = "twice" if manifest.protocol == "none" else f"in two {manifest.protocol}s"
        say(f"note: too few identities seen {seen}, so no val split was made")
    where = f"written to {target}" if changed else f"in {target}, unchanged"
    say(f"{len(manifest.samples)} rows ({imported.layout}) {where}")
    say(f"next: slimreid data check {shlex.quote(str(target))}")


def _divide(imported: Imported, options: ImportOptions) -> Manifest:
    """Give splits to a source that has none."""
    train, test, split = options.train_identities, options.test_identities, options.split
    ranges = train is not None or test is not None
    if not imported.flat:
        if ranges or split:
            raise ConfigError(
                "this source has splits of its own; leave out --train-identities, "
                "--test-identities and --split"
            )
        return imported.manifest
    if ranges and split:
        raise ConfigError("--split cannot be used with --train-identities and --test-identities")
    if split:
        return imported.manifest.with_samples(replace(s, split=split) for s in imported.manifest.samples)
    if not ranges:
        say(
            "note: the source has no splits, so everything is for training; for a test set use, for example, "
            "--train-identities 0:150 --test-identities 150:200"
        )
        return imported.manifest
    return split_flat(imported.manifest, train, test, options.query_every)


def check(options: CheckOptions) -> int:
    """Check a manifest and every file in it; exit code 1 if there are errors."""
    try:
        report = check_dataset(options.data, options.protocol, options.modalities)
    except SlimReIDError as error:
        if not options.json:
            raise
        print_json({"ok": False, "error": str(error)})
        return 1
    if options.json:
        print_json(report.to_dict())
    else:
        _print_report(report)
    return 1 if report.errors else 0


def _print_report(report: CheckReport) -> None:
    if report.counts:
        console.print(table(list(report.counts[0]), [list(row.values()) for row in report.counts]))
    sizes = [
        (name, ", ".join(f"{size} ({n:,})" for size, n in list(found.items())[:3]), len(found))
        for name, found in report.sizes.items()
    ]
    console.print(table(["modality", "most frequent sizes", "sizes"], sizes))
    say(f"protocol: {report.protocol}" + (f"; origin: {report.origin}" if report.origin else ""))
    for level, colour in (("error", "red"), ("warning", "yellow")):
        found = [group for group in report.groups if group.level == level]
        for problem in found[:SHOWN_PROBLEMS]:
            console.print(f"{level} ", style=colour, end="")
            say(str(problem))
        if len(found) > SHOWN_PROBLEMS:
            say(f"... and {len(found) - SHOWN_PROBLEMS} more {level}s; --json lists all")
    warnings = len(report.problems) - len(report.errors)
    say(f"{len(report.errors)} errors, {warnings} warnings")
