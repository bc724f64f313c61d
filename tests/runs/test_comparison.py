"""Rows over seeds, and their paired differences, against plain loops."""

import csv
import io
import json
import math
import statistics

import numpy as np
import pytest

from slimreid.errors import ConfigError, DataError
from slimreid.runs.comparison import changed_options, compare_records, group_by_seed
from slimreid.runs.record import read_record, write_record
from slimreid.runs.tables import caption, to_csv, to_json, to_markdown, write_comparison
from support.records import make_record

FIRST = [[0.5, 0.4, 0.3, 0.2, 0.6, 0.5], [0.6, 0.4, 0.2, 0.2, 0.5, 0.7]]
SECOND = [[0.7, 0.5, 0.6, 0.3, 0.9, 0.8], [0.8, 0.4, 0.5, 0.4, 0.8, 0.9]]


def four_runs():
    plain = {"options": {"model.fusion": "none"}}
    runs = [make_record(f"runs/base-{s}", FIRST[s], s, **plain) for s in (0, 1)]
    return runs + [make_record(f"runs/sdtps-seed{s}", SECOND[s], s) for s in (0, 1)]


def test_runs_that_differ_by_the_seed_are_one_row():
    records = group_by_seed(four_runs())
    assert [record.label for record in records] == ["base", "base", "sdtps", "sdtps"]
    rows = compare_records(records).rows
    assert [row.seeds for row in rows] == [(0, 1), (0, 1)]
    for row, runs in zip(rows, (FIRST, SECOND), strict=True):
        maps = [sum(run) / len(run) for run in runs]
        assert math.isclose(row.map.mean, sum(maps) / 2)
        assert math.isclose(row.map.std, abs(maps[0] - maps[1]) / math.sqrt(2))
        assert math.isclose(row.map.std, statistics.stdev(maps))
    assert rows[0].difference is None
    assert math.isclose(rows[1].difference.value, rows[1].map.mean - rows[0].map.mean)


def test_two_runs_with_the_same_seed_stay_apart():
    records = group_by_seed([make_record("a", FIRST[0]), make_record("b", FIRST[1])])
    assert [record.label for record in records] == ["a", "b"]
    same_name = group_by_seed([make_record("x/run", FIRST[0]), make_record("y/run", FIRST[1])])
    assert [record.label for record in same_name] == ["x/run", "y/run"]
    nested = [make_record("x/seed0", FIRST[0], 0), make_record("x/seed1", FIRST[1], 1)]
    assert {record.label for record in group_by_seed(nested)} == {"x"}


def test_the_difference_pairs_seed_with_seed():
    """Resampling identities of the seeds' mean is resampling every seed with the same identities."""
    row = compare_records(group_by_seed(four_runs()), samples=300).rows[1]
    draws = np.random.default_rng(0).multinomial(3, np.full(3, 1 / 3), size=300)
    differences = []
    for counts in draws:
        per_seed = []
        for seed in (0, 1):
            total, number = 0.0, 0
            for query in range(6):
                weight = counts[query // 2]
                total += weight * (SECOND[seed][query] - FIRST[seed][query])
                number += weight
            per_seed.append(total / number)
        differences.append(sum(per_seed) / 2)
    low, high = np.quantile(differences, [0.025, 0.975])
    assert np.allclose((row.difference.low, row.difference.high), (low, high))
    assert row.difference.clear


def test_skipped_queries_do_not_count():
    nan = float("nan")
    records = [make_record("a", [0.5, nan, 0.3, 0.2, 0.6, 0.5]), make_record("b", [1.0, nan, 1, 1, 1, 1])]
    row = compare_records(records).rows[1]
    assert math.isclose(row.difference.value, 1 - 2.1 / 5)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"protocol": "none"}, "under protocol 'camera', the other under 'none'"),
        ({"gallery": 7}, "6 queries in a gallery of 6, the other with 6 queries in a gallery of 7"),
        ({"data": {"sides": "a", "rgb": "other"}, "data_name": "w"}, "on 'set', the other on 'w'"),
        ({"data": {"sides": "other", "tir": "b"}}, "their rows differ"),
    ],
)
def test_other_data_is_refused(changes, why):
    records = [make_record("one", FIRST[0]), make_record("two", FIRST[1], **changes)]
    with pytest.raises(DataError, match=f"one and two were not evaluated on the same data.*{why}"):
        compare_records(records)
    assert compare_records(records, paired=False).rows[1].difference is None


def test_other_modalities_of_the_same_queries_can_be_compared():
    records = [make_record("one", FIRST[0]), make_record("two", SECOND[0], data={"sides": "a", "tir": "c"})]
    assert compare_records(records).rows[1].difference is not None


def test_features():
    with pytest.raises(ConfigError, match="runs/base-0: no feature 'slimmed'; it has original"):
        compare_records(four_runs(), "slimmed")
    assert compare_records(four_runs(), "original").rows == compare_records(four_runs(), "both").rows
    with pytest.raises(DataError, match="nothing to compare"):
        compare_records([])


def test_one_identity_has_no_interval():
    ids = np.array(["x"] * 6)
    rows = compare_records([make_record(n, FIRST[0], query_ids=ids) for n in "ab"]).rows
    assert [(row.interval, row.difference) for row in rows] == [(None, None)] * 2


def test_options_that_differ():
    assert changed_options(group_by_seed(four_runs())) == {"model.fusion": {"base": "none", "sdtps": "mean"}}


def test_tables_say_the_same():
    records = [*four_runs(), make_record("on test", FIRST[0], select_on="test", options={"a": 1})]
    comparison = compare_records(group_by_seed(records), speeds={"base": 123.45})
    text = to_markdown(comparison)
    lines = text.splitlines()
    assert lines[0].startswith("| model | seeds | mAP | 95 % interval |")
    assert all(line.count("|") == lines[0].count("|") for line in lines[:5])
    assert "| base | 2 | 42.5 ± 1.2 |" in text
    assert "1.50 M | 0.25 | 123.5 |" in text
    assert "| on test † | 1 | 41.7 |" in text
    assert any(line.startswith("† the checkpoint was chosen on the test set") for line in caption(comparison))
    rows = list(csv.DictReader(io.StringIO(to_csv(comparison))))
    assert [row["model"] for row in rows] == ["base", "sdtps", "on test"]
    assert float(rows[1]["difference"]) == comparison.rows[1].difference.value
    assert (rows[0]["difference"], rows[2]["map_std"], rows[2]["chosen_on_test"]) == ("", "", "1")
    assert json.loads(to_json(comparison))["rows"][0]["map"]["mean"] == comparison.rows[0].map.mean


def test_tables_are_written_by_their_ending(tmp_path):
    comparison = compare_records(four_runs())
    for suffix, writer in ((".md", to_markdown), (".csv", to_csv), (".json", to_json)):
        write_comparison(tmp_path / f"t{suffix}", comparison)
        assert (tmp_path / f"t{suffix}").read_text() == writer(comparison)
    with pytest.raises(ConfigError, match=r"\.md, \.csv or \.json"):
        write_comparison(tmp_path / "t.pdf", comparison)


def test_records_come_back_from_their_files(tmp_path):
    nan = float("nan")
    record = make_record("a", [0.123456789, nan, 0.3, 0.2, 0.6, 0.5], missing={"original": {"map": [[1.0]]}})
    write_record(tmp_path / "r.json", record)
    again = read_record(tmp_path / "r.json")
    assert again.to_dict() == read_record(tmp_path / "r.json").to_dict()
    assert np.allclose(
        again.figures().average_precision, record.figures().average_precision, atol=5e-7, equal_nan=True
    )
    assert again.figures().map == record.figures().map
    assert again.precisions().valid.tolist() == [True, False, True, True, True, True]
    assert (again.name, again.seed, again.options, again.missing) == ("a", 0, record.options, record.missing)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a readable result"),
        ("[]", "not a result of an experiment of this version"),
        ('{"format": 1}', "not the result of an experiment; name a run's folder"),
        ('{"format": 1, "query_ids": []}', "damaged"),
        (None, "no such result"),
    ],
)
def test_damaged_records_are_named(tmp_path, text, message):
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=rf"r\.json: {message}"):
        read_record(path)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "0"},
        {"options": []},
        {"features": {"both": 3}},
        {"gallery": 2**70},
        {"seconds": None},
        {"features": {"original": {"map": 10**400, "minp": 0, "cmc": {}, "average_precision": []}}},
    ],
)
def test_records_with_values_of_another_type_are_named(tmp_path, change):
    path = tmp_path / "r.json"
    write_record(path, make_record("a", [0.5] * 6))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=r"r\.json: damaged"):
        read_record(path)
    path.write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"r\.json: not a readable result"):
        read_record(path)
