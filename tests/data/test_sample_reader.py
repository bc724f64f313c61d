"""Batches read ahead by threads: the same for any number of them, and those of the loader of training."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slimreid.data.batches import ModalBatch
from slimreid.data.loader import eval_loader
from slimreid.data.manifest import SPLITS, LabelEncoder, read_manifest
from slimreid.data.sample_reader import BatchReader, join_samples, normalise
from slimreid.errors import DataError
from support.runs import make_config

NAMES = ("rgb", "nir", "tir")
SIZE = (4, 2)
SAMPLES = st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=7)


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


def test_normalise():
    x = np.array([0, 255, 51], np.uint8)[:, None, None]
    np.testing.assert_allclose(normalise(x, 0.5, 0.5).ravel(), [-1.0, 1.0, -0.6], atol=1e-6)
    np.testing.assert_allclose(normalise(x, 0.2, 0.4).ravel(), [-0.5, 2.0, 0.0], atol=1e-6)


@given(st.floats(0, 1), st.floats(0.05, 2))
def test_numbers_are_those_of_torch_to_the_bit(mean, std):
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16).repeat(3, axis=0)
    expected = torch.from_numpy(levels).float().mul_(1 / (255 * std)).sub_(mean / std)
    for image in (levels, levels.transpose(1, 2, 0).copy().transpose(2, 0, 1)):
        found = normalise(image, mean, std)
        assert found.flags.c_contiguous
        assert found.tobytes() == expected.numpy().tobytes()


def make(having):
    """Sample b has the modalities `having[b]`; its images hold b and the number of the modality."""
    samples = [
        {n: np.full((3, *SIZE), 10 * b + NAMES.index(n), np.float32) for n in x} for b, x in enumerate(having)
    ]
    return join_samples(samples, NAMES, SIZE, [100 + b for b in range(len(having))], range(len(having)))


@given(SAMPLES)
def test_samples_are_where_they_belong(having):
    batch = make(having)
    assert batch.modalities == NAMES
    for b, present in enumerate(having):
        for m, name in enumerate(NAMES):
            assert batch.present[b, m] == (name in present)
            assert (batch.images[name][b] == (10 * b + m if name in present else 0)).all()


@given(SAMPLES, st.sets(st.sampled_from((*NAMES, "depth"))))
def test_only_some_modalities(having, subset):
    shown = make(having).only(tuple(subset))
    rows = [b for b, present in enumerate(having) if present & subset]
    if not rows:
        assert shown is None
        return
    assert shown.modalities == tuple(n for n in NAMES if n in subset)
    assert shown.index.tolist() == rows
    assert shown.camera.tolist() == [100 + b for b in rows]
    for at, b in enumerate(rows):
        for m, name in enumerate(shown.modalities):
            assert shown.present[at, m] == (name in having[b])
            assert (shown.images[name][at] == make(having).images[name][b]).all()


@given(SAMPLES)
def test_groups_have_every_sample_once(having):
    found = list(make(having).by_subset())
    assert sorted(row for _, rows in found for row in rows.tolist()) == list(range(len(having)))
    assert len({subset for subset, _ in found}) == len(found)
    for subset, rows in found:
        assert all(having[row] == set(subset) for row in rows.tolist())


def test_nothing_is_copied_where_nothing_is_left_out():
    batch = make([set(NAMES)] * 3)
    assert batch.only(("rgb", "tir")).images["tir"].base is batch.images["tir"]


def test_presence_of_unknown_modalities():
    assert make([{"nir"}]).presence_of(("depth", "nir")).tolist() == [[False, True]]


def test_to_tensors_and_back():
    batch = make([{"rgb"}, {"nir", "tir"}])
    tensors = ModalBatch.from_images(batch)
    assert torch.equal(tensors.images["tir"], torch.from_numpy(batch.images["tir"]))
    again = tensors.to_images()
    for name in ("present", "camera", "index"):
        np.testing.assert_array_equal(getattr(again, name), getattr(batch, name))
    assert list(again.images) == list(NAMES)


def test_a_batch_without_samples():
    assert len(make([])) == 0
