"""Finding samples by name and number."""

from __future__ import annotations

import pytest

from slimreid.data.lookup import find_sample
from slimreid.data.manifest import read_manifest
from slimreid.errors import DataError


def found(manifest, text):
    sample = manifest.samples[find_sample(manifest, text)]
    return sample.split, sample.images["rgb"].path


def test_names_paths_and_numbers(small_set):
    manifest = read_manifest(small_set)
    for text in ("10_2_1", "10_2_1.png", "nir/10_2_1.png", "tir/10_2_1", "tir\\10_2_1.png", " 10_2_1 "):
        assert found(manifest, text) == ("query", "rgb/10_2_1.png"), text
    assert found(manifest, "0_1_0") == ("train", "rgb/0_1_0.png")
    queries = [s.images["rgb"].path for s in manifest.select("query")]
    assert found(manifest, "7") == ("query", queries[7])
    assert found(manifest, "gallery:7") == ("gallery", queries[7])
    assert found(manifest, "train:0") == ("train", "rgb/0_1_0.png")


def test_unknown_samples_name_near_ones(small_set):
    manifest = read_manifest(small_set)
    with pytest.raises(DataError, match=r"no sample '10_2_9' in .*; near it: 10_2_[01]"):
        find_sample(manifest, "10_2_9")
    with pytest.raises(DataError, match="give a file's name, the number of a query"):
        find_sample(manifest, "elephant")
    with pytest.raises(DataError, match="no 12 among the query rows; they are 0 to 11"):
        find_sample(manifest, "12")
    with pytest.raises(DataError, match="no 0 among the val rows; there are none"):
        find_sample(manifest, "val:0")


def test_a_name_that_means_several_is_refused(write_image, write_csv, tmp_path):
    for folder in ("a", "b"):
        write_image(tmp_path / folder / "0.png")
        write_image(tmp_path / folder / "7.png")
    rows = ("train,1,1,a/0.png", "gallery,1,2,b/0.png", "gallery,2,1,a/7.png", "query,2,1,a/7.png")
    manifest = read_manifest(write_csv(tmp_path / "manifest.csv", "split,identity,camera,rgb", *rows))
    with pytest.raises(
        DataError, match=r"'0' means 2 samples; give the path of one of them: b/0\.png, a/0\.png"
    ):
        find_sample(manifest, "0")
    assert manifest.samples[find_sample(manifest, "7")].split == "query", "a name comes before a number"
    assert manifest.samples[find_sample(manifest, "a/0")].split == "train"


def test_without_queries_all_rows_are_numbered(write_image, write_csv, tmp_path):
    write_image(tmp_path / "x.png")
    manifest = read_manifest(
        write_csv(tmp_path / "manifest.csv", "split,identity,camera,rgb", "train,1,1,x.png")
    )
    assert find_sample(manifest, "0") == 0
