import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from slimreid import __version__
from slimreid.cli.app import main
from slimreid.data.manifest import read_manifest
from support.commands import run_command as run


@pytest.mark.parametrize(
    "command", [[sys.executable, "-m", "slimreid"], [Path(sys.executable).parent / "slimreid"]]
)
def test_version_by_module_and_by_console_command(command):
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"slimreid {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", "check"], "required: DATA"),
        (["data", "chek"], "chek"),
        (["dta"], "dta"),
        (["data", "synth", "w", "--identites", "3"], "unknown option 'identites'"),
        (["data", "synth", "w", "--identities", "many"], "identities"),
        (["data", "synth", "w", "--size", "big"], "HEIGHTxWIDTH"),
        (["data", "preview", "--transforms.heigth", "3"], "did you mean 'transforms.height'"),
        (["data", "preview", "--transforms.heigh", "3"], "did you mean 'transforms.height'"),
        (["data", "preview", "--config", "none.yaml"], "none.yaml"),
        (["data", "preview"], "data.manifest is not set"),
        (["data", "preview", "--batches", "0"], "batches must be at least 1"),
        (["data", "sheet", "w", "--identities", "-1"], "identities must be at least 1"),
        (["data", "check", "w", "--protokol", "camera"], "did you mean 'protocol'"),
        (["data", "synth", "new", "--val-identities", "5"], "val_identities"),
    ],
)
def test_wrong_usage_is_one_clear_message(arguments, message, capsys):
    code, out, err = run(*arguments, capsys=capsys)
    assert code == 2
    assert message in err
    assert "--help'" in err
    assert "Traceback" not in err + out


@pytest.mark.parametrize("command", [["data", "preview"], ["train"], ["model", "summary"]])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data:\n  manifst: w", "unknown option 'data.manifst'; did you mean 'data.manifest'"),
        ("transfroms:\n  height: 3", "did you mean 'transforms'"),
        ("data: 3", "'data' is a section"),
        ("", "key: value"),
        ("a: [", "not YAML"),
    ],
)
def test_wrong_config_files_are_one_clear_message(command, text, message, capsys, tmp_path):
    (tmp_path / "bad.yaml").write_text(text)
    for form in (
        [tmp_path / "bad.yaml"],
        ["--config", tmp_path / "bad.yaml"],
        [f"--config={tmp_path / 'bad.yaml'}"],
    ):
        code, out, err = run(*command, *form, capsys=capsys)
        assert code == 2
        assert message in err
        assert "Traceback" not in err + out


def test_places_that_cannot_be_written_are_named(small_set, capsys):
    for arguments in (
        [
            "data",
            "import",
            small_set.parent,
            "--template",
            "{modality}/{identity}_{camera}_{}",
            "--split",
            "gallery",
        ],
        ["data", "sheet", small_set],
    ):
        code, _, err = run(*arguments, "--out", small_set / "x.png", capsys=capsys)
        assert code == 1
        assert "manifest.csv" in err
    code, _, err = run("data", "synth", small_set / "x", capsys=capsys)
    assert code == 1
    assert "manifest.csv" in err


def test_sigterm_cleans_up(tmp_path):
    command = [sys.executable, "-m", "slimreid", "data", "synth", str(tmp_path / "w"), "--identities", "400"]
    process = subprocess.Popen([*command, "--workers", "2"], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".w.partial*/train_171/RGB/*.jpg")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "stopped" in err
    assert list(tmp_path.iterdir()) == []


def test_wrong_data_is_one_clear_message(capsys, tmp_path):
    code, _, err = run("data", "check", tmp_path / "[odd] name", capsys=capsys)
    assert code == 1
    assert "[odd] name" in err


def test_no_arguments_shows_help(capsys):
    code, out, _ = run(capsys=capsys)
    assert code == 2
    assert "data" in out


def test_print_config(capsys, tmp_path):
    (tmp_path / "a.yaml").write_text("transforms: {height: 64}")
    words = ["data", "preview", "--config", str(tmp_path / "a.yaml"), "--seed", "7", "--print-config"]
    assert main(words) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["seed"], shown["transforms"]["height"]) == (7, 64)


def test_synthetic_world_from_end_to_end(tmp_path, capsys):
    """synth, check, import again, look, and see batches of it."""
    world = tmp_path / "w"
    size = ["--identities", 9, "--cameras", 2, "--images-per-camera", 2, "--size", "32x16"]
    assert run("data", "synth", world, *size, "--workers", 1, capsys=capsys)[0] == 0
    code, out, _ = run("data", "check", world, capsys=capsys)
    assert (code, "0 errors, 0 warnings" in out) == (0, True)
    made = (world / "manifest.csv").read_text(encoding="utf-8").splitlines()
    assert made[0].endswith(",origin")
    assert all(line.endswith(",synthetic people") for line in made[1:]), "shown with every result"
    run("data", "import", world, "--layout", "rgbnt201", "--out", world / "again.csv", capsys=capsys)
    again = (world / "again.csv").read_text(encoding="utf-8").splitlines()
    assert again == [line.rsplit(",", 1)[0] for line in made], "but for the origin, which files do not tell"
    assert read_manifest(world).select("val"), "some training identities are held out by default"

    config = tmp_path / "c.yaml"
    config.write_text(
        f"data: {{manifest: '{world.as_posix()}', workers: 0}}\ntransforms: {{height: 32, width: 16, pad: 2}}"
    )
    batch = ["--batch.num_ids", 2, "--batch.num_instances", 2]
    code, out, _ = run("data", "preview", "--config", config, *batch, "--out", tmp_path / "p", capsys=capsys)
    assert code == 0
    assert (tmp_path / "p" / "batch_0.png").stat().st_size > 1000
    assert yaml.safe_load((tmp_path / "p" / "config.yaml").read_text())["batch"]["num_ids"] == 2
    for name in ("sheet.png", "sheet.html"):
        assert run("data", "sheet", world, "--out", tmp_path / name, capsys=capsys)[0] == 0
        assert (tmp_path / name).stat().st_size > 1000


def test_import_of_a_flat_source(tmp_path, write_image, capsys):
    for identity in range(8):
        for camera in (1, 2, 3):
            write_image(tmp_path / f"m/{identity:04}_c{camera}s1_000001_00.jpg")
    code, out, _ = run("data", "import", tmp_path / "m", capsys=capsys)
    assert code == 0
    assert "everything is for training" in out
    assert "--test-identities" in out
    assert not read_manifest(tmp_path / "m").select("query")
    ranges = [
        "--train-identities",
        "0:4",
        "--test-identities",
        "6:8",
        "--val-identities",
        "0.5",
        "--overwrite",
    ]
    code, out, _ = run("data", "import", tmp_path / "m", *ranges, capsys=capsys)
    assert code == 0
    assert "2 training identities held out" in out
    manifest = read_manifest(tmp_path / "m")
    assert [len(manifest.select(s)) for s in ("train", "val", "query", "gallery")] == [6, 6, 2, 4]
    gallery = ["--split", "gallery", "--val-identities", 0, "--overwrite"]
    code, *_ = run("data", "import", tmp_path / "m", *gallery, capsys=capsys)
    assert code == 0
    assert len(read_manifest(tmp_path / "m").select("gallery")) == 24
    code, _, err = run("data", "import", tmp_path / "m", "--split", "gallery", *ranges, capsys=capsys)
    assert code == 2


def test_import_with_a_template(tmp_path, write_image, capsys):
    for camera in (1, 2):
        write_image(tmp_path / f"m/train/bob/{camera}-a.png")
    template = "{split}/{identity}/{camera}-{}"
    code, out, _ = run("data", "import", tmp_path / "m", "--template", template, capsys=capsys)
    assert code == 0
    assert "no val split was made" in out
    assert [s.camera for s in read_manifest(tmp_path / "m").samples] == ["1", "2"]


def test_simulated_modalities_from_the_command_line(tmp_path, write_image, write_csv, capsys):
    rows = []
    for identity, split in ((1, "train"), (2, "query"), (2, "gallery")):
        path = write_image(tmp_path / f"{identity}_{split}.png", (16, 32))
        rows.append(f"{split},{identity},{1 if split == 'query' else 2},{path.name}")
    write_csv(tmp_path / "m.csv", "split,identity,camera,rgb", *rows)
    code, out, err = run("data", "simulate", tmp_path / "m.csv", "--out", tmp_path / "s", capsys=capsys)
    assert code == 0, err
    assert "real rgb, simulated nir/tir" in out
    assert "real rgb, simulated nir/tir" in (tmp_path / "s" / "manifest.csv").read_text()
    code, out, _ = run("data", "check", tmp_path / "s", capsys=capsys)
    assert code == 0
    assert "origin: real rgb, simulated nir/tir" in out
