"""Write a manifest for unseen cameras: trained on some cameras, tested on the others and on other people.

    python research/unseen_cameras.py MANIFEST --cameras 1,2,3 --out u/manifest.csv

MANIFEST has splits. Its training rows stay where they are of --cameras, its queries and gallery where they
are not, so a model is measured on people and cameras that it does not know.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from slimreid.cli.console import ending_in_one_line, say
from slimreid.data.manifest import Manifest, read_manifest, write_manifest
from slimreid.errors import ConfigError


def unseen_cameras(manifest: Manifest, trained: Sequence[str]) -> Manifest:
    """The rows of `train` by the cameras `trained`, and those of `query` and `gallery` by all others.

    Raises `ConfigError` for a camera that the manifest does not have, or where a split would be empty.
    """
    known = {sample.camera for sample in manifest.samples}
    for camera in trained:
        if camera not in known:
            raise ConfigError(f"--cameras {camera}: there are {', '.join(sorted(filter(None, known)))}")
    samples = (s for s in manifest.samples if s.split != "val")
    rows = [s for s in samples if (s.split == "train") == (s.camera in trained)]
    found = manifest.with_samples(rows)
    counts = Counter(sample.split for sample in rows)
    for split in ("train", "query", "gallery"):
        if not counts[split]:
            raise ConfigError(f"--cameras {','.join(trained)}: '{split}' would be empty")
    return found


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path, help="manifest with train, query and gallery")
    parser.add_argument("--cameras", required=True, help="cameras to train on, such as 1,2,3")
    parser.add_argument("--out", type=Path, required=True, help="manifest to write")
    options = parser.parse_args(arguments)
    found = unseen_cameras(read_manifest(options.manifest), options.cameras.split(","))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_manifest(found, options.out)
    say(f"{len(found.samples)} rows written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
