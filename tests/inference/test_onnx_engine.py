"""The engine of exported models: any subset, files that are not as they were, several processes, no torch."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from slimreid.errors import ConfigError, ModelError
from slimreid.inference.exported_card import read_exported
from slimreid.inference.model_card import is_exported
from slimreid.inference.onnx_engine import OnnxEngine, session_options

CHILD = """
import sys
import numpy as np
from slimreid.inference.onnx_engine import OnnxEngine
engine = OnnxEngine(sys.argv[1], threads=1)
images = {"rgb": np.full((2, 3, 32, 16), 0.5, np.float32)}
found = engine.features(images)["both"]
assert "torch" not in sys.modules, "torch was imported"
print(found.astype("<f4").tobytes().hex())
"""


def images(engine: OnnxEngine, B: int, *names: str) -> dict[str, np.ndarray]:
    size = engine.card.model.config.transforms.size
    rng = np.random.default_rng(B)
    return {name: rng.standard_normal((B, 3, *size), dtype=np.float32) for name in names}


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def test_features_have_the_sizes_that_the_card_says(exported):
    engine = OnnxEngine(exported)
    card = read_exported(exported)
    assert set(card.files) == {p.name for p in exported.iterdir()} - {"model.json"}
    for subset in card.graphs:
        for B in (1, 3):
            found = engine.features(images(engine, B, *subset))
            assert {kind: value.shape for kind, value in found.items()} == {
                k: (B, s) for k, s in card.sizes.items()
            }
            assert all(value.dtype == np.float32 for value in found.values())
    both = engine.features(images(engine, 3, "rgb", "tir"))
    np.testing.assert_array_equal(both["both"], np.concatenate([both["original"], both["slimmed"]], axis=1))


def test_a_batch_gives_what_its_samples_give_and_cameras_count(exported):
    engine = OnnxEngine(exported, threads=1)
    given = images(engine, 4, "tir", "rgb")
    cameras = np.array([0, 1, -1, 7])
    whole = engine.features(given, cameras)["both"]
    for b in range(4):
        alone = engine.features({n: x[b : b + 1] for n, x in given.items()}, cameras[b : b + 1])["both"]
        np.testing.assert_allclose(alone[0], whole[b], atol=1e-5)
    unknown = engine.features(given)["both"]
    assert np.abs(unknown - whole).max(axis=1)[:2].min() > 1e-4, "a known camera changes the feature"
    np.testing.assert_allclose(unknown[2:], whole[2:], atol=1e-6)


def test_the_kept_patches_are_told(exported):
    engine = OnnxEngine(exported)
    kept = engine.kept_patches(images(engine, 2, "rgb"))
    assert {name: value.shape for name, value in kept.items()} == {"kept_1": (2, 2, 4)}
    assert (kept["kept_1"][:, 1] == 0).all(), "tir was not given"
    assert len(set(kept["kept_1"][0, 0].tolist())) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"nir": x["rgb"]}, "nir"),
        (lambda x: {}, "nothing"),
        (lambda x: {"rgb": x["rgb"].astype(np.float64)}, "float64"),
        (lambda x: {"rgb": x["rgb"][:, :, 1:]}, "31"),
        (lambda x: x | {"tir": x["tir"][:1]}, "tir"),
    ],
)
def test_images_that_do_not_fit_are_refused(exported, change, message):
    engine = OnnxEngine(exported)
    with pytest.raises(ModelError, match=message):
        engine.features(change(images(engine, 2, "rgb", "tir")))


def test_cameras_that_do_not_fit_are_refused(exported):
    engine = OnnxEngine(exported)
    for cameras in (np.zeros(3, np.int64), np.zeros(2, np.int32)):
        with pytest.raises(ModelError, match="cameras"):
            engine.features(images(engine, 2, "rgb"), cameras)


def test_a_missing_or_altered_file_is_named(copy):
    engine = OnnxEngine(copy)
    weights = bytearray((copy / "weights.bin").read_bytes())
    weights[-5] ^= 1
    (copy / "weights.bin").write_bytes(weights)
    with pytest.raises(ModelError, match=r"weights\.bin: not as it was exported"):
        engine.features(images(engine, 1, "rgb"))
    (copy / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights\.bin: cannot be read"):
        engine.features(images(engine, 1, "rgb"))
    (copy / "graph-rt.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match=r"graph-rt\.onnx: not as it was exported"):
        engine.features(images(engine, 1, "rgb", "tir"))


def test_a_damaged_card_is_refused(copy, tmp_path):
    path = copy / "model.json"
    good = json.loads(path.read_text(encoding="utf-8"))

    def refused(text: str, match: str) -> None:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ModelError, match=match):
            OnnxEngine(copy)

    refused("{", "not the card")
    refused("[1]", "not the card")
    refused(json.dumps(good | {"format": 2}), "newer; update SlimReID")
    refused(json.dumps(good | {"camera_input": False}), "checksum")
    refused(json.dumps({name: good[name] for name in good if name != "graphs"}), "checksum")
    with pytest.raises(ModelError, match=r"model\.json.*slimreid export"):
        OnnxEngine(tmp_path / "nowhere")


def test_a_folder_that_nobody_may_write_and_two_processes_at_once(copy):
    for path in copy.iterdir():
        path.chmod(stat.S_IRUSR)
    copy.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        running = [
            subprocess.Popen([sys.executable, "-c", CHILD, str(copy)], stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        answers = [child.communicate()[0] for child in running]
    finally:
        copy.chmod(stat.S_IRWXU)
    assert [child.returncode for child in running] == [0, 0]
    assert answers[0] == answers[1] != ""
    same = OnnxEngine(copy, threads=1).features({"rgb": np.full((2, 3, 32, 16), 0.5, np.float32)})["both"]
    assert same.astype("<f4").tobytes().hex() == answers[0].strip()


def test_graphs_beyond_the_private_memory_share_the_file_and_give_the_same(exported, monkeypatch):
    seen = []

    def spy(threads: int, private: bool) -> object:
        seen.append(private)
        return session_options(threads, private)

    monkeypatch.setattr("slimreid.inference.onnx_engine.session_options", spy)
    one = (exported / "weights.bin").stat().st_size
    generous, frugal = OnnxEngine(exported), OnnxEngine(exported, private_bytes=one)
    for names in (("rgb",), ("tir",)):
        given = images(frugal, 2, *names)
        found, expected = (engine.features(given)["both"] for engine in (frugal, generous))
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert seen == [True, True, False, True]


def test_threads(exported, monkeypatch):
    assert OnnxEngine(exported, threads=3).threads == 3
    with pytest.raises(ConfigError, match="threads"):
        OnnxEngine(exported, threads=0)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert OnnxEngine(exported).threads == 5


def test_threads_sleep_while_there_is_nothing_to_do():
    options = session_options(3)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_what_is_an_exported_model(exported, tmp_path):
    assert is_exported(exported)
    assert is_exported(exported / "model.json")
    assert not is_exported(tmp_path)
    assert read_exported(exported / "model.json").fingerprint == read_exported(exported).fingerprint
