"""Given thresholds against every pair counted one by one."""

from __future__ import annotations

import csv
import itertools

import numpy as np
import pytest

from slimreid.errors import DataError
from slimreid.evaluation.reports.evaluate import EvaluationOptions, evaluate_model, read_evaluation
from slimreid.evaluation.reports.thresholds import Threshold, needed_subsets, thresholds_of
from slimreid.evaluation.reports.writing import sheets, to_csv, write_evaluation
from slimreid.inference.features.extract import Extraction
from support.models import write_random_model
from support.runs import write_set

NOW = Extraction(workers=0)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thresholds")
    return write_random_model(folder / "run", write_set(folder / "set", missing=True))


def counted(loaded, shown, threshold):
    """True and false match rates of the test samples in `shown` modalities, pair by pair."""
    root = loaded.path.parents[1] / "set"
    rows = list(csv.DictReader((root / "manifest.csv").open()))
    sides = []
    for split, names in zip(("query", "gallery"), shown, strict=True):
        found = []
        for row in rows:
            images = {name: root / row[name] for name in names if row[name]}
            if row["split"] == split and images:
                present = [[name in images for name in loaded.modalities]]
                found.append((row, loaded.embed([images], feature="slimmed"), present))
        sides.append(found)
    similarity = loaded.similarity("slimmed")
    pairs = {True: [], False: []}
    for (a, left, has_left), (b, right, has_right) in itertools.product(*sides):
        same = a["identity"] == b["identity"]
        score = float(similarity(left, right, has_left, has_right)[0, 0])
        if not (same and a["camera"] == b["camera"]) and not np.isnan(score):
            pairs[same].append(score >= threshold)
    return [np.mean(pairs[True]), np.mean(pairs[False])], [len(pairs[True]), len(pairs[False])]


@pytest.mark.parametrize(
    "threshold",
    [
        Threshold(0.97),
        Threshold(0.98, ("rgb",), ("rgb",)),
        Threshold(0.95, ("nir", "tir"), ("rgb", "nir")),
    ],
)
def test_rates_are_those_of_all_pairs(loaded, threshold):
    options = EvaluationOptions(thresholds=[threshold, Threshold(2.0), Threshold(-1.0)], features="slimmed")
    evaluation = evaluate_model(loaded, options=options, extraction=NOW)
    (found,) = [rates for rates in evaluation.thresholds if rates.threshold == threshold.value]
    shown = (threshold.query or loaded.modalities, threshold.gallery or loaded.modalities)
    rates, pairs = counted(loaded, shown, threshold.value)
    assert (found.query, found.gallery) == shown
    assert [found.true_match_rate, found.false_match_rate] == pytest.approx(rates)
    assert [found.true_pairs, found.false_pairs] == pairs
    assert 0 < found.true_match_rate < 1, "the threshold divides these pairs"
    by_value = {rates.threshold: rates for rates in evaluation.thresholds}
    assert (by_value[2.0].true_match_rate, by_value[2.0].false_match_rate) == (0, 0)
    assert (by_value[-1.0].true_match_rate, by_value[-1.0].false_match_rate) == (1, 1)


def test_thresholds_of_an_evaluation_give_its_own_rates_again(loaded, tmp_path):
    first = evaluate_model(loaded, options=EvaluationOptions(missing=True), extraction=NOW)
    chosen = thresholds_of(first.features, first.missing, first.modalities)
    evaluation = evaluate_model(loaded, options=EvaluationOptions(thresholds=chosen), extraction=NOW)
    assert len(evaluation.thresholds) == len(chosen)
    by_sides = {(r.kind, r.query, r.gallery, r.chosen_rate): r for r in evaluation.thresholds}
    for kind, scores in first.features.items():
        for point in scores.operating_points:
            rates = by_sides[kind, first.modalities, first.modalities, point.false_match_rate]
            assert rates.true_match_rate == point.true_match_rate
            assert rates.false_match_rate == point.measured_false_match_rate
    matrix = first.missing["both"]
    for a, b in np.argwhere(~np.isnan(matrix.thresholds[:-1])):
        rates = by_sides["both", matrix.subsets[a], matrix.subsets[b], 0.01]
        assert rates.true_match_rate == matrix.true_rates[a, b]
        assert rates.false_match_rate <= 0.01
    write_evaluation(evaluation, tmp_path)
    assert read_evaluation(tmp_path).thresholds == evaluation.thresholds
    assert "false_match_rate@score" in to_csv(evaluation)
    (sheet,) = [s for s in sheets(evaluation) if s.kind == "both" and "given thresholds" in s.title]
    assert len(sheet.rows) == sum(t.kind == "both" for t in chosen)


def test_a_threshold_for_what_the_data_lacks_is_refused():
    with pytest.raises(DataError, match=r"for nir\+tir, but the data has no nir"):
        needed_subsets([Threshold(1.0, ("nir", "tir"), ("tir",))], ("rgb", "tir"))
