"""Batches of numpy arrays: subsets of modalities, groups of samples, and the way to tensors and back."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from slimreid.data.batches import ModalBatch
from slimreid.data.image_batch import join_samples

NAMES = ("rgb", "nir", "tir")
SIZE = (4, 2)
SAMPLES = st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=7)


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
