"""Curves show the numbers they were given."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from slimreid.errors import ConfigError, DataError
from slimreid.visual.plots.curves import cmc_curves, loss_curves, map_curves
from slimreid.visual.plots.pair_curves import roc_curves, score_histograms
from slimreid.visual.style import DARK, LIGHT, svg_text
from support.pictures import retrieval_result


def rows(epochs: int = 3, updates: int = 4, scale: float = 1.0, val: bool = True):
    found, step = [], 0
    for epoch in range(1, epochs + 1):
        for _ in range(updates):
            step += 1
            train = {"original/identity": scale / step, "total": 3 * scale / step, "accuracy": 0.5}
            found.append({"kind": "step", "epoch": epoch, "step": step, "train": train, "lr": {}})
        row = {"kind": "epoch", "epoch": epoch, "step": step, "train": {"total": scale / epoch}, "lr": {}}
        row |= {"val": {"map": 0.1 * epoch, "rank1": 0.2 * epoch}} if val else {}
        row["best"] = {"epoch": min(epoch, 2), "map": 0.1 * min(epoch, 2)} if val else None
        found.append(row)
    return found


def lines(axes):
    return {
        line.get_label(): (np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.lines
    }


def test_losses_have_a_panel_each_with_the_total_first():
    figure = loss_curves({"one": rows()})
    panels = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title(loc="left") for axes in panels] == ["total", "original/identity"]
    x, y = lines(panels[0])["one"]
    assert x.tolist() == list(range(1, 13))
    assert_allclose(y, 3 / x)
    assert "accuracy" not in svg_text(figure)
    assert not figure.legends, "one run needs no legend"


def test_losses_of_several_runs_lie_over_each_other_and_may_differ():
    other = rows(scale=2)
    for row in other:
        row["train"].pop("original/identity", None)
    figure = loss_curves({"one": rows(), "two": other})
    first, second = (axes for axes in figure.axes if axes.axison)
    assert list(lines(first)) == ["one", "two"]
    assert list(lines(second)) == ["one"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]
    styles = {(line.get_color(), str(line.get_linestyle())) for line in first.lines}
    assert len(styles) == 2


def test_losses_of_long_runs_are_means_of_stretches():
    long = rows(epochs=10, updates=100)
    x, y = lines(loss_curves({"one": long}).axes[0])["one"]
    assert len(x) == 200
    steps = np.arange(1, 1001)
    assert_allclose(x, steps.reshape(200, 5).mean(1))
    assert_allclose(y, (3 / steps).reshape(200, 5).mean(1))


def test_map_is_in_points_and_the_chosen_epoch_is_ringed():
    figure = map_curves({"one": rows()}, DARK)
    found = lines(figure.axes[0])
    assert set(found) == {"val", "chosen"}
    assert_allclose(found["val"], ([1, 2, 3], [10, 20, 30]))
    assert_allclose(found["chosen"], ([2], [20]))
    both = map_curves({"one": rows(), "two": rows(5)})
    assert {"one, val", "two, val"} <= set(lines(both.axes[0]))
    assert both.axes[0].get_ylabel() == "mAP (points)"
    assert_allclose(lines(both.axes[0])["two, val"][1], [10, 20, 30, 40, 50])


def test_cmc_shows_every_rank():
    result = retrieval_result()
    figure = cmc_curves({"a": result, "b": retrieval_result(3)}, max_rank=12)
    found = lines(figure.axes[0])
    label = f"a: rank-1 {100 * result.rank(1):.1f}"
    assert_allclose(found[label], (np.arange(1, 13), 100 * result.cmc[:12]))


def test_roc_passes_through_its_operating_points():
    histogram = retrieval_result().roc
    figure = roc_curves({"a": histogram}, rates=(0.1, 0.05, 1e-4))
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    curve = axes.lines[0]
    assert curve.get_drawstyle() == "steps-post"
    x, y = curve.get_xdata(), curve.get_ydata()
    points = [line for line in axes.lines if line.get_marker() == "o"]
    wanted = histogram.operating_points((0.1, 0.05, 1e-4))
    assert [p.get_xdata()[0] for p in points] == [0.1, 0.05, 1e-4]
    for drawn, point in zip(points, wanted, strict=True):
        height = drawn.get_ydata()[0]
        assert height == pytest.approx(100 * point.true_match_rate)
        assert y[np.searchsorted(x, point.false_match_rate, side="right") - 1] == pytest.approx(height)
    assert points[0].get_markerfacecolor() == points[0].get_color()
    assert points[2].get_markerfacecolor() == LIGHT.paper, "too few pairs for 1e-4: hollow"
    assert {t.get_text() for t in axes.texts} == {f"{100 * p.true_match_rate:.1f}" for p in wanted}


def test_a_fine_roc_is_thinned_but_true():
    n = 3000
    rates = np.linspace(1, 0, n)
    fine = replace(
        retrieval_result().roc, thresholds=np.arange(n) / n, false_rate=rates, true_rate=np.sqrt(rates)
    )
    drawn = roc_curves({"a": fine})
    x, y = drawn.axes[0].lines[0].get_xdata(), drawn.axes[0].lines[0].get_ydata()
    assert len(x) <= 402
    for rate, height in zip(x[1:], y[1:], strict=True):
        assert height == 100 * fine.true_rate[fine.false_rate == rate].max()
    assert (x[-1], y[-1]) == (1, 100)
    assert len(svg_text(drawn)) < 80_000


def test_histograms_are_densities_with_the_threshold():
    histogram = retrieval_result().roc
    figure = score_histograms({"a": histogram, "b": histogram}, rate=0.05)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "b"]
    axes = figure.axes[0]
    outlines = [patch for patch in axes.patches if patch.get_label() and "pairs" in patch.get_label()]
    assert [p.get_label() for p in outlines] == [
        f"false pairs ({histogram.false.sum():,})",
        f"true pairs ({histogram.true.sum():,})",
    ]
    for patch in outlines:
        values, edges, _ = patch.get_data()
        assert (values * np.diff(edges)).sum() == pytest.approx(1)
    point = histogram.operating_points([0.05])[0]
    assert axes.lines[0].get_xdata()[0] == pytest.approx(point.threshold)
    assert f"{100 * point.true_match_rate:.0f} % true" in axes.lines[0].get_label()
    low, high = outlines[0].get_data().edges[[0, -1]]
    assert (low, high) == (histogram.edges[0], histogram.edges[-1])


def test_histograms_of_several_runs_are_each_drawn_over_their_own_range():
    wide = retrieval_result().roc
    thousandth = {"thresholds": wide.thresholds / 1000, "edges": wide.edges / 1000}
    first, second = score_histograms({"a": replace(wide, **thousandth), "b": wide}).axes
    assert np.ptp(first.get_xlim()) == pytest.approx(np.ptp(second.get_xlim()) / 1000)
    threshold = first.lines[0].get_label().removeprefix("threshold ").split(":")[0]
    assert abs(float(threshold) - first.lines[0].get_xdata()[0]) < np.ptp(first.get_xlim()) / 20


def test_ticks_of_a_narrow_range_do_not_overlap():
    wide = retrieval_result().roc
    narrow = replace(wide, thresholds=0.999 + wide.thresholds / 1000, edges=0.999 + wide.edges / 1000)
    figure = score_histograms({"a": narrow})
    svg_text(figure)  # lays it out
    boxes = [tick.label1.get_window_extent() for tick in figure.axes[0].xaxis.get_major_ticks()]
    low, high = figure.axes[0].get_xlim()
    ticks = figure.axes[0].get_xticks()
    shown = sorted((box.x0, box.x1) for box, at in zip(boxes, ticks, strict=True) if low <= at <= high)
    assert len(shown) > 1
    assert all(end < start for (_, end), (start, _) in pairwise(shown))


def test_no_marker_is_cut_at_the_top():
    rows = [
        {"kind": "step", "step": 1, "train": {"total": 2.6}},
        {"kind": "epoch", "epoch": 1, "val": {"map": 1.0}, "best": {"epoch": 1}},
    ]
    assert loss_curves({"a": rows}).axes[0].get_ylim() == pytest.approx((0, 1.07 * 2.6))
    assert map_curves({"a": rows}).axes[0].get_ylim() == pytest.approx((0, 107))


def test_nothing_to_draw_is_refused():
    for draw in (loss_curves, map_curves, cmc_curves, roc_curves, score_histograms):
        with pytest.raises(ConfigError, match="nothing to draw"):
            draw({})
    with pytest.raises(DataError, match="one: no rows of kind 'step'"):
        loss_curves({"one": []})
    with pytest.raises(DataError, match="no epoch was evaluated"):
        map_curves({"one": rows(val=False)})
