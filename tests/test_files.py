"""Helpers for files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimreid.errors import DataError
from slimreid.files import natural_key, new_folder, open_regular, printable, require_utf8, write_new


@given(st.lists(st.integers(0, 10**60)), st.sampled_from(["", "cam", "x-"]), st.integers(0, 3))
def test_names_with_numbers_are_sorted_by_number(numbers, start, zeros):
    names = [f"{start}{'0' * zeros}{number}" for number in numbers]
    assert sorted(names, key=natural_key) == [f"{start}{'0' * zeros}{number}" for number in sorted(numbers)]


def test_numbers_of_any_length_and_script_have_an_order():
    long = "7" * 5000
    assert sorted([long, "8", f"1{long}"], key=natural_key) == ["8", long, f"1{long}"]
    assert sorted(["٣", "12", "2"], key=natural_key) == ["2", "٣", "12"]


def test_a_file_is_replaced_only_when_asked(tmp_path):
    path = tmp_path / "new" / "a.csv"
    assert write_new(path, b"one")
    assert not write_new(path, b"one"), "nothing to do"
    with pytest.raises(DataError, match=r"a\.csv exists; .*--overwrite"):
        write_new(path, b"two")
    assert path.read_bytes() == b"one"
    assert write_new(path, b"two", overwrite=True)
    assert path.read_bytes() == b"two"


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with new_folder(tmp_path / "w") as folder:
        (folder / "a").write_text("a")
        assert not (tmp_path / "w").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
    with pytest.raises(DataError, match="not an empty folder"), new_folder(tmp_path / "w"):
        pytest.fail("entered")

    def stopped():
        with new_folder(tmp_path / "v") as folder:
            (folder / "a").write_text("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left, alive = (tmp_path / f".w.partial-x-{number}" for number in (dead.pid, os.getpid()))
    for folder in (left, alive):
        (folder / "train").mkdir(parents=True)
    with new_folder(tmp_path / "w"):
        pass
    assert not left.exists()
    assert alive.exists(), "somebody still writes there"


def test_only_regular_files_are_opened(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    with open_regular(tmp_path / "a", 3) as file:
        assert file.read() == b"abc"
    for path, message in [
        (tmp_path / "a", "3 bytes are more than the 2 allowed"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "no such file"),
        (Path("/dev/null"), "not a regular file"),
    ]:
        with pytest.raises(DataError, match=message):
            open_regular(path, 2)


@given(st.binary(min_size=1))
def test_any_name_can_be_printed(content):
    name = os.fsdecode(content)
    printable(name).encode("utf-8")
    if name == printable(name):
        require_utf8(Path(name.replace("\0", "")))
    else:
        with pytest.raises(DataError, match="not UTF-8"):
            require_utf8(Path(name))
