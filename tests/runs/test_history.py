"""What a run wrote while it was trained: read back, or an error naming the file and the line."""

import json

import pytest

from slimreid.errors import DataError
from slimreid.runs.folder import RunFolder
from slimreid.runs.history import selection_summary

METRICS = {"kind": "epoch", "epoch": 1, "step": 3, "train": {"total": 1.5}, "lr": {"rest": 0.1}}
TIMING = {"epoch": 1, "seconds": 2.0, "images_per_second": 10}
SELECTION = {"epoch": 0, "stages": [{"kept_share": 0.5}], "gradient": [1.0, None]}
GOOD = {"metrics": METRICS, "timing": TIMING, "selection": SELECTION}
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("name", GOOD)
def test_rows_are_read_and_a_line_that_is_being_written_is_left_out(tmp_path, name):
    run = RunFolder(tmp_path)
    read, path = getattr(run, name), tmp_path / f"{name}.jsonl"
    assert read() == ()
    path.write_text(json.dumps(GOOD[name]) + "\n" + json.dumps(GOOD[name])[:-1])
    assert len(read()) == 1
    path.write_text(2 * (json.dumps(GOOD[name]) + "\n"))
    assert len(read()) == 2


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(
    "line",
    ["{cut", "[]", "3", "null", '"text"', "{}", DEEP, "NaN", "\\xff", "9" * 5000],
    ids=["cut", "list", "number", "null", "text", "empty", "deep", "nan", "bytes", "long"],
)
def test_damaged_lines_are_named(tmp_path, name, line):
    path = tmp_path / f"{name}.jsonl"
    path.write_text(json.dumps(GOOD[name]) + "\n" + line + "\n")
    with pytest.raises(DataError, match=rf"{name}\.jsonl: line 2: "):
        getattr(RunFolder(tmp_path), name)()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("metrics", {"train": []}),
        ("metrics", {"train": {"total": "low"}}),
        ("metrics", {"train": {"total": True}}),
        ("metrics", {"lr": {"rest": 10**400}}),
        ("metrics", {"epoch": 2**63}),
        ("metrics", {"val": [1]}),
        ("metrics", {"val": {"map": None}}),
        ("metrics", {"best": {"epoch": 1}}),
        ("timing", {"seconds": "2"}),
        ("timing", {"seconds": None}),
        ("timing", {"images_per_second": [1]}),
        ("selection", {"stages": []}),
        ("selection", {"stages": [1]}),
        ("selection", {"gradient": ["1"]}),
    ],
)
def test_values_of_another_type_are_named(tmp_path, name, change):
    (tmp_path / f"{name}.jsonl").write_text(json.dumps(GOOD[name] | change) + "\n")
    with pytest.raises(DataError, match=rf"{name}\.jsonl: line 1: '?\w+'?"):
        getattr(RunFolder(tmp_path), name)()


def test_times_add_up(tmp_path):
    run = RunFolder(tmp_path)
    assert (run.epochs_done, run.train_seconds, run.images_per_second) == (0, 0, None)
    rows = [TIMING | {"epoch": n, "images_per_second": 10 * n} for n in (1, 2, 4)]
    run.timing_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert (run.epochs_done, run.train_seconds, run.images_per_second) == (3, 6.0, 20)


def test_a_summary_has_lists_over_epochs():
    rows = [
        {"epoch": e, "stages": [{"on_object": 0.1 * e, "same": None}, {"on_object": 0.2 * e, "same": 0.5}],
         "gradient": [1.0, None, 3.0, 9.0][: 4 * e]}
        for e in range(3)
    ]  # fmt: skip
    found = selection_summary(rows)
    assert found["epoch"] == [0, 1, 2]
    assert found["on_object"] == pytest.approx([0, 0.2, 0.4]), "of the last stage"
    assert found["gradient"] == [None, 3.0, 3.0]
    assert found["gradient_max"] == [None, 9.0, 9.0]
    assert selection_summary([]) == {}
