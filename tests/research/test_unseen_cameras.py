"""research/unseen_cameras.py: training rows of some cameras, test rows of the others."""

from __future__ import annotations

import unseen_cameras

from slimreid.data.manifest import Manifest, read_manifest
from support.runs import write_set


def rows(manifest: Manifest) -> set[tuple[str, str, str | None]]:
    return {(s.split, s.identity, s.camera) for s in manifest.samples}


def test_training_keeps_the_named_cameras_and_the_test_all_others(tmp_path, capsys):
    source = write_set(tmp_path / "set")
    before = read_manifest(source)
    cameras = sorted({s.camera for s in before.samples})
    trained = cameras[:1]
    out = tmp_path / "u" / "manifest.csv"
    assert unseen_cameras.main([str(source), "--cameras", trained[0], "--out", str(out)]) == 0
    expected = {(split, *rest, c) for split, *rest, c in rows(before) if (split == "train") == (c in trained)}
    assert rows(read_manifest(out)) == {row for row in expected if row[0] != "val"}
    assert str(len(read_manifest(out).samples)) in capsys.readouterr().out


def test_wrong_cameras_are_named(tmp_path, capsys):
    source = write_set(tmp_path / "set")
    out = tmp_path / "out.csv"
    assert unseen_cameras.main([str(source), "--cameras", "nine", "--out", str(out)]) == 2
    assert "--cameras nine: there are" in capsys.readouterr().err
    every = ",".join(sorted({s.camera for s in read_manifest(source).samples}))
    assert unseen_cameras.main([str(source), "--cameras", every, "--out", str(out)]) == 2
    assert "would be empty" in capsys.readouterr().err
    assert not out.exists()
