"""What makes two runs the same: the options that decide a result, and the rows they were trained on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from slimreid.config import Config
from slimreid.data.manifest import Manifest
from slimreid.json_files import json_digest

FREE_KEYS = frozenset(
    {
        "data.manifest",  # its content is compared instead
        "data.workers",
        "data.cache",
        "data.cache_dir",
        "model.pretrained",  # read at the very beginning only
        "train.init_from",  # the same
        "train.teacher",  # its weights are compared instead
        "train.save_every",
        "train.watch_selection",  # looks on only
        "train.keep_last",
    }
)
"""Options that may change between start and resume; the result stays the same to the last bit."""

ROUNDING_KEYS = frozenset({"train.threads", "train.compile", "model.grad_checkpointing", "batch.test"})
"""Options that may change too, with a warning: sums are then rounded differently."""

BY_NAME = ("model.pretrained", "train.init_from", "train.teacher")
"""Options that name files whose content decides a result, wherever they lie."""

WITHOUT_EFFECT = (FREE_KEYS - set(BY_NAME)) | ROUNDING_KEYS | {"seed"}
"""Options that do not change a result by more than rounding, or that are compared otherwise: the rows of the
manifest by their fingerprint, seeds by themselves."""


def flat_options(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested options as one dict of dotted keys, tuples as lists."""
    flat: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping) and not f"{prefix}{key}".startswith("data.windows"):
            flat |= flat_options(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.loads(json.dumps(value))
    return flat


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """The keys in which two flat dicts of options differ -> one line that says how.

    An option that the version which wrote `old` did not have counts as its default.
    """
    defaults = flat_options(asdict(Config()))
    before = {key: defaults.get(key) for key in new} | dict(old)
    return {
        key: f"{key}: {before.get(key)!r} before, {new.get(key)!r} now"
        for key in sorted({*before, *new})
        if before.get(key) != new.get(key)
    }


def deciding_options(config: Config) -> dict[str, Any]:
    """The options that decide a result, {dotted key: value}, without the seed and without places of files.

    Weights that a run begins from or follows count by the name of their file or folder, in which the run's
    own seed is left out: `base-seed3` is `base-seed` for a run with seed 3.
    """
    flat = flat_options(asdict(config))
    options = {key: value for key, value in flat.items() if key not in WITHOUT_EFFECT}
    if config.train.weigh_branches:  # a result of the run then, not an option
        del options["model.second_scale"]
    for key in BY_NAME:
        place = options.get(key)
        if place and "://" not in place:
            name = re.split(r"[\\/]", place.rstrip("\\/"))[-1]
            options[key] = re.sub(rf"seed{flat['seed']}(?!\d)", "seed", name)
    return options


def dataset_fingerprint(manifest: Manifest) -> str:
    """SHA-256 over everything a manifest says that a run depends on, wherever it lies."""
    rows = [
        [s.split, s.identity, s.camera, s.scene]
        + [[name, image.path, image.box, image.window] for name, image in sorted(s.images.items())]
        for s in manifest.samples
    ]
    return json_digest([manifest.modalities, manifest.protocol, rows])
