"""`run.json`: written, read back, and named where it is damaged."""

import json

import pytest

from slimreid.errors import DataError
from slimreid.runs.folder import RunFolder
from slimreid.runs.starts import DataSource, Surroundings, new_start, write_starts

WHERE = Surroundings(processes=1, threads=2, torch="2.6", device="cpu")


def starts():
    data = DataSource("rows", "real rgb")
    return [new_start(["train", "synthetic/slim"], n, WHERE, data, {"teacher": "abc"}) for n in (0, 3)]


def test_starts_are_read_back_as_they_were_written(tmp_path):
    run = RunFolder(tmp_path)
    assert run.starts() == ()
    made = starts()
    write_starts(run.starts_file, 0, made)
    assert list(run.starts()) == made
    assert run.starts()[1].command == ("train", "synthetic/slim")


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["starts"].append(3),
        lambda s: s["starts"][0].pop("dataset"),
        lambda s: s["starts"][0].update(command="train"),
        lambda s: s["starts"][0].update(command=[1]),
        lambda s: s["starts"][0].update(surroundings=[]),
        lambda s: s["starts"][0]["surroundings"].update(threads="2"),
        lambda s: s["starts"][0].update(after_epoch=2**70),
        lambda s: s.update(starts={}),
    ],
)
def test_values_of_another_type_are_named(tmp_path, change):
    path = RunFolder(tmp_path).starts_file
    write_starts(path, 0, starts())
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    with pytest.raises(DataError, match=r"run\.json: damaged \(.*remove it and go on"):
        RunFolder(tmp_path).starts()
