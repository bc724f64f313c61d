"""Writing a manifest file."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from slimreid.data.manifest.columns import REQUIRED
from slimreid.data.manifest.samples import Manifest
from slimreid.files import write_new


def write_manifest(manifest: Manifest, path: Path, overwrite: bool = True) -> bool:
    """Write a manifest atomically; False if the file holds it already.

    Columns that are empty throughout are left out (but `scene` stays). Raises `DataError` where another
    manifest would be replaced and `overwrite` is False.
    """
    return write_new(path, format_manifest(manifest).encode("utf-8"), overwrite)


def format_manifest(manifest: Manifest) -> str:
    """The text of a manifest file."""
    with_box = {m for s in manifest.samples for m, image in s.images.items() if image.box}
    with_window = {m for s in manifest.samples for m, image in s.images.items() if image.window}
    extras = list(dict.fromkeys(name for s in manifest.samples for name in s.extras))
    header = [*REQUIRED, "scene"]
    for name in manifest.modalities:
        header += [name, *[f"{name}_box"] * (name in with_box), *[f"{name}_window"] * (name in with_window)]
    header += [*["protocol"] * (manifest.protocol != "camera"), *["origin"] * bool(manifest.origin), *extras]
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, header, restval="", lineterminator="\n")
    writer.writeheader()
    for sample in manifest.samples:
        cells = {
            "split": sample.split,
            "identity": sample.identity,
            "camera": sample.camera,
            "scene": sample.scene,
            **sample.extras,
        }
        for name, image in sample.images.items():
            cells[name] = image.path
            if image.box:
                cells[f"{name}_box"] = " ".join(map(str, image.box))
            if image.window:
                cells[f"{name}_window"] = " ".join(f"{v:.10g}" for v in image.window)
        constants = {"protocol": manifest.protocol, "origin": manifest.origin}
        cells |= {name: value for name, value in constants.items() if name in header}
        writer.writerow(cells)
    return buffer.getvalue()
