"""A picture of all looks: what research/other_looks.py shows to a model.

    slimreid data synth w --identities 12 --difficulty 0
    python research/look_sheet.py w --out docs/images/looks.jpg

Takes samples of different people and cameras from the test set of a manifest, in visible light.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import looks
from look_sets import open_source, sample_key
from PIL import Image

from slimreid.cli.console import ending_in_one_line, say
from slimreid.data.images.decode import read_images
from slimreid.data.manifest import Manifest, Sample
from slimreid.modalities import RGB
from slimreid.visual.datasets.contact_sheet import ContactRow, draw_contact_sheet

LOOKS_PER_ROW = 11


def different_people(samples: Sequence[Sample], count: int) -> list[Sample]:
    """One sample each of `count` people, the cameras in turn."""
    cameras = sorted({s.camera for s in samples})
    found: dict[str, Sample] = {}
    for sample in samples:
        if sample.camera == cameras[len(found) % len(cameras)]:
            found.setdefault(sample.identity, sample)
    return list(islice(found.values(), count))


def draw(manifest: Manifest, samples: Sequence[Sample]) -> Image.Image:
    """One strip of looks below the other, a row per sample in each."""
    names = list(looks.LOOKS)
    parts = []
    for start in range(0, len(names), LOOKS_PER_ROW):
        shown = names[start : start + LOOKS_PER_ROW]
        rows = []
        for sample in samples:
            image = read_images(sample.images, manifest.root)[RGB]
            facts = {"modality": RGB, "camera": sample.camera, "sample": sample_key(sample)}
            cells = {name: Image.fromarray(looks.show(name, image, **facts)) for name in shown}
            rows.append(ContactRow(f"camera {sample.camera}", [cells]))
        parts.append(draw_contact_sheet(rows, shown))
    sheet = Image.new("RGB", (max(p.width for p in parts), sum(p.height for p in parts)), "white")
    for number, part in enumerate(parts):
        sheet.paste(part, (0, sum(p.height for p in parts[:number])))
    return sheet


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="the picture, .jpg or .png")
    parser.add_argument("--samples", type=int, default=2)
    options = parser.parse_args(arguments)
    manifest = open_source(options.data).manifest
    draw(manifest, different_people(manifest.samples, options.samples)).save(options.out, quality=88)
    say(f"written: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
