"""Heat maps have every number in its cell."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from slimreid.errors import ConfigError, DataError
from slimreid.visual.plots.heatmap import ink_on, missing_heatmap
from slimreid.visual.style import DARK, LIGHT

NAMES = ("r", "n", "rn")
MATRIX = np.array([[0.1, 0.2, 0.3], [0.04, np.nan, 0.5], [0.61, 0.7, 0.987]])


def cells(axes):
    return {(round(t.get_position()[1]), round(t.get_position()[0])): t for t in axes.texts}


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_numbers_stand_in_their_cells(look):
    axes = missing_heatmap({"run": MATRIX}, NAMES, look, chance=0.05).axes[0]
    found = cells(axes)
    wanted = {(r, c): f"{100 * MATRIX[r, c]:.1f}" for r in range(3) for c in range(3) if (r, c) != (1, 1)}
    assert {place: text.get_text() for place, text in found.items()} == wanted
    assert [t.get_text() for t in axes.get_xticklabels()] == list(NAMES)
    assert [t.get_text() for t in axes.get_yticklabels()] == list(NAMES)
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("query has", "gallery has")
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the first row is at the top"


def test_what_was_not_measured_is_hatched():
    axes = missing_heatmap({"run": MATRIX}, NAMES).axes[0]
    hatched = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_hatch()]
    assert [(round(p.get_x() + 0.5), round(p.get_y() + 0.5)) for p in hatched] == [(1, 1)]


def test_chance_is_marked_on_the_bar_and_in_cells():
    figure = missing_heatmap({"run": MATRIX}, NAMES, chance=0.05)
    axes, bar = figure.axes
    assert bar.lines[0].get_ydata()[0] == pytest.approx(5)
    assert "chance 5.0" in [t.get_text() for t in bar.texts]
    assert bar.get_ylim()[0] <= 5
    slanted = [place for place, text in cells(axes).items() if text.get_style() == "italic"]
    assert slanted == [(1, 0)], "only 4.0 does not beat 5.0"
    framed = [p for p in axes.patches if not p.get_fill()]
    assert [(round(p.get_x() + 0.4), round(p.get_y() + 0.4)) for p in framed] == [(0, 1)]


def test_every_cell_can_have_its_own_chance():
    chances = np.full((3, 3), 0.05)
    chances[0, 1], chances[1, 1] = 0.25, np.nan
    axes, bar = missing_heatmap({"run": MATRIX}, NAMES, chance=chances).axes
    assert "chance 5.0 to 25.0" in [t.get_text() for t in bar.texts]
    (band,) = [p for p in bar.patches if isinstance(p, Rectangle) and p.get_height() == pytest.approx(20)]
    assert band.get_y() == pytest.approx(5)
    slanted = {place for place, text in cells(axes).items() if text.get_style() == "italic"}
    assert slanted == {(0, 1), (1, 0)}, "20.0 does not beat 25.0 there, though 10.0 beats 5.0 elsewhere"


def test_chances_that_print_alike_are_one():
    chances = np.full((3, 3), 0.05)
    chances[2, 0] = 0.0504
    bar = missing_heatmap({"run": MATRIX}, NAMES, chance=chances).axes[1]
    assert "chance 5.0" in [t.get_text() for t in bar.texts]


def test_several_runs_share_one_scale():
    figure = missing_heatmap({"a": MATRIX, "b": MATRIX / 2}, NAMES)
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["a", "b"]

    def shade(axes, column, row):
        at = (column - 0.48, row - 0.48)
        return next(p.get_facecolor() for p in axes.patches if p.get_xy() == pytest.approx(at))

    assert shade(figure.axes[0], 0, 0) == shade(figure.axes[1], 1, 0), "10.0 in both"
    assert shade(figure.axes[0], 2, 2) != shade(figure.axes[1], 2, 2)


def test_ink_is_readable_on_every_shade():
    assert ink_on("#ffffff") == "#101214"
    assert ink_on("#000000") == "#fefefe"
    assert ink_on("#ffff00") == "#101214"
    assert ink_on("#0000aa") == "#fefefe"


def test_wrong_matrices_are_refused():
    with pytest.raises(ConfigError, match="nothing to draw"):
        missing_heatmap({}, NAMES)
    with pytest.raises(DataError, match=r"'run' is \(2, 3\), but there are \(3, 3\) names"):
        missing_heatmap({"run": MATRIX[:2]}, NAMES)
    with pytest.raises(DataError, match=r"chance is \(2,\), but there are \(3, 3\) cells"):
        missing_heatmap({"run": MATRIX}, NAMES, chance=np.zeros(2))
    with pytest.raises(DataError, match="every cell is NaN"):
        missing_heatmap({"run": np.full((3, 3), np.nan)}, NAMES)
