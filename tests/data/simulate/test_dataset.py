from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from slimreid.data.images.decode import read_image
from slimreid.data.manifest import ImageRef, Manifest, Sample, read_manifest
from slimreid.data.simulate import dataset as simulate_set
from slimreid.data.simulate.dataset import ORIGIN, simulate_manifest
from slimreid.data.simulate.images import sample_seed, simulate_modalities
from slimreid.errors import ConfigError, DataError


def picture(number: int) -> np.ndarray:
    random = np.random.default_rng(number)
    coarse = random.integers(0, 256, (8, 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((16, 32), Image.Resampling.BILINEAR))


def make_set(
    root: Path, identities: list[str], name: str = "{identity}_c{camera}s1_{number:03d}.jpg"
) -> Manifest:
    """An rgb-only set in which picture i, seen by camera i % 2, is called after `identities[i]`."""
    root.mkdir(parents=True, exist_ok=True)
    samples = []
    for number, identity in enumerate(identities):
        camera = str(number % 2 + 1)
        path = name.format(identity=identity, camera=camera, number=number)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(number)).save(root / path)
        samples.append(
            Sample("train", identity, camera, "", {"rgb": ImageRef(path)}, {"x_n": str(number)}, number + 2)
        )
    return Manifest(tuple(samples), ("rgb",), root)


def image_bytes(manifest: Manifest) -> list[dict[str, bytes]]:
    return [{m: manifest.file(ref).read_bytes() for m, ref in s.images.items()} for s in manifest.samples]


def tree(folder: Path) -> dict[str, bytes]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


def test_result_stands_alone_and_reads_back(tmp_path):
    source = make_set(tmp_path / "in", ["0002", "0002", "0007"])
    result = simulate_manifest(source, tmp_path / "out")
    assert result.modalities == ("rgb", "nir", "tir")
    assert result.origin == ORIGIN == "real rgb, simulated nir/tir"
    assert read_manifest(tmp_path / "out") == result
    (tmp_path / "in").rename(tmp_path / "gone")
    for number, sample in enumerate(result.samples):
        assert (sample.identity, sample.camera, sample.extras) == (
            source.samples[number].identity,
            source.samples[number].camera,
            {"x_n": str(number)},
        )
        name = source.samples[number].images["rgb"].path
        assert {m: ref.path for m, ref in sample.images.items()} == {
            m: f"{m}/{name}" for m in result.modalities
        }
        rgb = read_image(result.file(sample.images["rgb"]))
        assert (tmp_path / "gone" / name).read_bytes() == result.file(sample.images["rgb"]).read_bytes()
        expected = simulate_modalities(rgb, sample.camera, sample_seed(0, sample.camera, rgb))
        for m in ("nir", "tir"):
            stored = read_image(result.file(sample.images[m]))
            assert stored.shape == rgb.shape
            assert_array_equal(stored[..., 0], stored[..., 1])
            assert np.abs(stored[..., 0].astype(int) - expected[m]).mean() < 2


def test_identities_and_names_leave_no_trace(tmp_path):
    """Identities shuffled, files renamed after the new ones and rows in another order: same bytes."""
    first = simulate_manifest(make_set(tmp_path / "a", ["0002", "0002", "0007", "0011"]), tmp_path / "a_out")
    shuffled = make_set(tmp_path / "b", ["0011", "0007", "0002", "0002"])
    backwards = shuffled.with_samples(reversed(shuffled.samples))
    second = simulate_manifest(backwards, tmp_path / "b_out")
    assert [s.identity for s in first.samples] != [s.identity for s in reversed(second.samples)]
    assert image_bytes(first) == image_bytes(second)[::-1]


def test_camera_and_seed_count(tmp_path):
    source = make_set(tmp_path / "in", ["1", "2"])
    moved = source.with_samples(replace(s, camera="9") for s in source.samples)
    reference = image_bytes(simulate_manifest(source, tmp_path / "reference"))
    for number, other in enumerate(
        (simulate_manifest(moved, tmp_path / "m"), simulate_manifest(source, tmp_path / "s", seed=1))
    ):
        for one, two in zip(reference, image_bytes(other), strict=True):
            assert one["rgb"] == two["rgb"], number
            assert one["nir"] != two["nir"]
            assert one["tir"] != two["tir"]


def test_workers_do_not_matter(tmp_path):
    source = make_set(tmp_path / "in", [str(i // 3) for i in range(12)])
    simulate_manifest(source, tmp_path / "one", workers=1)
    simulate_manifest(source, tmp_path / "two", workers=2)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_a_broken_file_in_a_worker_is_named_and_nothing_is_left(tmp_path):
    source = make_set(tmp_path / "in", [str(i) for i in range(12)])
    broken = source.file(source.samples[5].images["rgb"])
    broken.write_bytes(b"")
    with pytest.raises(DataError, match=broken.name):
        simulate_manifest(source, tmp_path / "new" / "out", workers=2)
    assert not (tmp_path / "new" / "out").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=broken.name):
        simulate_manifest(source, empty, workers=1)
    assert list(empty.iterdir()) == []


def test_rows_with_one_file_are_simulated_once(tmp_path, monkeypatch):
    source = make_set(tmp_path / "in", ["1", "2"])
    twice = source.with_samples(
        replace(s, split=split) for split in ("query", "gallery") for s in source.samples
    )
    calls = []

    def counted(rgb, camera, seed):
        calls.append(seed)
        return simulate_modalities(rgb, camera, seed)

    monkeypatch.setattr(simulate_set, "simulate_modalities", counted)
    result = simulate_manifest(twice, tmp_path / "out", workers=1)
    assert len(calls) == 2
    assert result.samples[0].images == result.samples[2].images
    assert len(tree(tmp_path / "out")) == 2 * 3 + 1


def test_boxes_of_one_file(tmp_path):
    source = make_set(tmp_path / "in", ["1"])
    sample = source.samples[0]
    path = sample.images["rgb"].path
    boxes = [(0, 0, 8, 32), (8, 0, 16, 30)]
    source = source.with_samples(replace(sample, images={"rgb": ImageRef(path, box)}) for box in boxes)
    result = simulate_manifest(source, tmp_path / "out")
    for sample, box in zip(result.samples, boxes, strict=True):
        assert sample.images["rgb"] == ImageRef(f"rgb/{path}", box)
        assert read_image(result.file(sample.images["nir"])).shape == (box[3], 8, 3)
    assert result.samples[0].images["nir"].path != result.samples[1].images["nir"].path
    assert len(tree(tmp_path / "out")) == 1 + 2 * 2 + 1


def test_other_formats_subfolders_and_paths_above_the_manifest(tmp_path):
    make_set(tmp_path / "data", ["ä b"], "sub/{identity}_{number}.png")
    source = Manifest(
        (Sample("train", "1", "1", "", {"rgb": ImageRef("../data/sub/ä b_0.png")}),),
        ("rgb",),
        tmp_path / "in",
    )
    (tmp_path / "in").mkdir()
    result = simulate_manifest(source, tmp_path / "out")
    images = result.samples[0].images
    assert images["rgb"].path == "rgb/data/sub/ä b_0.png"
    assert images["tir"].path == "tir/data/sub/ä b_0.png.jpg"
    assert set(tree(tmp_path / "out")) == {"manifest.csv", *(image.path for image in images.values())}


def test_a_source_that_is_not_real_is_not_called_real(tmp_path):
    source = replace(make_set(tmp_path / "in", ["1"]), origin="synthetic", protocol="none")
    result = simulate_manifest(source, tmp_path / "out")
    assert result.origin == "synthetic; simulated nir/tir"
    assert read_manifest(tmp_path / "out").protocol == "none"


def test_refusals(tmp_path):
    source = make_set(tmp_path / "in", ["1", "2"])
    out = tmp_path / "out"
    with pytest.raises(DataError, match="already has nir, tir"):
        simulate_manifest(replace(source, modalities=("rgb", "nir", "tir")), out)
    with pytest.raises(DataError, match="already has nir"):
        simulate_manifest(replace(source, modalities=("nir",)), out)
    with pytest.raises(DataError, match="no rgb images"):
        simulate_manifest(source.with_samples(()), out)
    with pytest.raises(ConfigError, match="workers"):
        simulate_manifest(source, out, workers=0)
    with pytest.raises(DataError, match="not an empty folder"):
        simulate_manifest(source, tmp_path / "in")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="not an empty folder"):
        simulate_manifest(source, tmp_path / "file")
    both = source.with_samples((*source.samples, replace(source.samples[0], camera="5", row=17)))
    with pytest.raises(DataError, match="row 17 says camera '5', an earlier one '1'"):
        simulate_manifest(both, out)
    assert not out.exists()


@pytest.mark.parametrize("box", [None, (0, 0, 4, 4)])
def test_two_files_never_share_a_name(tmp_path, box):
    make_set(tmp_path / "in", ["1"], "in/a.jpg")
    make_set(tmp_path, ["1"], "in/a.jpg")
    paths = [ImageRef("in/a.jpg"), ImageRef("../in/a.jpg", box)]
    samples = [Sample("train", "1", "1", "", {"rgb": ref}, row=i + 2) for i, ref in enumerate(paths)]
    with pytest.raises(DataError, match=r"row 3 would be written to rgb/in/a.jpg.*rename"):
        simulate_manifest(Manifest(tuple(samples), ("rgb",), tmp_path / "in"), tmp_path / "out")


@pytest.mark.parametrize("wanted", [True, False, None])
def test_progress_is_told_whether_to_show(tmp_path, monkeypatch, wanted):
    seen = []

    def bar(items, description, total, show):
        seen.append((total, show))
        return items

    monkeypatch.setattr(simulate_set, "progress_bar", bar)
    simulate_manifest(make_set(tmp_path / "in", ["1", "2"]), tmp_path / "out", progress=wanted)
    assert seen == [(2, wanted)]
    assert (tmp_path / "out" / "manifest.csv").is_file()


def test_silent_where_there_is_no_terminal(tmp_path, capsys):
    simulate_manifest(make_set(tmp_path / "in", ["1"]), tmp_path / "out")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ""
