from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimreid.data.manifest import ImageRef, LabelEncoder, Manifest, Sample
from slimreid.data.splits import hold_out_val, matchable_identities, split_flat
from slimreid.errors import ConfigError, DataError


def make(identities=10, cameras=2, images=2, protocol="camera", split="train"):
    samples = [
        Sample(split, str(i), str(c), str(c), {"rgb": ImageRef(f"{i}_{c}_{n}.jpg")})
        for i in range(identities)
        for c in range(cameras)
        for n in range(images)
    ]
    return Manifest(tuple(samples), ("rgb",), Path(), protocol)


@given(st.integers(4, 40), st.floats(0.01, 0.9), st.integers(0, 5))
def test_val_takes_whole_identities_and_loses_nothing(identities, share, seed):
    manifest = make(identities)
    held, moved = hold_out_val(manifest, share, seed)
    train, val = ({s.identity for s in held.select(split)} for split in ("train", "val"))
    assert not train & val
    assert len(val) == moved >= 2
    assert len(train) >= 2
    assert sorted(s.images["rgb"].path for s in held.samples) == sorted(
        s.images["rgb"].path for s in manifest.samples
    )
    assert hold_out_val(manifest, share, seed) == (held, moved), "the same choice every time"


def test_val_needs_two_places_under_the_protocol():
    lonely = make(10, cameras=1)
    assert hold_out_val(lonely, 0.2)[1] == 0
    assert hold_out_val(make(10, cameras=1, protocol="none"), 0.2)[1] == 2
    mixed = lonely.with_samples(
        [*lonely.samples, *(Sample("train", str(i), "9", "9", {"rgb": ImageRef(f"{i}.jpg")}) for i in (3, 5))]
    )
    assert {s.identity for s in hold_out_val(mixed, 0.5)[0].select("val")} == {"3", "5"}


def test_val_is_off_at_zero_and_respects_an_existing_one():
    manifest = make()
    assert hold_out_val(manifest, 0.0) == (manifest, 0)
    ready = manifest.with_samples([*manifest.samples, *make(2, split="val").samples])
    assert hold_out_val(ready, 0.5) == (ready, 0)
    with pytest.raises(ConfigError, match="val_identities"):
        hold_out_val(manifest, 1.0)


def test_matchable_identities():
    assert matchable_identities(make(3, cameras=2, images=1).samples, "camera") == {"0", "1", "2"}
    assert matchable_identities(make(3, cameras=1, images=2).samples, "camera") == set()
    assert matchable_identities(make(3, cameras=1, images=2).samples, "none") == {"0", "1", "2"}


def test_flat_source_is_divided_by_sorted_identities():
    manifest = split_flat(make(12, cameras=3, images=1), "0:4", "10:12", query_every=3)
    assert {s.identity for s in manifest.select("train")} == {"0", "1", "2", "3"}
    assert {s.identity for s in manifest.samples if s.split != "train"} == {"10", "11"}
    assert (len(manifest.select("query")), len(manifest.select("gallery"))) == (2, 4)
    several = split_flat(make(12, cameras=3, images=1), "0:2,11:", "5:6")
    assert {s.identity for s in several.select("train")} == {"0", "1", "11"}


@pytest.mark.parametrize(
    ("train", "test", "error"),
    [
        ("0:4", "3:6", ConfigError),
        ("4", "5:6", ConfigError),
        ("a:b", "5:6", ConfigError),
        ("0:4", "9:99", DataError),
        ("0:2,4:6", "5:7", ConfigError),
        ("0:2,", "5:7", ConfigError),
    ],
)
def test_bad_ranges(train, test, error):
    with pytest.raises(error):
        split_flat(make(12), train, test)


def test_codebook_numbers_training_names_first():
    train = [Sample("train", i, c, "", {"rgb": ImageRef("x")}) for i, c in (("b", "10"), ("c", "2"))]
    test = [Sample("query", "a", "1", "s", {"rgb": ImageRef("x")})]
    book = LabelEncoder.from_manifest(Manifest((*test, *train), ("rgb",), Path()))
    assert book.identity == {"b": 0, "c": 1, "a": 2}
    assert book.camera == {"2": 0, "10": 1, "1": 2}
    assert (book.num_classes, book.num_cameras) == (2, 2)
    known = LabelEncoder.from_manifest(Manifest(tuple(test), ("rgb",), Path()), cameras=("7", "1"))
    assert known.camera == {"7": 0, "1": 1}
