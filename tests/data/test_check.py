import json

import pytest

from slimreid.cli import main
from slimreid.data.check import check_dataset
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
        "row 2: shapes differ: rgb 8×16, tir 16×16; crop or resize all spectra of a sample to the shape of rgb"
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
    assert "--protocol none" in message
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
    val = [r.replace("train", "val") for r in rows if r.startswith("train,1")]
    assert run([r for r in rows if not r.startswith("train,1")] + val).problems == ()
    report = run([r for r in rows if not r.startswith("train,1")] + val[:1])
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
