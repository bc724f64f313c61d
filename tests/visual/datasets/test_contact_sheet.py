"""The contact sheet: what is drawn where."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from slimreid.errors import ConfigError
from slimreid.visual.datasets.contact_sheet import ContactRow, draw_contact_sheet

RED, GREEN, BLUE = (220, 10, 10), (10, 200, 10), (10, 10, 220)


def solid(colour: tuple[int, int, int], size: tuple[int, int] = (40, 80)) -> Image.Image:
    return Image.new("RGB", size, colour)


def box_of(sheet: Image.Image, colour: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """Left, top, right, bottom (exclusive) of all pixels of exactly this colour."""
    rows, cols = np.nonzero((np.asarray(sheet) == colour).all(axis=2))
    assert len(rows), f"no pixel is {colour}"
    return int(cols.min()), int(rows.min()), int(cols.max()) + 1, int(rows.max()) + 1


def test_modalities_stand_side_by_side_at_the_asked_height():
    row = ContactRow("id 1", [{"rgb": solid(RED), "nir": solid(GREEN), "tir": solid(BLUE)}], ["camera 1"])
    sheet = draw_contact_sheet([row], ("rgb", "nir", "tir"), cell_height=120)
    red, green, blue = (box_of(sheet, c) for c in (RED, GREEN, BLUE))
    assert red[3] - red[1] == 120
    assert red[2] - red[0] == 60
    assert red[1] == green[1] == blue[1]
    assert red[2] < green[0] < green[2] < blue[0]


def test_samples_go_right_and_identities_go_down():
    rows = [
        ContactRow("a", [{"rgb": solid(RED)}, {"rgb": solid(GREEN)}], ["camera 1", "camera 2"]),
        ContactRow("b", [{"rgb": solid(BLUE)}], ["camera 1"]),
    ]
    sheet = draw_contact_sheet(rows, ["rgb"])
    red, green, blue = (box_of(sheet, c) for c in (RED, GREEN, BLUE))
    assert green[0] > red[2]
    assert blue[1] > red[3]
    assert blue[0] == red[0]


@pytest.mark.parametrize("images", [{"rgb": solid(RED), "tir": None}, {"rgb": solid(RED)}])
def test_an_absent_modality_is_a_hatched_box(images):
    full = draw_contact_sheet([ContactRow("a", [{"rgb": solid(RED), "tir": solid(BLUE)}])], ["rgb", "tir"])
    sheet = draw_contact_sheet([ContactRow("a", [images])], ["rgb", "tir"])
    assert sheet.size == full.size
    left, top, right, bottom = box_of(full, BLUE)
    box = np.asarray(sheet)[top:bottom, left:right]
    tones = np.unique(box.reshape(-1, 3), axis=0)
    assert len(tones) == 2
    assert np.ptp(tones, axis=1).max() < 12
    assert 0.1 < (box == tones[0]).all(axis=2).mean() < 0.6


def test_header_label_and_caption_are_written():
    def ink(label: str, caption: str, modality: str) -> np.ndarray:
        row = ContactRow(label, [{modality: solid(RED)}], [caption])
        return np.asarray(draw_contact_sheet([row], [modality]).convert("L"), int)

    plain = ink("id 1", "camera 1", "rgb")
    for words in (("id 2", "camera 1", "rgb"), ("id 1", "camera 7", "rgb"), ("id 1", "camera 1", "tir")):
        other = ink(*words)
        width = min(plain.shape[1], other.shape[1])
        assert (plain[:, :width] != other[:, :width]).any()


def test_greyscale_and_other_shapes_fit_in_their_cells():
    wide, grey = solid(RED, (100, 50)), Image.new("L", (30, 60), 90)
    row = ContactRow("a", [{"rgb": wide, "nir": grey}])
    sheet = draw_contact_sheet([row], ["rgb", "nir"], cell_height=64)
    red = box_of(sheet, RED)
    assert (red[2] - red[0], red[3] - red[1]) == (128, 64)
    shade = box_of(sheet, (90, 90, 90))
    assert shade[2] - shade[0] == 32


def test_long_captions_are_cut_and_rows_may_differ_in_length():
    rows = [
        ContactRow("a", [{"rgb": solid(RED)}, {"rgb": solid(GREEN)}], ["x" * 400, "short"]),
        ContactRow("b", [], []),
    ]
    sheet = draw_contact_sheet(rows, ["rgb"])
    assert sheet.width < 400
    assert box_of(sheet, GREEN)


def test_nothing_to_draw_and_wrong_captions_are_refused():
    with pytest.raises(ConfigError, match="at least one modality and one sample"):
        draw_contact_sheet([], ["rgb"])
    with pytest.raises(ConfigError, match="at least one modality and one sample"):
        draw_contact_sheet([ContactRow("a", [{"rgb": solid(RED)}])], [])
    with pytest.raises(ConfigError, match="cell_height"):
        draw_contact_sheet([ContactRow("a", [{"rgb": solid(RED)}])], ["rgb"], cell_height=2)
    with pytest.raises(ConfigError, match="row 'a' has 1 samples but 2 captions"):
        ContactRow("a", [{"rgb": solid(RED)}], ["one", "two"])
