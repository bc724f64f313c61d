import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimreid.errors import ConfigError
from slimreid.modalities import (
    DEFAULT_MODALITIES,
    all_subsets,
    canonical,
    declare,
    describe,
    find_modality,
    order,
    parse_subset,
    subset_name,
)


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("RGB", "rgb"),
        ("NI", "nir"),
        ("TI", "tir"),
        ("vis", "rgb"),
        ("ni", "nir"),
        ("th", "tir"),
        ("tir", "tir"),
    ],
)
def test_aliases_of_the_public_datasets(word, name):
    assert canonical(word) == name


def test_unknown_name_suggests_the_nearest():
    assert find_modality("depth") is None
    with pytest.raises(ConfigError, match="did you mean 'tir'"):
        canonical("thermel")


def test_declared_modalities_are_ordered_and_may_be_new():
    assert declare(["depth", "th", "rgb"]) == ("rgb", "tir", "depth")
    assert describe("depth").label == "depth"
    assert not describe("depth").colour


@pytest.mark.parametrize("words", [[], ["rgb", "vis"], ["Depth Map"]])
def test_bad_declarations_are_refused(words):
    with pytest.raises(ConfigError):
        declare(words)


def test_all_subsets_of_three():
    names = [subset_name(s) for s in all_subsets()]
    assert names == ["r", "n", "t", "rn", "rt", "nt", "rnt"]


@given(st.sets(st.sampled_from(DEFAULT_MODALITIES), min_size=1))
def test_subset_names_read_back(subset):
    assert parse_subset(subset_name(subset)) == order(subset)
    assert parse_subset("+".join(sorted(subset))) == order(subset)


def test_colliding_letters_fall_back_to_full_names():
    modalities = ("rgb", "radar")
    assert subset_name(["rgb", "radar"], modalities) == "rgb+radar"
    assert parse_subset("rgb+radar", modalities) == modalities
    assert parse_subset("all", modalities) == modalities


@pytest.mark.parametrize("text", ["", "x", "rr", "rgb+rgb", "rgb,depth"])
def test_bad_subsets_list_the_good_ones(text):
    with pytest.raises(ConfigError, match="rnt"):
        parse_subset(text)
