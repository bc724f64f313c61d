"""Pictures of the choice of patches over training."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from selection_curves import selection_curves
from selection_history import HistoryRow, history_rows, selection_history, shown_epochs

from slimreid.data.manifest import read_manifest
from slimreid.errors import DataError

SUMMARY = {
    "epoch": [0, 1, 2],
    "on_object": [0.3, 0.5, 0.7],
    "chance": [0.4, 0.4, 0.4],
    "same": [None, 0.6, 0.9],
    "kept_share": [0.5, 0.5, 0.5],
    "gradient": [None, 0.1, 0.01],
}


def labels(axes):
    return [line.get_label() for line in axes.lines]


def test_curves_show_shares_in_points_beside_chance():
    half = {**SUMMARY, "kept_share": [0.25] * 3, "gradient": [None, None, None]}
    figure = selection_curves({"topk": SUMMARY, "random": half})
    on_object, same, gradient = figure.axes
    assert on_object.lines[0].get_ydata().tolist() == pytest.approx([30, 50, 70])
    assert labels(on_object) == ["topk", "random", "by chance"]
    assert same.lines[0].get_xdata().tolist() == [1, 2], "nothing to compare with before the first epoch"
    assert sorted(line.get_ydata()[0] for line in same.lines[2:]) == [25, 50]
    assert labels(gradient) == ["topk"]
    assert gradient.get_yscale() == "log"


def test_curves_of_data_without_masks_say_so():
    figure = selection_curves({"run": {**SUMMARY, "on_object": [None] * 3, "chance": [None] * 3}})
    assert figure.axes[0].texts[0].get_text() == "no figures"
    with pytest.raises(DataError, match="watch_selection"):
        selection_curves({"run": {}})


def test_epochs_are_spread_from_first_to_last():
    rows = [{"epoch": e} for e in range(21)]
    assert shown_epochs(rows, 6) == [0, 4, 8, 12, 16, 20]
    assert shown_epochs(rows[:3], 6) == [0, 1, 2]
    with pytest.raises(DataError, match="watch_selection"):
        shown_epochs([])


@pytest.fixture
def watched_set(tmp_path, write_csv, write_image):
    """A set of one sample with a mask on its left half, and rows of a watched run on it."""
    for name in ("RGB", "NI"):
        write_image(tmp_path / f"test/{name}/a.png", (16, 32))
    mask = np.zeros((32, 16), dtype=np.uint8)
    mask[:, :8] = 255
    (tmp_path / "masks/test").mkdir(parents=True)
    Image.fromarray(mask).save(tmp_path / "masks/test/a.png")
    header, row = "split,identity,camera,rgb,nir", "query,1,1,test/RGB/a.png,test/NI/a.png"
    manifest = read_manifest(write_csv(tmp_path / "manifest.csv", header, row))
    images = {"rgb": "test/RGB/a.png", "nir": "test/NI/a.png"}
    rows = [
        {"epoch": 0, "samples": [{"images": images, "kept": {"rgb": [[0, 1], [1]], "nir": [[2, 3], [3]]}}]},
        {"epoch": 1, "samples": [{"images": images, "kept": {"rgb": [[0, 2], [0]], "nir": [[1, 3], [1]]}}]},
    ]
    return manifest, rows


def test_history_has_the_kept_patches_of_each_epoch(watched_set):
    manifest, rows = watched_set
    found = history_rows(rows, manifest, (2, 2), [0, 1], stage=0)
    assert [row.label for row in found] == ["rgb", "nir"]
    assert [kept.nonzero()[0].tolist() for kept in found[0].kept] == [[0, 1], [0, 2]]
    assert found[0].on_object == (0.5, 1.0), "the left patches are 0 and 2"
    last = history_rows(rows, manifest, (2, 2), [1])
    assert last[1].kept[0].nonzero()[0].tolist() == [1]
    figure = selection_history(found, [0, 1], (2, 2), title="run")
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["untrained", "epoch 1"]
    below = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert below == ["50 %", "100 %", "50 %", "0 %"]


def test_dropped_patches_are_dark(watched_set):
    manifest, rows = watched_set
    found = history_rows(rows, manifest, (2, 2), [1], stage=0)
    figure = selection_history(found, [1], (2, 2))
    pixels = np.asarray(figure.axes[0].images[0].get_array())
    height, width = pixels.shape[:2]
    kept, dropped = pixels[: height // 2, : width // 2], pixels[: height // 2, width // 2 :]
    bright = np.asarray(found[0].image.resize((width, height)), dtype=float)
    assert kept.mean() > 0.8 * bright[: height // 2, : width // 2].mean()
    assert dropped.mean() < 0.5 * bright[: height // 2, width // 2 :].mean() + 40


def test_samples_that_are_gone(watched_set):
    manifest, rows = watched_set
    with pytest.raises(DataError, match="no sample with the image"):
        history_rows(rows, manifest.with_samples([]), (2, 2), [0])
    with pytest.raises(DataError, match="no watched sample"):
        selection_history([], [0], (2, 2))


def test_rows_without_a_mask_have_no_outline_and_no_share():
    row = HistoryRow(
        "rgb", Image.new("RGB", (16, 32)), None, (np.array([True, False, False, True]),), (None,)
    )
    figure = selection_history([row], [3], (2, 2))
    assert len(figure.axes[0].collections) == 1
    assert not figure.axes[0].texts
