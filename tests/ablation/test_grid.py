"""Grids and seeds as a person writes them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimreid.ablation.grid import parse_axes, parse_axis, points, split_values
from slimreid.ablation.plan import grid_experiments
from slimreid.errors import ConfigError


def test_values_may_be_lists():
    axis = parse_axis("data.modalities=[rgb], [rgb,tir]")
    assert (axis.key, axis.values, axis.name) == ("data.modalities", ("[rgb]", "[rgb,tir]"), "modalities")
    assert split_values("[[0.25,0.5],[0.5,0.2]],[[0.5,0.5]]") == ["[[0.25,0.5],[0.5,0.2]]", "[[0.5,0.5]]"]


@given(st.lists(st.sampled_from(["0.3", "none", "[a,b]", "[[1,2],[3]]", "1e-3"]), min_size=1))
def test_splitting_undoes_joining(values):
    assert split_values(",".join(values)) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model.after_backbone.keep_ratio", "give key=value,value"),
        ("model.after_backbone.keep_ratio=", "give key=value,value"),
        ("model.after_backbone.keep_ratio=0.3,,0.5", "give key=value,value"),
        ("model.after_backbone.keep_ratoi=0.3", "did you mean 'model.after_backbone.keep_ratio'"),
        ("seed=1,2", "give --seeds instead"),
        ("data.manifest=a,b", "cannot be compared"),
        ("optim.lr=1e-3,1e-4,1e-3", "the value 1e-3 twice"),
    ],
)
def test_faulty_axes_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_axis(text)


def test_all_combinations_in_order():
    axes = parse_axes(["model.after_backbone.keep_ratio=0.3,0.5", "model.after_backbone.beta=0.1,0.2"])
    assert [tuple(point.values()) for point in points(axes)] == [
        ("0.3", "0.1"),
        ("0.3", "0.2"),
        ("0.5", "0.1"),
        ("0.5", "0.2"),
    ]
    with pytest.raises(ConfigError, match="given twice"):
        parse_axes(["optim.lr=1e-3", "optim.lr=1e-4"])
    with pytest.raises(ConfigError, match="--grid is missing"):
        parse_axes([])


def test_values_that_differ_in_signs_alone_are_different_experiments():
    axes = parse_axes(["transforms.mean=-0.5,0.5", "data.modalities=[rgb,tir],[rgb-tir]"])
    names = [experiment.name for experiment in grid_experiments(Path("c.yaml"), axes, (0,))]
    assert names == [
        "mean=-0.5_modalities=rgb-tir",
        "mean=-0.5_modalities=rgb-tir+2",
        "mean=0.5_modalities=rgb-tir",
        "mean=0.5_modalities=rgb-tir+2",
    ]
