from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal

from slimreid.data.simulate import images as simulate
from slimreid.data.simulate import scene as simulate_scene
from slimreid.data.simulate.images import read_camera, sample_seed, simulate_modalities
from slimreid.data.simulate.scene import blur, read_scene
from slimreid.errors import DataError

SHIRT, TROUSERS, SKIN = (170, 40, 60), (40, 50, 90), (205, 150, 125)


def person(height=128, width=64, shirt=SHIRT, trousers=TROUSERS, skin=SKIN, noise=6, seed=0):
    """A person of plain colours in front of a grey street with a lawn at the top."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    y, x = (y + 0.5) / height, (x + 0.5) / width - 0.5
    image = np.empty((height, width, 3))
    image[:] = (120, 118, 115)
    image[y < 0.25] = (70, 130, 60)
    image[(np.abs(x) < 0.25) & (y > 0.18) & (y < 0.52)] = shirt
    image[(np.abs(x) < 0.20) & (y >= 0.52) & (y < 0.97)] = trousers
    image[(x / 0.11) ** 2 + ((y - 0.11) / 0.075) ** 2 < 1] = skin
    image += random.normal(0, noise, image.shape)
    return np.clip(image, 0, 255).astype(np.uint8)


def run(rgb, camera="c1", seed=0):
    return simulate_modalities(rgb, camera, sample_seed(seed, camera, rgb))


def explained_by_colour(rgb, values):
    """Share of the variance of `values` that any function of the pixel's colour could give."""
    _, group = np.unique(rgb.reshape(-1, 3), axis=0, return_inverse=True)
    group, values = group.ravel(), values.reshape(-1).astype(float)
    means = np.bincount(group, values) / np.bincount(group)
    return 1 - ((values - means[group]) ** 2).mean() / values.var()


# --- shapes and refusals ---------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (9, 1), (8, 4), (4, 8), (33, 65), (128, 64), (200, 90)])
def test_shapes(shape):
    modalities = run(np.full((*shape, 3), 90, np.uint8))
    assert list(modalities) == ["nir", "tir"]
    for image in modalities.values():
        assert image.shape == shape
        assert image.dtype == np.uint8


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((8, 4), np.uint8),
        np.zeros((8, 4, 4), np.uint8),
        np.zeros((8, 4, 3), np.float32),
        np.zeros((0, 4, 3), np.uint8),
    ],
)
def test_other_arrays_are_refused(bad):
    with pytest.raises(DataError, match=r"uint8 \(H, W, 3\)"):
        simulate_modalities(bad, "c1", 0)


@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(np.uint8, st.tuples(st.integers(1, 20), st.integers(1, 20), st.just(3))),
    st.text(max_size=5),
    st.integers(0, 2**64 - 1),
)
def test_any_picture_has_finite_estimates_and_repeats(rgb, camera, seed):
    scene = read_scene(rgb)
    H, W, _ = rgb.shape
    for name in ("luma", "skin", "vegetation", "sky", "body"):
        value = getattr(scene, name)
        assert value.shape == (H, W)
        assert value.min() >= 0, name
        assert value.max() <= 1 + 1e-5, name
    assert np.isfinite(scene.height).all()
    assert_allclose(scene.shares.sum(axis=0), 1, atol=1e-5)
    first, second = (simulate_modalities(rgb, camera, seed) for _ in range(2))
    for name in first:
        assert_array_equal(first[name], second[name])


# --- what decides the bytes ------------------------------------------------------------------


def test_deterministic_and_independent_of_memory_layout():
    rgb = person()
    reference = run(rgb)
    for other in (rgb.copy(), np.asfortranarray(rgb), rgb[::-1][::-1]):
        again = run(other)
        for name in reference:
            assert_array_equal(again[name], reference[name])


def test_input_is_left_alone():
    rgb = person()
    before = rgb.copy()
    rgb.setflags(write=False)
    run(rgb)
    assert_array_equal(rgb, before)


def test_seed_comes_from_run_camera_and_pixels():
    rgb = person(16, 8)
    seed = sample_seed(0, "c1", rgb)
    assert seed == sample_seed(0, "c1", rgb.copy())
    changed = rgb.copy()
    changed[3, 3, 0] ^= 1
    others = [
        sample_seed(1, "c1", rgb),
        sample_seed(0, "c2", rgb),
        sample_seed(0, "c1", changed),
        sample_seed(0, "c1", rgb.reshape(8, 16, 3)),
    ]
    assert len({seed, *others}) == 5
    assert all(0 <= s < 2**64 for s in others)


@pytest.mark.parametrize("name", ["nir", "tir"])
def test_camera_and_run_seed_change_the_picture(name):
    rgb = person()
    reference = run(rgb)[name].astype(int)
    assert np.abs(run(rgb, camera="c2")[name] - reference).mean() > 3
    assert np.abs(run(rgb, seed=1)[name] - reference).mean() > 1


def test_camera_is_fixed_by_its_name():
    assert read_camera("c1") == read_camera("c1")
    assert len({read_camera(f"c{i}") for i in range(20)}) == 20
    for i in range(20):
        low, high = read_camera(f"c{i}").window
        assert high - low > 12


def test_recipe_stays_as_documented():
    """Golden numbers: a change of the recipe must be meant, and told to those who compare results."""
    modalities = run(person(16, 8, noise=0))
    nir = [[216, 253, 255], [106, 151, 114], [128, 132, 99], [129, 122, 107]]
    tir = [[40, 56, 53], [69, 131, 83], [59, 126, 64], [49, 129, 71]]
    assert_allclose(modalities["nir"][::5, ::3].astype(int), nir, atol=1)
    assert_allclose(modalities["tir"][::5, ::3].astype(int), tir, atol=1)


# --- what the pictures show ------------------------------------------------------------------


def mean_heat(rgb):
    """Mean over seeds, so that noise has no part in what is compared."""
    return np.mean([simulate_modalities(rgb, "c1", seed)["tir"] for seed in range(8)], axis=0)


def test_heat_is_not_a_function_of_colour():
    plain = np.full((128, 64, 3), 128, np.uint8)
    stripes = plain.copy()
    stripes[::16] = stripes[1::16] = (60, 80, 120)
    walls = person(noise=0)  # walls in the colours of the clothes on both sides
    walls[40:66, :10] = walls[40:66, -10:] = SHIRT
    walls[75:110, :10] = walls[75:110, -10:] = TROUSERS
    shares = {}
    for name, rgb in (("plain", plain), ("stripes", stripes), ("walls", walls)):
        tir = mean_heat(rgb)
        assert tir.std() > 8
        shares[name] = explained_by_colour(rgb, tir)
        assert tir[42:60, 26:38].mean() > tir[42:60, :6].mean() + 25  # same colour, other place
    assert shares["plain"] == pytest.approx(0)
    assert shares["stripes"] < 0.1
    assert shares["walls"] < 0.7


def test_explained_by_colour_can_tell_a_mere_function():
    rgb = person(noise=0)
    assert explained_by_colour(rgb, rgb @ np.array([0.3, -0.5, 0.9])) == pytest.approx(1)


def test_near_infrared_is_no_grey_version():
    """Cloth of the same brightness differs in nir, and its order is not that of the brightness."""
    colours = [(170, 40, 60), (40, 90, 150), (60, 100, 40), (110, 80, 70), (85, 85, 85), (20, 20, 20)]
    chest = []
    for colour in colours:
        images = [simulate_modalities(person(shirt=colour), "c1", seed)["nir"] for seed in range(4)]
        chest.append(np.mean([image[35:60, 22:42].mean() for image in images]))
    luma = np.array(colours) @ np.array([0.299, 0.587, 0.114])
    assert np.ptp(chest) > 25
    assert np.corrcoef(luma, chest)[0, 1] < 0.9


def test_leaves_shine_and_sky_is_black_in_near_infrared():
    grass = np.full((128, 64, 3), (70, 130, 60), np.uint8)
    street = np.full((128, 64, 3), (95, 100, 95), np.uint8)
    corner = (slice(0, 20), slice(0, 10))
    assert run(grass)["nir"][corner].mean() > run(street)["nir"][corner].mean() + 15
    sky = person(noise=0)
    sky[:24][(sky[:24] == (70, 130, 60)).all(-1)] = (235, 240, 250)
    shown = run(sky)
    for name in ("nir", "tir"):
        assert shown[name][:8, :8].mean() < shown[name][60:70, :8].mean() - 15


def test_skin_is_hotter_than_cloth_and_cloth_than_street():
    tir = run(person())["tir"].astype(float)
    head, chest, street = tir[10:18, 28:36].mean(), tir[35:60, 22:42].mean(), tir[40:110, :8].mean()
    assert head > chest + 5
    assert chest > street + 15
    arms = person()
    arms[60:80, 20:26] = SKIN
    assert run(arms)["tir"][62:78, 21:25].mean() > tir[62:78, 21:25].mean() + 5


def test_content_shows_in_heat_and_views_agree():
    """Two shots of one outfit share a pattern of heat; another outfit differs more."""

    def smooth(rgb):
        return blur(run(rgb)["tir"].astype(np.float32), 2.0)

    one, again = smooth(person(seed=1)), smooth(person(seed=2))
    other = smooth(person(shirt=(225, 225, 220), trousers=(120, 95, 60), seed=3))
    assert np.corrcoef(one.ravel(), again.ravel())[0, 1] > 0.9
    chest = (slice(30, 120), slice(16, 48))
    assert np.abs(one - other)[chest].mean() > 1.3 * np.abs(one - again)[chest].mean()


def test_body_is_found_where_it_stands():
    body = read_scene(person()).body
    assert body[30:110, 24:40].mean() > 0.85
    assert body[:, :6].mean() < 0.1
    assert body[:, -6:].mean() < 0.1


def test_grey_and_black_input():
    grey = np.repeat(person()[..., 1:2], 3, axis=-1)
    for rgb in (grey, np.zeros_like(grey), np.full_like(grey, 255)):
        modalities = run(rgb)
        assert modalities["tir"].std() > 8
        assert modalities["nir"].std() > 1


# --- the parts against plain loops -----------------------------------------------------------


def test_opponent_colours_against_a_loop():
    rgb = np.random.default_rng(0).random((5, 3)).astype(np.float32)
    for (r, g, b), found in zip(rgb.tolist(), simulate_scene.opponent(rgb), strict=True):
        light = (r + g + b) / 3
        red = math.tanh(2 * (r - g) / (light + 0.25)) / 2
        yellow = math.tanh(2 * ((r + g) / 2 - b) / (light + 0.25)) / 2
        assert_allclose(found, [light, red, yellow], atol=1e-6)


def test_assignment_against_a_loop():
    random = np.random.default_rng(1)
    points, centres = random.random((5, 11)), random.random((4, 5))
    found = simulate_scene._assign(points.astype(np.float32), centres.astype(np.float32), 7.0)
    for p in range(11):
        weights = [math.exp(-7.0 * sum((points[d, p] - c[d]) ** 2 for d in range(5))) for c in centres]
        assert_allclose(found[:, p], np.array(weights) / sum(weights), rtol=1e-4)


def test_region_means_and_paint_against_a_loop():
    scene = read_scene(person(12, 6))
    R = len(scene.colour)
    means = simulate_scene.region_means(scene.shares, scene.luma)
    painted = scene.paint(means)
    for r in range(R):
        top = sum(scene.shares[r, i, j] * scene.luma[i, j] for i in range(12) for j in range(6))
        assert means[r] == pytest.approx(top / (scene.shares[r].sum() + 1e-6), rel=1e-4, abs=1e-6)
    for i in range(12):
        for j in range(6):
            assert painted[i, j] == pytest.approx(sum(scene.shares[:, i, j] * means), rel=1e-4)


def test_regions_follow_colours():
    scene = read_scene(person(noise=0))
    inside, outside = scene.shares[:, 50, 32], scene.shares[:, 50, 4]
    assert (inside * outside).sum() < 0.05
    assert_allclose(scene.colour.T @ inside, simulate_scene.opponent(np.array(SHIRT) / 255), atol=0.05)


def test_material_table_against_a_loop():
    colour = np.random.default_rng(2).random((6, 3)).astype(np.float32)
    waves = simulate._REFLECTANCE
    for c, found in zip(colour.tolist(), simulate.material_table(waves, colour), strict=True):
        total = sum(math.sin(w[0] * c[0] + w[1] * c[1] + w[2] * c[2] + w[3]) for w in waves.tolist())
        assert found == pytest.approx(0.5 + 0.5 * min(1, max(-1, total / 3 * 1.5)), abs=1e-5)


def test_smooth_field_has_unit_variance_and_no_fine_structure():
    fields = np.stack([simulate._smooth_field(np.random.default_rng(i), 40, 20, 3) for i in range(400)])
    assert_allclose(fields.var(axis=0), 1, atol=0.35)
    assert fields.var(axis=0).mean() == pytest.approx(1, abs=0.1)
    assert np.abs(np.diff(fields, axis=1)).mean() < 0.1


def test_height_runs_along_the_body():
    body = np.zeros((100, 10), np.float32)
    body[20:80, 3:7] = 1
    height = simulate_scene._height(body)
    assert height.shape == (100, 10)
    assert height[20, 0] == pytest.approx(0, abs=0.03)
    assert height[79, 9] == pytest.approx(1, abs=0.03)
