"""A synthetic world as a dataset: images, a manifest, and identities held out for choosing checkpoints."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from slimreid.data.importing.datasets import import_layout
from slimreid.data.manifest import MANIFEST_NAME, write_manifest
from slimreid.data.splits import check_share, hold_out_val
from slimreid.data.synthetic.generate import DESCRIPTION, write_world
from slimreid.data.synthetic.options import SynthOptions
from slimreid.files import new_folder

VAL_IDENTITIES = 0.1
"""Share of the training identities that is held out, unless another is given."""


def make_world(
    out: Path, options: SynthOptions, val_identities: float = VAL_IDENTITIES, workers: int | None = None
) -> int:
    """Generate a world below `out` with its manifest and return the number of samples.

    The folder appears when it is complete. Raises `ConfigError` for a share out of range and `DataError`
    when `out` exists and is not empty.
    """
    check_share(val_identities)
    with new_folder(out) as folder:
        count = write_world(folder, options, workers)
        manifest, _ = hold_out_val(import_layout(folder, "rgbnt201").manifest, val_identities)
        write_manifest(replace(manifest, origin=f"synthetic {options.objects}"), folder / MANIFEST_NAME)
    return count


def is_world(folder: Path, options: SynthOptions) -> bool:
    """Whether `folder` holds a complete world that was made with exactly these options."""
    if not (folder / MANIFEST_NAME).is_file():
        return False
    try:
        made = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))["options"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(made == json.loads(json.dumps(asdict(options))))
