"""Batches read ahead by threads: the same for any number of them, and those of the loader of training."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from slimreid.data.label_encoder import LabelEncoder
from slimreid.data.loader import eval_loader
from slimreid.data.manifest import SPLITS, read_manifest
from slimreid.data.sample_reader import BatchReader
from slimreid.errors import DataError
from support.runs import make_config


def reader(manifest, workers=0, on_error="raise"):
    config = make_config(manifest, "batch.test=5")
    config = replace(config, data=replace(config.data, workers=workers, on_error=on_error))
    opened = read_manifest(manifest)
    return BatchReader(config, opened, LabelEncoder.from_manifest(opened)), config, opened


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_are_those_of_the_loader_to_the_bit(small_set, workers):
    ours, config, manifest = reader(small_set, workers)
    theirs = list(eval_loader(replace(config, data=replace(config.data, workers=0)), SPLITS, manifest))
    found = list(ours)
    assert len(found) == len(ours) == len(theirs) > 2
    for batch, expected in zip(found, theirs, strict=True):
        images = expected.to_images()
        assert batch.modalities == images.modalities
        for name in batch.modalities:
            assert batch.images[name].tobytes() == images.images[name].tobytes()
        for name in ("present", "camera", "index"):
            np.testing.assert_array_equal(getattr(batch, name), getattr(images, name))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file_stops_or_is_left_out(small_set, workers, caplog):
    manifest = read_manifest(small_set)
    broken = 7
    next(iter(manifest.file(i) for i in manifest.samples[broken].images.values())).write_bytes(b"")
    same = [i for i, s in enumerate(manifest.samples) if s.images == manifest.samples[broken].images]
    ours, *_ = reader(small_set, workers)
    with pytest.raises(DataError, match=r"row \d+: .*zero bytes.*--skip-broken"):
        list(ours)
    ours, *_ = reader(small_set, workers, "skip")
    rows = [row for batch in ours for row in batch.index.tolist()]
    assert rows == [i for i in range(len(manifest.samples)) if i not in same]
    assert sorted(ours.dropped) == same
    assert "sample dropped" in caplog.text


def test_threads_end_when_nobody_reads_on(small_set):
    ours, *_ = reader(small_set, 2)
    batches = iter(ours)
    next(batches)
    batches.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("reader")]
