"""Which modality a path names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimreid.data.importing.modality_names import NamedPath, read_name
from slimreid.errors import DataError
from slimreid.modalities import MODALITIES

WORDS = [(word, m.name) for m in MODALITIES.values() for word in (m.name, *m.aliases)]
stems = st.text("abcxyz0123456789_-", min_size=1, max_size=8).filter(
    lambda stem: stem.strip("_-") == stem and read_name(f"{stem}.png").modality is None
)
styles = st.sampled_from([str.lower, str.upper, str.title])


@given(
    stems, st.sampled_from(WORDS), styles, st.sampled_from("_-. "), st.sampled_from(["", "day 1/", "a/b/"])
)
def test_every_name_and_alias_is_known_in_folders_and_names(stem, word, style, separator, folder):
    text, modality = style(word[0]), word[1]
    for path in (
        f"{folder}{stem}{separator}{text}.png",
        f"{folder}{text}/{stem}.jpg",
        f"{text}/{folder}{stem}.jpg",
    ):
        assert read_name(path) == NamedPath(modality, f"{folder}{stem}")
    if len(text) > 2:
        assert read_name(f"{folder}{text}{separator}{stem}.png") == NamedPath(modality, f"{folder}{stem}")
    assert read_name(f"{folder}{stem}/{text}.png") == NamedPath(modality, f"{folder}{stem}")
    both = f"{folder}{text}/{stem}{separator}{text}.png"
    assert read_name(both) == NamedPath(modality, f"{folder}{stem}"), "said twice is said once"


@pytest.mark.parametrize(
    ("path", "modality", "key"),
    [
        ("a_thermal.png", "tir", "a"),
        ("a_th.png", "tir", "a"),
        ("a_TI.png", "tir", "a"),
        ("a_vis.png", "rgb", "a"),
        ("x/near_infrared/1.png", "nir", "x/1"),
        ("x/1_near-infrared.png", "nir", "x/1"),
        ("earth.png", None, "earth"),
        ("th_1.png", None, "th_1"),
        ("tirol/1.png", None, "tirol/1"),
        ("0001_c1s1_01.jpg", None, "0001_c1s1_01"),
    ],
)
def test_names(path, modality, key):
    assert read_name(path) == NamedPath(modality, key)


def test_declared_modalities_count_too():
    assert read_name("a_depth.png") == NamedPath(None, "a_depth")
    assert read_name("a_Depth.png", ["rgb", "depth"]) == NamedPath("depth", "a")


def test_what_may_mean_two_modalities_is_not_guessed():
    assert read_name("a_IR.png") == NamedPath(None, "a", "IR")
    assert read_name("tir/a_ir.png") == NamedPath("tir", "a")
    with pytest.raises(DataError, match=r"rgb/a_th\.png: the path names rgb and tir"):
        read_name("rgb/a_th.png")
