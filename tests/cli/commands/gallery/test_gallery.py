"""`slimreid gallery ...` as a person types it."""

from __future__ import annotations

import csv
import json
import shutil

import pytest
from PIL import Image

from slimreid.cli.app import main
from support.commands import run_command


@pytest.fixture(scope="module")
def filled(trained_run, tmp_path_factory):
    """A gallery of the test identities, and the images it was made from."""
    folder = tmp_path_factory.mktemp("gallery")
    place = folder / "people.gallery"
    assert main(["gallery", "create", str(place), "--model", str(trained_run)]) == 0
    assert (
        main(
            [
                "gallery",
                "enrol",
                str(place),
                str(trained_run.parent / "set"),
                "--split",
                "gallery",
                "--by",
                "me",
            ]
        )
        == 0
    )
    return place, trained_run.parent / "set"


@pytest.fixture
def people(filled, tmp_path):
    """The same, for tests that change it."""
    shutil.copy(filled[0], tmp_path / "people.gallery")
    return tmp_path / "people.gallery", filled[1]


def test_search_in_words_json_and_pictures(filled, tmp_path, capsys):
    place, images = filled
    picture = tmp_path / "found.png"
    code, out, _ = run_command(
        "gallery", "search", place, images / "rgb/9_1_0.png", "--top", 3, "--picture", picture, capsys=capsys
    )
    assert code == 0
    assert "among 12 rows" in out
    assert Image.open(picture).width > 100
    code, out, _ = run_command(
        "gallery",
        "search",
        place,
        images / "rgb/9_1_0.png",
        images / "tir/9_1_0.png",
        "--json",
        "--camera",
        2,
        capsys=capsys,
    )
    (answer,) = json.loads(out)
    assert answer["modalities"] == ["rgb", "tir"]
    assert answer["searched"] == 6
    assert {match["camera"] for match in answer["matches"]} == {"2"}
    shots = [images / f"rgb/9_1_{n}.png" for n in range(2)]
    code, out, _ = run_command(
        "gallery", "search", place, *shots, "--together", "--identities", "--json", "--top", 2, capsys=capsys
    )
    (answer,) = json.loads(out)
    assert len({match["identity"] for match in answer["matches"]}) == 2


def test_kept_patches_are_drawn_on_request(filled, tmp_path, capsys):
    place, images = filled
    plain, patches = tmp_path / "a.png", tmp_path / "b.png"
    query = ("gallery", "search", place, images / "rgb/9_1_0.png", "--top", 2, "--picture")
    assert run_command(*query, plain, capsys=capsys)[0] == 0
    assert run_command(*query, patches, "--patches", capsys=capsys)[0] == 0
    first, second = (sum(Image.open(path).convert("L").tobytes()) for path in (plain, patches))
    assert second < first, "dropped patches are dark"


def test_too_few_identities_are_not_calibrated(people, capsys):
    place, images = people
    code, out, _ = run_command("gallery", "calibrate", place, capsys=capsys)
    assert code == 1
    assert "refused: FPIR 1.00%" in out
    code, out, _ = run_command("gallery", "identify", place, images / "tir/9_1_0.png", capsys=capsys)
    assert code == 0
    assert "undecided" in out
    code, out, _ = run_command(
        "gallery", "calibrate", place, "--data", images, "--split", "val", "--json", capsys=capsys
    )
    assert json.loads(out)["bound"]["rows"] == 12


def test_editing(people, tmp_path, capsys):
    place, _ = people
    for words in (
        ("rename", place, "id9", "anna"),
        ("merge", place, "anna", "id10", "--into", "ben"),
        ("split", place, 1, 2, "--into", "carl"),
        ("remove", place, "--identity", "id11"),
    ):
        assert run_command("gallery", *words, capsys=capsys)[0] == 0
    _, out, _ = run_command("gallery", "list", place, "--json", capsys=capsys)
    assert json.loads(out) == {"ben": 6, "carl": 2}
    code, out, _ = run_command("gallery", "undo", place, "--steps", 4, capsys=capsys)
    assert out.count("undone:") == 4
    _, out, _ = run_command("gallery", "list", place, capsys=capsys)
    assert "3 identities, 12 rows" in out
    _, out, _ = run_command("gallery", "show", place, "--identity", "id9", "--json", capsys=capsys)
    assert [row["identity"] for row in json.loads(out)] == ["id9"] * 4
    code, out, _ = run_command("gallery", "remove", place, "--id", 1, "--forget", capsys=capsys)
    assert "1 rows erased for good" in out
    _, out, _ = run_command("gallery", "log", place, "--limit", 0, "--json", capsys=capsys)
    entries = json.loads(out)
    assert entries[0]["operation"] == "forget"
    assert entries[-1]["by"] == "me"


def test_unlabelled_images_get_identities(people, tmp_path, capsys):
    place, images = people
    files = [images / f"rgb/{n}_1_0.png" for n in (6, 7)] + [images / f"rgb/{n}_1_1.png" for n in (6, 7)]
    assert (
        run_command(
            "gallery", "enrol", place, *files, "--camera", "door", "--time", "2026-03-01", capsys=capsys
        )[0]
        == 0
    )
    table, page = tmp_path / "clusters.csv", tmp_path / "clusters.html"
    code, out, _ = run_command(
        "gallery", "cluster", place, "--threshold", 0.2, "--out", table, "--picture", page, capsys=capsys
    )
    assert code == 0
    assert "row 13" in page.read_text(encoding="utf-8")
    with table.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert {line["row"] for line in lines} == {"13", "14", "15", "16"}
    assert {line["camera"] for line in lines} == {"door"}
    table.write_text("row,identity\n13,new\n14,new\n", encoding="utf-8")
    assert run_command("gallery", "assign", place, table, capsys=capsys)[0] == 0
    _, out, _ = run_command("gallery", "list", place, "--json", capsys=capsys)
    assert json.loads(out)["new"] == 2


def test_in_and_out(people, tmp_path, capsys):
    place, _ = people
    out_file = tmp_path / "all.parquet"
    assert run_command("gallery", "export", place, out_file, capsys=capsys)[0] == 0
    code, out, _ = run_command("gallery", "import", tmp_path / "two.gallery", out_file, capsys=capsys)
    assert "12 rows imported" in out
    code, out, _ = run_command("gallery", "copy", place, tmp_path / "three.gallery", capsys=capsys)
    assert "all 12 are the same in both" in out
    assert run_command("gallery", "check", tmp_path / "two.gallery", "--json", capsys=capsys)[0] in (0, 1)


def test_reembedding_with_the_same_model_changes_nothing(people, trained_run, capsys):
    code, out, _ = run_command("gallery", "reembed", people[0], "--model", trained_run, capsys=capsys)
    assert code == 0
    assert "of this model already" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("list", "none.gallery"), 1, "no such gallery"),
        (("rename", "GALLERY", "id8", "x"), 1, "there is no identity 'id8'"),
        (("remove", "GALLERY"), 2, "say which rows"),
        (("search", "GALLERY", "none.png"), 1, "no such image"),
        (("search", "GALLERY", "x.png", "--patches"), 2, "--picture"),
        (("show", "GALLERY", "--since", "yesterday"), 2, "not a time"),
        (("undo", "GALLERY", "--steps", "9"), 1, "can be undone"),
        (("create", "GALLERY", "--model", "none"), 1, "no such model"),
        (("cluster", "GALLERY", "--identity", "nobody", "--out", "OUT"), 1, "no row"),
    ],
)
def test_mistakes_end_in_one_line(filled, tmp_path, capsys, words, code, message):
    place, _ = filled
    names = {"GALLERY": str(place), "OUT": str(tmp_path / "t.csv")}
    found, _, error = run_command("gallery", *[names.get(word, word) for word in words], capsys=capsys)
    assert found == code
    assert message in error
    assert "Traceback" not in error
