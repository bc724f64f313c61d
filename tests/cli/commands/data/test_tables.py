"""`slimreid data import`: from a folder to a manifest that can be trained on."""

import pytest

from slimreid.data.manifest import read_manifest
from support.commands import run_command
from support.files import write_image


@pytest.fixture
def people(tmp_path):
    """A folder per person, three images each, no cameras."""
    for name in range(8):
        for number in range(3):
            write_image(tmp_path / "people" / f"p{name}" / f"{number}.png", (16, 32))
    return tmp_path / "people"


def test_a_folder_per_person_just_works(people, capsys):
    code, out, _ = run_command("data", "import", people, capsys=capsys)
    assert code == 0
    assert out.count("protocol is 'none'") == 1
    assert "val: 2 training identities held out" in out
    manifest = read_manifest(people)
    assert manifest.protocol == "none"
    assert {s.split for s in manifest.samples} == {"train", "val"}
    code, out, _ = run_command("data", "check", people, capsys=capsys)
    assert code == 0, out
    assert "0 errors, 0 warnings" in out


def test_an_edited_manifest_is_not_replaced(people, capsys):
    manifest = people / "manifest.csv"
    assert run_command("data", "import", people, capsys=capsys)[0] == 0
    written = manifest.read_bytes()
    code, out, _ = run_command("data", "import", people, capsys=capsys)
    assert code == 0
    assert "unchanged" in out
    edited = written.replace(b"p1", b"p2")
    manifest.write_bytes(edited)
    code, _, err = run_command("data", "import", people, capsys=capsys)
    assert code == 1
    assert "manifest.csv exists" in err
    assert "--overwrite" in err
    assert manifest.read_bytes() == edited
    assert run_command("data", "import", people, "--overwrite", capsys=capsys)[0] == 0
    assert manifest.read_bytes() == written


@pytest.mark.parametrize(
    "ranges", [["--test-identities", "0:4"], ["--train-identities", "0:0", "--test-identities", ":"]]
)
def test_a_folder_for_the_test_alone(people, tmp_path, capsys, ranges):
    out = tmp_path / "test.csv"
    code, _, err = run_command("data", "import", people, "--out", out, *ranges, capsys=capsys)
    assert code == 0, err
    assert {s.split for s in read_manifest(out).samples} == {"query", "gallery"}


def test_cameras_may_be_named(people, tmp_path, capsys):
    words = ["data", "import", people, "--template", "{identity}/{camera}.png", "--out", tmp_path / "m.csv"]
    code, _, err = run_command(*words, "--camera-map", "0,1=north", "2=south", capsys=capsys)
    assert code == 0, err
    manifest = read_manifest(tmp_path / "m.csv")
    assert [s.camera for s in manifest.samples[:3]] == ["north", "north", "south"]
    assert manifest.protocol == "camera"
    code, _, err = run_command(*words, "--camera-map", "0,1=north", capsys=capsys)
    assert code == 1
    assert "no rule names camera '2'" in err
    code, _, err = run_command(*words, "--camera-map", "0,1", capsys=capsys)
    assert code == 2
    assert "1,2=A" in err
