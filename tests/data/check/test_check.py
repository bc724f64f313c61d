import json
import os
import signal
import threading

import numpy as np
import pytest
from PIL import Image

from slimreid.cli.app import main
from slimreid.data.check import check_dataset, files
from slimreid.data.problems import Problem, group_problems, row_ranges
from slimreid.errors import DataError

HEADER = "split,identity,camera,scene,rgb,tir"


@pytest.fixture
def rows(tmp_path, write_image):
    """Rows of a clean set whose files exist; tests spoil them."""
    result = []
    for identity in range(4):
        for camera in (1, 2):
            stem = f"{identity}_{camera}"
            for name in ("rgb", "tir"):
                write_image(tmp_path / f"{name}/{stem}.png", (8, 16))
            paths = f"rgb/{stem}.png,tir/{stem}.png"
            split = "train" if identity < 2 else ("query" if camera == 1 else "gallery")
            result.append(f"{split},{identity},{camera},,{paths}")
    return result


@pytest.fixture
def run(tmp_path, write_csv):
    def check(rows, header=HEADER, **options):
        return check_dataset(write_csv(tmp_path / "manifest.csv", header, *rows), **options)

    return check


def messages(report, level="error"):
    return [str(p) for p in report.problems if p.level == level]


def test_clean_set(rows, run):
    report = run(rows)
    assert report.problems == ()
    assert [c["split"] for c in report.counts] == ["train", "query", "gallery"]
    assert report.counts[0] == {
        "split": "train", "samples": 4, "identities": 2, "cameras": 2, "scenes": 0, "rgb": 4, "tir": 4,
    }  # fmt: skip
    assert report.sizes == {"rgb": {"8×16": 8}, "tir": {"8×16": 8}}


def test_broken_and_absent_files(rows, run, tmp_path):
    (tmp_path / "tir/0_1.png").write_bytes(b"")
    (tmp_path / "rgb/3_2.png").unlink()
    found = messages(run(rows))
    assert len(found) == 2
    assert found[0].startswith("row 2: ")
    assert "0_1.png" in found[0]
    assert "zero bytes" in found[0]
    assert found[1].startswith("row 9: ")
    assert "no such file; correct the path" in found[1]


def test_sizes_within_a_row(rows, run, tmp_path, write_image):
    write_image(tmp_path / "tir/0_1.png", (16, 16))
    write_image(tmp_path / "tir/0_2.png", (16, 32))
    report = run(rows)
    assert messages(report) == [
        "row 2: shapes differ: rgb 8×16, tir 16×16; crop or resize all modalities of a sample to the shape of rgb"
    ]
    assert "row 3: sizes differ: rgb 8×16, tir 16×32" in messages(report, "warning")[0]


def test_duplicates_and_contradictions(rows, run):
    other = rows[0].replace("train,0,", "train,1,")
    report = run([*rows, rows[0], other.replace("tir/0_1.png", "")])
    assert "row 10: duplicate: rgb/0_1.png (rgb) is in row 2" in messages(report)[0]
    report = run([*rows[1:], "query,9,1,,rgb/0_2.png,", "gallery,9,2,,rgb/0_1.png,"])
    assert any("rgb/0_2.png is '9' here, '0' in row 2" in m for m in messages(report))


def test_query_and_gallery_may_share_images(rows, run):
    shared = [r.replace("query", "gallery") for r in rows if r.startswith("query")]
    shared += [r.replace("gallery", "query") for r in rows if r.startswith("gallery")]
    assert run([*rows, *shared]).problems == ()


def test_identities_in_train_and_test(rows, run):
    report = run([r.replace("gallery,2,", "gallery,1,") for r in rows])
    assert any("identity '1' is in train and test; keep each identity" in m for m in messages(report))


def test_one_camera_for_everything(rows, run):
    report = run([",".join(["7" if i == 2 else c for i, c in enumerate(r.split(","))]) for r in rows])
    (message,) = messages(report)
    assert "all have camera '7'" in message
    assert "no query can be answered" in message
    assert "add a column protocol" in message
    assert not messages(run(rows, protocol="none"))


def test_scene_protocol_needs_scenes(rows, run):
    assert "none has a scene" in messages(run(rows, protocol="scene"))[0]
    with_scenes = [r.replace(",,rgb", f",s{number % 2},rgb") for number, r in enumerate(rows)]
    assert run(with_scenes, protocol="scene").problems == ()


def test_query_identities_without_a_match(rows, run):
    report = run([r for r in rows if not r.startswith("gallery,3")])
    assert messages(report) == [
        "row 8: query identity '3': 1 of 1 queries without a match (the gallery does not have it); "
        "add gallery rows from another camera, correct the cameras, or drop these queries"
    ]
    extra = "query,3,2,,tir/3_2.png,"
    report = run([*rows, extra])
    assert not messages(report)
    assert "1 of 2 queries without a match (only from the same camera)" in messages(report, "warning")[0]


def test_val_is_its_own_query_and_gallery(rows, run):
    val = [r.replace("train", "val") for r in rows if r.startswith("train")]
    assert run([r for r in rows if not r.startswith("train")] + val).problems == ()
    report = run([r for r in rows if not r.startswith("train")] + val[::2])
    assert "val: all have camera '1'" in messages(report)[0]


def test_queries_without_a_gallery_and_single_images(rows, run):
    report = run([r for r in rows if not r.startswith("gallery")][1:])
    assert any("there are queries but no gallery" in m for m in messages(report))
    assert any("training identity '0' has one image only" in m for m in messages(report, "warning"))


def test_faulty_rows_do_not_hide_the_others(rows, run, tmp_path):
    (tmp_path / "rgb/1_1.png").unlink()
    found = messages(run([*rows, "tarin,1,1,,a,b"]))
    assert [m.split(":")[0] for m in found] == ["row 4", "row 10"]


def test_command_line(rows, tmp_path, write_csv, capsys):
    write_csv(tmp_path / "manifest.csv", HEADER, *rows)
    assert main(["data", "check", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "gallery" in shown
    assert "0 errors, 0 warnings" in shown
    (tmp_path / "rgb/1_1.png").unlink()
    assert main(["data", "check", str(tmp_path)]) == 1
    assert "row 4" in capsys.readouterr().out
    assert main(["data", "check", str(tmp_path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["problems"][0]["row"] == 4
    assert report["counts"][0]["samples"] == 4


def test_a_header_without_rows_is_an_error(run):
    assert "no rows" in messages(run([]))[0]


def test_a_path_that_cannot_exist(rows, run):
    rows[0] = rows[0].replace("rgb/0_1.png", "rgb/0\0_1.png")
    assert "row 2" in messages(run(rows))[0]


def test_json_also_when_the_table_cannot_be_read(tmp_path, capsys):
    assert main(["data", "check", str(tmp_path / "none.csv"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert "none.csv" in report["error"]


def test_table_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="no such manifest"):
        check_dataset(tmp_path / "none.csv")


def test_problems_of_one_cause_are_one_line(rows, run, tmp_path, write_image, capsys):
    for stem in ("0_1", "0_2", "1_2"):
        write_image(tmp_path / f"tir/{stem}.png", (16, 32))
    for stem in ("2_1", "3_1", "3_2"):
        (tmp_path / f"rgb/{stem}.png").write_bytes(b"no image" + stem.encode())
    groups = [str(group) for group in run(rows).groups]
    assert len(groups) == 2
    assert groups[0].startswith("row 6: ")
    assert groups[0].endswith("drop the row (2 more of this kind: rows 8-9)")
    assert groups[1].startswith("row 2: sizes differ")
    assert groups[1].endswith("(2 more of this kind: rows 3, 5)")
    assert main(["data", "check", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert shown.count("sizes differ") == 1
    assert "3 errors, 3 warnings" in shown


def test_row_ranges_are_short():
    assert row_ranges([4]) == "row 4"
    assert row_ranges([2, 3, 4, 9]) == "rows 2-4, 9"
    assert row_ranges(list(range(1, 100, 2))) == "rows 1, 3, 5, 7, 9, 11 ..."
    first, second = group_problems([Problem("warning", 1, "a", "b"), Problem("error", None, "c", "d")])
    assert (str(first), str(second)) == ("c; d", "row 1: a; b")


def test_deep_images_without_a_window_are_said(rows, run, tmp_path):
    for stem in ("0_1", "0_2"):
        Image.fromarray(np.full((16, 8), 30000, np.uint16)).save(tmp_path / f"tir/{stem}.png")
    (group,) = run(rows).groups
    assert group.level == "warning"
    assert "row 2: tir/0_1.png: values of more than 8 bits and no window" in str(group)
    assert "column tir_window" in str(group)
    assert str(group).endswith("(1 more of this kind: row 3)")
    windows = [f"{row},29000 31000" for row in rows]
    assert not run(windows, header=f"{HEADER},tir_window").problems


def test_pages_and_frames_are_said(rows, run, tmp_path):
    image = Image.open(tmp_path / "rgb/0_1.png")
    image.save(tmp_path / "rgb/0_1.png", save_all=True, append_images=[image.rotate(180)])
    (problem,) = run(rows).problems
    assert "rgb/0_1.png: the image file has several pages or frames" in problem.message


def test_one_identity_in_val_or_gallery_is_said(rows, run):
    val = [r.replace("train", "val") for r in rows if r.startswith("train,1")]
    report = run([r for r in rows if not r.startswith("train,1")] + val)
    (message,) = messages(report, "warning")
    assert "val has one identity ('1'): every ranking is correct, so the first epoch" in message
    report = run([r for r in rows if r.split(",")[1] != "3"])
    assert "gallery has one identity ('2')" in messages(report, "warning")[0]


def test_parts_that_see_different_things_are_said(rows, run):
    def keep(row, *names):
        *start, rgb, tir = row.split(",")
        return ",".join([*start, rgb * ("rgb" in names), tir * ("tir" in names)])

    apart = [keep(r, "rgb" if r.startswith("train") else "tir") for r in rows]
    assert messages(run(apart)) == [
        "row 6: train has rgb only and query has tir only; train and query need a modality in common",
        "row 7: train has rgb only and gallery has tir only; train and gallery need a modality in common",
    ]
    crossed = [keep(r, "tir") if r.startswith("gallery") else keep(r, "rgb") for r in rows]
    assert any("query and gallery need a modality in common" in m for m in messages(run(crossed)))
    more = [keep(r, "rgb") if r.startswith("train") else r for r in rows]
    report = run(more)
    assert not report.errors
    assert messages(report, "warning")[0].startswith("row 6: tir of query is never seen in train")


def test_special_files_are_named(rows, run, tmp_path):
    (tmp_path / "rgb/0_1.png").unlink()
    os.mkfifo(tmp_path / "rgb/0_1.png")
    (tmp_path / "tir/0_1.png").unlink()
    (tmp_path / "tir/0_1.png").symlink_to("/dev/zero")
    found = []
    thread = threading.Thread(target=lambda: found.extend(run(rows).groups), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it waits for the pipe"
    assert "not a regular file" in str(found[0])
    assert len(found) == 1


def test_memory_stays_bounded(rows, run, monkeypatch):
    """Images are decoded at the same time only as far as their pixels fit into the memory."""
    monkeypatch.setattr(files, "MEMORY", 2 * 16 * 8 * 16 + 500)  # two of the images here, and their files
    original, lock, together = files.read_images, threading.Lock(), [0, 0]

    def read(*arguments):
        with lock:
            together[0] += 1
            together[1] = max(together)
        try:
            threading.Event().wait(0.02)
            return original(*arguments)
        finally:
            with lock:
                together[0] -= 1

    monkeypatch.setattr(files, "read_images", read)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert not run(rows).problems
    assert 1 <= together[1] <= 2


def test_a_signal_ends_the_check_at_once(rows, run, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    original, calls = files.read_images, []

    def read(*arguments):
        calls.append(arguments)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(0.02)
        return original(*arguments)

    monkeypatch.setattr(files, "read_images", read)
    many = [f"{r},{n} 0 8 16" for n in range(7) for r in rows]
    try:
        with pytest.raises(KeyboardInterrupt):
            run(many, header=f"{HEADER},rgb_box")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(calls) < len(many), "the rest was given up"
