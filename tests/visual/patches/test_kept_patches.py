"""Kept patches: what is bright, dim, coloured and outlined lies where the patches are."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

from slimreid.config.token_reduction import DEMO_SDTPS
from slimreid.errors import ConfigError, DataError
from slimreid.token_reduction import AfterBackboneReducer
from slimreid.visual.patches.figure import draw_kept_patches, view_panels
from slimreid.visual.patches.kept_patches import (
    DIM,
    PatchStage,
    PatchView,
    brighten,
    dim_dropped,
    heat_over,
    outlines,
    reduced_views,
    spread_over_pixels,
)
from slimreid.visual.style import DARK, LIGHT, png_bytes

GRID = (4, 2)
SIZE = (32, 16)
"""Height and width: patches of 8 pixels."""


def photo(value: int = 200) -> Image.Image:
    return Image.new("RGB", SIZE[::-1], (value, value, value))


def box(patch: int, scale: int = 1):
    """Rows and columns of the pixels of a patch."""
    row, column = divmod(patch, GRID[1])
    return slice(8 * row * scale, 8 * (row + 1) * scale), slice(8 * column * scale, 8 * (column + 1) * scale)


def stage(**options):
    values = np.linspace(0.1, 0.8, 8)
    terms = {"learned": values, "self": values[::-1], "nir": None, "tir": np.full(8, 0.5)}
    weights = np.array([[0.25, 0.25, 0.25, 0.25], [0.7, 0.1, 0.1, 0.1]])
    given = {"score": values, "terms": terms, "weights": weights} | options
    return PatchStage.from_index([7, 6, 5, 1], 8, **given)


def test_kept_patches_stay_bright_and_others_dim():
    pixels = np.asarray(photo())
    kept = PatchStage.from_index([0, 5], 8).kept
    dimmed = dim_dropped(pixels, kept, GRID)
    for patch in range(8):
        part = dimmed[box(patch)]
        assert (part == (200 if patch in (0, 5) else int(200 * DIM))).all()


def test_an_uneven_grid_covers_every_pixel_once():
    spread = spread_over_pixels(np.arange(6), (3, 2), (7, 5))
    assert spread.shape == (7, 5)
    counts = np.bincount(spread.ravel(), minlength=6)
    assert counts.sum() == 35
    assert counts.min() >= 4
    assert_array_equal(np.unique(spread[:, 0]), [0, 2, 4])


def test_dark_images_are_brightened_and_bright_ones_left_alone():
    dark = np.full((8, 8, 3), 20, dtype=np.uint8)
    assert (brighten(dark) == 80).all()
    assert (brighten(dark * 0) == 0).all()
    bright = np.full((8, 8, 3), 230, dtype=np.uint8)
    assert_array_equal(brighten(bright), bright)


def test_heat_goes_from_the_least_value_to_the_largest():
    import matplotlib

    pixels = np.zeros((*SIZE, 3), dtype=np.uint8)
    values = np.array([5.0, 1.0, 2.0, 3.0, 4.0, 9.0, 1.5, np.nan])
    heat = heat_over(pixels, values, GRID, "viridis", alpha=1.0)
    low, high = (np.round(np.array(matplotlib.colormaps["viridis"](v)[:3]) * 255) for v in (0.0, 1.0))
    assert_allclose(heat[box(1)][3, 3], low)
    assert_allclose(heat[box(5)][3, 3], high)
    assert (heat[box(7)] == 0).all(), "a patch that was gone is not coloured"
    assert_array_equal(heat[box(3)][0, 0], heat[box(3)][7, 7])
    flat = heat_over(pixels, np.full(8, 0.5), GRID)
    assert len(np.unique(flat.reshape(-1, 3), axis=0)) == 1


def test_outlines_lie_between_kept_and_dropped():
    kept = PatchStage.from_index([0], 8).kept
    lines = {tuple(sorted(line)) for line in outlines(kept, GRID, SIZE)}
    assert lines == {((0, 0), (8, 0)), ((0, 8), (8, 8)), ((0, 0), (0, 8)), ((8, 0), (8, 8))}
    everything = outlines(np.ones(8, dtype=bool), GRID, SIZE)
    assert len(everything) == 2 * (GRID[0] + GRID[1]), "only the border"
    assert outlines(np.zeros(8, dtype=bool), GRID, SIZE) == []


def test_stages_from_an_index():
    found = stage()
    assert_array_equal(np.flatnonzero(found.kept), [1, 5, 6, 7])
    assert_allclose(found.weights.sum(1), 1)
    assert found.weights[1, 7] == 0.7, "weights follow the order of the index"
    assert (found.weights[:, ~found.kept] == 0).all()
    assert found.sharpest_token() == 1
    with pytest.raises(DataError, match="kept patches must be 0 to 7, not 3 to 8"):
        PatchStage.from_index([3, 8], 8)
    with pytest.raises(DataError, match=r"self must be \(8,\)"):
        stage(terms={"self": np.zeros(4)})
    with pytest.raises(DataError, match=r"weights must be \(tokens, 8\)"):
        PatchStage(found.kept, weights=np.ones((2, 4)))
    with pytest.raises(DataError, match="kept must be bool"):
        PatchStage(np.zeros(8))
    with pytest.raises(ConfigError, match="does not merge"):
        stage(weights=None).sharpest_token()
    with pytest.raises(DataError, match="8 patches do not fill a grid of 3 × 2"):
        PatchView("rgb", photo(), (3, 2), (found,))


def test_one_stage_shows_everything_in_a_row():
    (panels,) = view_panels(PatchView("rgb", photo(), GRID, (stage(),)))
    titles = [panel.title for panel in panels]
    assert titles == ["image", "learned", "self", "no nir", "by tir", "score", "kept", "token 1"]
    captions = {panel.title: panel.caption for panel in panels}
    assert captions["learned"] == "0.10 – 0.80"
    assert captions["kept"] == "4 of 8"
    assert captions["token 1"] == "to 70.0 %"
    assert panels[3].pixels is None
    kept = panels[6].pixels
    scale = kept.shape[0] // SIZE[0]
    assert kept[box(7, scale)].min() == 200
    assert kept[box(0, scale)].max() == int(200 * DIM)
    (panels,) = view_panels(PatchView("rgb", photo(), GRID, (stage(),)), token=0)
    assert panels[-1].title == "token 0"
    assert panels[-1].caption == "to 25.0 %"


def test_every_stage_has_a_row():
    first, second = stage(label="block 4", weights=None), stage(label="block 7")
    view = PatchView("rgb", photo(), GRID, (first, second))
    rows = view_panels(view)
    assert [len(panels) for panels in rows] == [7, 7]
    assert rows[0][0].title == "image"
    assert rows[1][0].title == "learned"
    assert rows[1][-2].title == "block 7"


def test_tokens_that_do_not_exist_are_refused():
    view = PatchView("rgb", photo(), GRID, (stage(),))
    with pytest.raises(ConfigError, match="--token 2 does not exist; merged tokens are 0 to 1"):
        view_panels(view, token=2)
    with pytest.raises(ConfigError, match="does not merge"):
        view_panels(PatchView("rgb", photo(), GRID, (stage(weights=None),)), token=0)
    with pytest.raises(ConfigError, match="no image"):
        draw_kept_patches([PatchView("rgb", None, GRID)])


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_the_figure_has_its_pictures_where_it_says(look):
    views = [PatchView("rgb", photo(), GRID, (stage(),)), PatchView("nir", None, GRID)]
    figure = draw_kept_patches(views, look, title="sample 3")
    texts = {t.get_text() for t in figure.texts}
    assert {"sample 3", "visible", "near infrared", "kept"} <= texts
    titled = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    assert list(titled) == ["image", "learned", "self", "by tir", "score", "kept", "token 1"]
    assert [axes.texts[0].get_text() for axes in figure.axes if not axes.images] == ["no nir", "no nir"]
    canvas = np.asarray(Image.open(io.BytesIO(png_bytes(figure, dpi=100))).convert("RGB")).astype(int)
    height, width = canvas.shape[:2]
    place = titled["kept"].get_position()

    def at(patch):
        row, column = divmod(patch, GRID[1])
        x = place.x0 + place.width * (column + 0.5) / GRID[1]
        y = place.y1 - place.height * (row + 0.5) / GRID[0]
        return canvas[round((1 - y) * height), round(x * width)]

    for patch in range(8):
        wanted = 200 if patch in (7, 6, 5, 1) else int(200 * DIM)
        assert_allclose(at(patch), wanted, atol=2)


def slim(present=None, **changes):
    torch.manual_seed(0)
    options = replace(DEMO_SDTPS, **changes)
    slimmer = AfterBackboneReducer(8, ("rgb", "nir", "tir"), options, num_patches=8).eval()
    vectors = torch.randn(2, 3, 8)
    with torch.no_grad():
        return slimmer(torch.randn(2, 3, 8, 8), vectors, present)


def test_views_are_what_the_reducer_returns():
    slimmed = slim()
    images = {name: photo() for name in ("rgb", "nir", "tir")}
    views = reduced_views(slimmed, 1, images, ("rgb", "nir", "tir"), GRID)
    assert [view.modality for view in views] == ["rgb", "nir", "tir"]
    for m, view in enumerate(views):
        (found,) = view.stages
        index = slimmed.selection.index[1, m]
        assert_array_equal(np.flatnonzero(found.kept), index.sort().values)
        assert list(found.terms) == ["learned", "self", *(n for n in images if n != view.modality)]
        assert_allclose(found.terms["self"], slimmed.selection.scores["self"][1, m])
        assert_allclose(found.score, slimmed.selection.score[1, m])
        assert_allclose(found.weights[:, index], slimmed.weights[0][1, m], atol=1e-7)
        assert found.score[found.kept].min() >= found.score[~found.kept].max()


def test_absent_modalities_are_absent_everywhere():
    present = torch.tensor([[True, True, True], [True, False, True]])
    slimmed = slim(present, merge="none")
    images = {"rgb": photo(), "tir": photo()}
    rgb, nir, tir = reduced_views(slimmed, 1, images, ("rgb", "nir", "tir"), GRID, present)
    assert nir.image is None
    assert nir.stages == ()
    assert rgb.stages[0].terms["nir"] is None
    assert tir.stages[0].terms["nir"] is None
    assert rgb.stages[0].terms["tir"].max() == pytest.approx(1)
    assert rgb.stages[0].weights is None
