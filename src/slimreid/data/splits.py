"""Dividing identities over splits: a validation part of train, and sources that have no splits at all."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from slimreid.data.manifest import SPLITS, Manifest, Sample
from slimreid.errors import ConfigError, DataError
from slimreid.files import natural_key


def hold_out_val(manifest: Manifest, share: float = 0.1, seed: int = 0) -> tuple[Manifest, int]:
    """Move `share` of the training identities to `val`, so that no checkpoint is chosen on the test set.

    Only identities that the protocol can match (seen by at least two cameras, or in two scenes) are
    moved; which of them depends on `seed` and their names alone. At least two identities go, so that
    there is somebody to be confused with, and at least two stay. A manifest that has a `val` split
    already is left as it is. Returns the new manifest and the number of identities moved (0 where it
    is not possible). Raises `ConfigError` for a share outside [0, 1).
    """
    check_share(share)
    train = manifest.select("train")
    identities = {s.identity for s in train}
    if share == 0 or manifest.select("val"):
        return manifest, 0
    eligible = matchable_identities(train, manifest.protocol)
    count = min(max(2, round(share * len(identities))), len(eligible), len(identities) - 2)
    if count < 2:
        return manifest, 0
    draw = {name: hashlib.sha256(f"{seed}\0{name}".encode()).digest() for name in eligible}
    chosen = set(sorted(eligible, key=lambda name: draw[name])[:count])
    samples = [
        replace(s, split="val") if s.split == "train" and s.identity in chosen else s
        for s in manifest.samples
    ]
    samples.sort(key=lambda s: SPLITS.index(s.split))  # stable: the order within a split stays
    return manifest.with_samples(samples), count


def check_share(share: float) -> None:
    """Raise `ConfigError` for a share of identities outside [0, 1)."""
    if not 0 <= share < 1:
        raise ConfigError(f"val_identities must be a share in [0, 1), not {share}")


def matchable_identities(samples: Sequence[Sample], protocol: str) -> set[str]:
    """Identities with a possible match: seen in two places under `protocol`, or just twice under `none`."""
    places: dict[str, set[object]] = defaultdict(set)
    for number, sample in enumerate(samples):
        places[sample.identity].add(place(sample, protocol) if protocol != "none" else number)
    return {identity for identity, seen in places.items() if len(seen) > 1}


def place(sample: Sample, protocol: str) -> str:
    """What the protocol compares: the camera or the scene of a sample ('' under `none`)."""
    return {"camera": sample.camera, "scene": sample.scene, "none": ""}[protocol]


def split_flat(manifest: Manifest, train: str | None, test: str | None, query_every: int = 3) -> Manifest:
    """Divide a source without splits by ranges of its sorted identities, e.g. `0:150` and `600:700`.

    Several ranges are joined by commas: `0:600,700:751`. Every `query_every`-th test image (in order) becomes
    a query, the others the gallery; identities in neither range are left out, and a range may be None.
    Raises `ConfigError` for bad or overlapping ranges.
    """
    if query_every < 2:
        raise ConfigError(f"query_every must be at least 2, not {query_every}")
    names = sorted({s.identity for s in manifest.samples}, key=natural_key)
    for_train, for_test = (
        {name for part in (text or "0:0").split(",") for name in names[_range(key, part, len(names))]}
        for key, text in (("train", train), ("test", test))
    )
    if for_train & for_test:
        raise ConfigError(f"train_identities {train} and test_identities {test} overlap")
    samples: list[Sample] = []
    tests = 0
    for sample in manifest.samples:
        if sample.identity in for_train:
            samples.append(replace(sample, split="train"))
        elif sample.identity in for_test:
            samples.append(replace(sample, split="gallery" if tests % query_every else "query"))
            tests += 1
    if not samples:
        raise ConfigError(
            "train_identities and test_identities select no identity; give at least one of them"
        )
    samples.sort(key=lambda s: SPLITS.index(s.split))
    return manifest.with_samples(samples)


def map_cameras(manifest: Manifest, rules: Sequence[str]) -> Manifest:
    """Rename cameras by rules such as `1,2=A`: what the paths call 1 or 2 is camera A.

    Raises `ConfigError` for a rule that cannot be read, `DataError` for a camera that no rule names.
    """
    names: dict[str, str] = {}
    for rule in rules:
        old, sign, new = rule.rpartition("=")
        for word in old.split(","):
            if not sign or not word.strip() or not new.strip() or word.strip() in names:
                raise ConfigError(f"'{rule}' is not a camera rule, or repeats one; write 1,2=A 3,4=B")
            names[word.strip()] = new.strip()
    unknown = sorted({s.camera for s in manifest.samples} - names.keys(), key=natural_key)
    if unknown:
        raise DataError(f"no rule names camera '{unknown[0]}' of the paths; add '{unknown[0]}=...'")
    return manifest.with_samples(replace(s, camera=names[s.camera]) for s in manifest.samples)


def _range(key: str, text: str, count: int) -> slice:
    start, colon, stop = text.partition(":")
    try:
        first, last = int(start or 0), int(stop) if stop else count
    except ValueError:
        first, last, colon = 0, 0, ""
    if not colon or not 0 <= first <= last:
        raise ConfigError(f"{key}_identities must be START:STOP, for example 0:150, not '{text}'")
    if last > count:
        raise DataError(f"{key}_identities {text}: the source has only {count} identities")
    return slice(first, last)
