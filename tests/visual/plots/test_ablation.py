"""Plots of ablations: what is drawn is what was measured."""

import numpy as np
import pytest

from slimreid.errors import ConfigError
from slimreid.visual.plots.ablation import GridPoint, ablation_plot
from slimreid.visual.style import DARK, LIGHT

KEEP = "model.after_backbone.keep_ratio"


def drawn(figure):
    """The lines of means, as (label, x, y)."""
    (axes,) = figure.axes
    return [(c.get_label(), *map(list, c.lines[0].get_data())) for c in axes.containers]


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_numbers_stand_where_they_belong(look):
    points = [
        GridPoint({KEEP: k}, v) for k, v in (("0.7", (0.6, 0.64)), ("0.3", (0.5, 0.5)), ("0.5", (0.7, 0.6)))
    ]
    figure = ablation_plot(points, look)
    ((_, x, y),) = drawn(figure)
    assert x == [0.3, 0.5, 0.7]
    assert np.allclose(y, [50, 65, 62])
    (axes,) = figure.axes
    assert axes.get_xlabel() == KEEP
    segments = axes.containers[0].lines[2][0].get_segments()
    assert np.allclose(
        np.diff([s[:, 1] for s in segments]).ravel(), 2 * np.std([[50, 50], [70, 60], [60, 64]], 1, ddof=1)
    )


def test_one_line_per_combination_of_the_others():
    points = [
        GridPoint({KEEP: k, "model.after_backbone.beta": b}, (0.5,))
        for k in ("0.3", "0.5")
        for b in ("0.1", "0.2")
    ]
    figure = ablation_plot(points)
    found = drawn(figure)
    assert [label for label, _, _ in found] == ["beta = 0.1", "beta = 0.2"]
    assert [len(x) for _, x, _ in found] == [2, 2]
    assert found[0][1][0] < 0.3 < found[1][1][0]  # beside each other


@pytest.mark.parametrize(
    ("values", "places"),
    [
        (("none", "single"), [0, 1]),
        (("1e-5", "1e-1", "1e-3"), [0, 1, 2]),  # at their values the first two would be one
        (("4", "8"), [4, 8]),
    ],
)
def test_words_and_far_numbers_stand_side_by_side(values, places):
    figure = ablation_plot([GridPoint({"key": v}, (0.5,)) for v in values])
    ((_, x, _),) = drawn(figure)
    assert x == places
    labels = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert set(labels) == set(values)


def test_nothing_cannot_be_drawn():
    with pytest.raises(ConfigError, match="at least one finished run"):
        ablation_plot([])
