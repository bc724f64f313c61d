"""The synthetic world: who is who, what the pictures show, and how they are written."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from slimreid.config.synthetic import nuisances
from slimreid.data.synthetic import SynthOptions, generate, make_world, render
from slimreid.data.synthetic.generate import MODALITY_FOLDERS, SPLIT_FOLDERS
from slimreid.data.synthetic.objects.identity import draw_identities, family_sizes
from slimreid.data.synthetic.objects.looks import MODALITIES
from slimreid.data.synthetic.render import render_sample
from slimreid.data.synthetic.scenery.canvas import CHANNELS, PATTERNS, Coat, paint, polygon, tube
from slimreid.data.synthetic.scenery.sensor import time_shares
from slimreid.errors import ConfigError, DataError

OBJECTS = ("people", "vehicles")
SMALL = SynthOptions(identities=8, cameras=2, images_per_camera=2, seed=5)


# ---- who is who


@pytest.mark.parametrize("objects", OBJECTS)
@pytest.mark.parametrize("count", [12, 17, 64])
def test_no_single_modality_tells_identities_apart_but_all_together_do(objects, count):
    everybody = draw_identities(SynthOptions(identities=count, objects=objects))
    for split in SPLIT_FOLDERS:
        people = [i for i in everybody if i.split == split]
        for modality in MODALITIES:
            twins = Counter(i.seen_in([modality]) for i in people)
            assert min(twins.values()) >= 2, f"{modality} alone singles somebody out"
            assert len(twins) >= 2, f"{modality} says nothing"
        assert len({i.seen_in(MODALITIES) for i in people}) == len(people)


def test_two_modalities_settle_a_family_of_four():
    everybody = draw_identities(SynthOptions(identities=64))
    members = [i for i in everybody if i.split == "train" and i.family == 3]
    assert len(members) == 4
    for pair in itertools.combinations(MODALITIES, 2):
        assert len({i.seen_in(pair) for i in members}) == 4


def test_identities_of_train_and_test_are_disjoint_and_numbered_from_one():
    identities = draw_identities(SynthOptions(identities=10, test_share=0.3))
    assert [i.number for i in identities] == list(range(1, 11))
    assert [i.split for i in identities] == ["train"] * 7 + ["test"] * 3


@given(st.integers(2, 500))
def test_families_add_up_and_leave_nobody_alone(count):
    sizes = family_sizes(count)
    assert sum(sizes) == count
    assert all(4 <= size <= 7 for size in sizes) or count < 4


@pytest.mark.parametrize("objects", OBJECTS)
@pytest.mark.parametrize("changed", MODALITIES)
def test_each_look_shows_in_its_own_modality_only(objects, changed):
    options = SynthOptions(identities=8, objects=objects, difficulty=0.5)
    one, *others = draw_identities(options)
    other = next(i for i in others if i.looks[changed] != one.looks[changed])
    swapped = replace(one, looks={**one.looks, changed: other.looks[changed]})
    before, after = (render_sample(options, i, 1, 0) for i in (one, swapped))
    for modality in MODALITIES:
        same = before.images[modality].tobytes() == after.images[modality].tobytes()
        assert same == (modality != changed)
    assert before.mask.tobytes() == after.mask.tobytes()


# ---- neither solved nor noise


def pixel_features(options: SynthOptions) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Down-scaled pixels of the test samples per modality, mean of the set removed; identities, cameras."""
    height, width = options.image_size
    pixels: dict[str, list[np.ndarray]] = {modality: [] for modality in MODALITIES}
    identities, cameras = [], []
    for identity in (i for i in draw_identities(options) if i.split == "test"):
        for camera, number in itertools.product(
            range(1, options.cameras + 1), range(options.images_per_camera)
        ):
            sample = render_sample(options, identity, camera, number)
            identities.append(identity.number)
            cameras.append(camera)
            for modality, image in sample.images.items():
                small = image.resize((width // 8, height // 8), Image.Resampling.BOX)
                pixels[modality].append(np.asarray(small, np.float64).ravel())
    features = {modality: np.stack(rows) - np.mean(rows, axis=0) for modality, rows in pixels.items()}
    return features, np.array(identities), np.array(cameras)


def pixel_map(features: np.ndarray, identities: np.ndarray, cameras: np.ndarray) -> tuple[float, float]:
    """(mAP by cosine, expected mAP of a random order), same identity and camera dropped."""
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    found, chance = [], []
    for query, feature in enumerate(features):
        keep = (identities != identities[query]) | (cameras != cameras[query])
        order = np.argsort(-(features[keep] @ feature), kind="stable")
        hits = (identities[keep] == identities[query])[order]
        found.append(float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean()))
        N, R = len(hits), int(hits.sum())
        harmonic = float((1 / np.arange(1, N + 1)).sum())
        chance.append((harmonic + (R - 1) / (N - 1) * (N - harmonic)) / N)
    return float(np.mean(found)), float(np.mean(chance))


@functools.cache
def baseline(objects: str, difficulty: float, seed: int) -> dict[str, float]:
    options = SynthOptions(
        identities=24,
        cameras=3,
        images_per_camera=2,
        test_share=0.5,
        objects=objects,
        difficulty=difficulty,
        seed=seed,
    )
    features, identities, cameras = pixel_features(options)
    scores = {s: pixel_map(f, identities, cameras)[0] for s, f in features.items()}
    everything = np.concatenate(list(features.values()), axis=1)
    scores["all"], scores["chance"] = pixel_map(everything, identities, cameras)
    return scores


def test_expected_map_of_a_random_order_is_right():
    rng = np.random.default_rng(0)
    identities, cameras = np.repeat(np.arange(6), 6), np.tile(np.repeat([1, 2, 3], 2), 6)
    draws = [pixel_map(rng.standard_normal((36, 64)), identities, cameras) for _ in range(60)]
    assert np.mean([found for found, _ in draws]) == pytest.approx(draws[0][1], abs=0.01)


@pytest.mark.parametrize("objects", OBJECTS)
def test_pixels_neither_solve_the_world_nor_find_it_noise(objects):
    runs = [baseline(objects, 0.5, seed) for seed in (0, 1)]
    mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    assert 1.8 * mean["chance"] < mean["all"] < 0.45, mean
    for modality in MODALITIES:
        assert 1.1 * mean["chance"] < mean[modality] < mean["all"], mean


def test_difficulty_makes_it_harder():
    easy, middle, hard = (baseline("people", difficulty, 1) for difficulty in (0.0, 0.5, 1.0))
    assert easy["all"] > middle["all"] + 0.1
    assert middle["all"] > hard["all"] + 0.05
    assert max(easy[s] for s in MODALITIES) < 0.6 < easy["all"], easy


def test_nuisances_are_off_at_zero_full_at_one_and_never_fall():
    assert set(vars(nuisances(0)).values()) == {0.0}
    assert set(vars(nuisances(1)).values()) == {1.0}
    steps = [list(vars(nuisances(d)).values()) for d in np.linspace(0, 1, 11)]
    assert (np.diff(np.array(steps), axis=0) > 0).all()


# ---- what the pictures show


@functools.cache
def samples_by_time(objects: str, wanted: int = 4) -> dict[str, list]:
    options = SynthOptions(identities=8, objects=objects, difficulty=1.0, images_per_camera=6)
    found: dict[str, list] = {"day": [], "noon": [], "night": [], "dusk": []}
    for identity, camera, number in itertools.product(draw_identities(options), (1, 2), range(6)):
        sample = render_sample(options, identity, camera, number)
        found[sample.conditions.time].append(sample)
        if all(len(samples) >= wanted for samples in found.values()):
            break
    return found


@pytest.mark.parametrize("objects", OBJECTS)
def test_nights_are_dark_in_rgb_but_not_in_thermal(objects):
    found = samples_by_time(objects)
    level = {
        (time, modality): np.mean([np.asarray(s.images[modality]).mean() for s in samples])
        for time, samples in found.items()
        for modality in MODALITIES
    }
    assert level["night", "rgb"] < 30
    assert level["night", "rgb"] < 0.4 * level["day", "rgb"]
    assert level["night", "tir"] > 45
    assert max(np.asarray(s.images["rgb"]).mean() for s in found["night"]) < 60


def test_thermal_contrast_of_people_vanishes_at_noon():
    def contrast(samples: list) -> float:
        differences = []
        for sample in samples:
            picture, mask = np.asarray(sample.images["tir"], float), np.asarray(sample.mask) > 0
            if mask.any():
                differences.append(picture[mask].mean() - picture[~mask].mean())
        return float(np.mean(np.abs(differences)))

    found = samples_by_time("people")
    assert contrast(found["noon"]) < 0.6 * contrast(found["night"])


@pytest.mark.parametrize("difficulty", [0.0, 0.3, 1.0])
def test_times_of_day_are_a_distribution(difficulty):
    shares = time_shares(difficulty)
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) >= 0
    assert (shares["night"] > 0) == (difficulty > 0)


@pytest.mark.parametrize("objects", OBJECTS)
def test_the_mask_covers_the_object_and_the_modalities_are_aligned_with_it(objects):
    options = SynthOptions(identities=8, objects=objects, difficulty=0.0)
    for identity in draw_identities(options)[:4]:
        sample = render_sample(options, identity, 1, 0)
        mask = np.asarray(sample.mask)
        assert set(np.unique(mask)) == {0, 255}
        assert 0.12 < (mask > 0).mean() < 0.75
        rows, cols = np.nonzero(mask)
        height, width = mask.shape
        assert height * 0.2 < rows.mean() < height * 0.8
        assert width * 0.3 < cols.mean() < width * 0.7
        for image in sample.images.values():
            assert image.size == sample.mask.size


def object_channel(canvas: np.ndarray, *_: object, **__: object) -> np.ndarray:
    return canvas[..., 6]


def shift_against(reference: np.ndarray, image: np.ndarray) -> tuple[int, int]:
    """Rows and columns by which `image` must be moved to agree best with `reference`."""
    steps = itertools.product(range(-3, 4), repeat=2)
    return min(steps, key=lambda step: np.abs(np.roll(image, step, (0, 1)) - reference)[3:-3, 3:-3].sum())


@pytest.mark.parametrize(("difficulty", "reach"), [(0.0, 0), (0.5, 1), (1.0, 2)])
def test_modalities_are_misaligned_by_no_more_than_two_pixels(monkeypatch, difficulty, reach):
    monkeypatch.setattr(render, "SENSORS", dict.fromkeys(MODALITIES, object_channel))
    options = SynthOptions(identities=8, difficulty=difficulty)
    shifts = []
    for identity in draw_identities(options):
        sample = render_sample(options, identity, 1, 0)
        mask = np.asarray(sample.mask, float)
        pictures = {name: np.asarray(image, float) for name, image in sample.images.items()}
        assert shift_against(mask, pictures["rgb"]) == (0, 0)
        shifts += [shift_against(mask, pictures[name]) for name in MODALITIES[1:]]
    assert max(abs(n) for shift in shifts for n in shift) == reach


def test_occluders_hide_parts_of_some_objects_and_the_mask_knows(monkeypatch):
    options = SynthOptions(identities=8, difficulty=1.0)
    cases = [(identity, number) for identity in draw_identities(options)[:4] for number in range(4)]

    def visible() -> np.ndarray:
        return np.array([(np.asarray(render_sample(options, i, 1, n).mask) > 0).mean() for i, n in cases])

    occluded = visible()
    monkeypatch.setattr(render, "_occlude", lambda *_: None)
    clear = visible()
    assert (occluded <= clear).all()
    assert 0.2 < (occluded < 0.97 * clear).mean() < 0.9


@settings(max_examples=8, deadline=None)
@given(
    st.tuples(st.integers(16, 80), st.integers(16, 80)),
    st.sampled_from(OBJECTS),
    st.floats(0, 1),
    st.integers(0, 2**40),
)
def test_any_size_difficulty_and_seed_can_be_rendered(size, objects, difficulty, seed):
    options = SynthOptions(identities=4, size=size, objects=objects, difficulty=difficulty, seed=seed)
    sample = render_sample(options, draw_identities(options)[0], 2, 1)
    assert {name: image.size for name, image in sample.images.items()} == dict.fromkeys(
        MODALITIES, size[::-1]
    )
    assert sample.images["rgb"].mode == "RGB"
    assert sample.images["tir"].mode == "L"


def test_shapes_are_anti_aliased_and_have_the_right_area():
    canvas = np.zeros((80, 80, CHANNELS), np.float32)
    coat = Coat(np.ones(6, np.float32), np.ones(6, np.float32), {})
    paint(canvas, tube(canvas, (30.3, 20.0), (30.3, 60.0), [10.0, 10.0]), coat, is_object=True)
    assert canvas[..., 6].sum() == pytest.approx(20 * 40 + np.pi * 100, rel=0.01)
    assert ((canvas[..., 6] > 0.05) & (canvas[..., 6] < 0.95)).any()
    canvas[:] = 0
    paint(canvas, polygon(canvas, [(10, 10), (50, 10), (50, 40), (10, 40)]), coat, is_object=True)
    assert canvas[..., 6].sum() == pytest.approx(40 * 30, rel=0.03)
    assert tube(canvas, (200, 200), (220, 220), [3.0, 3.0]) is None
    assert polygon(canvas, [(-9, -9), (-5, -9), (-5, -5)]) is None


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_patterns_mix_within_bounds_and_show_somewhere(pattern):
    t, v = np.meshgrid(np.linspace(0, 1, 64), np.linspace(-np.pi, np.pi, 64), indexing="ij")
    mix = PATTERNS[pattern](t, v)
    assert mix.min() >= 0
    assert mix.max() <= 1
    assert mix.max() - mix.min() > 0.9


# ---- on disk


def fingerprint(root: Path) -> dict[str, str]:
    files = sorted(p for p in root.rglob("*") if p.is_file())
    return {p.relative_to(root).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("synthetic") / "world"
    assert make_world(out, SMALL, workers=2) == 8 * 2 * 2
    return out


def test_layout_is_that_of_rgbnt201_with_masks_beside(world):
    test_count = SMALL.test_identities
    counts = {"train": (8 - test_count) * 4, "test": test_count * 4}
    for split, folder in SPLIT_FOLDERS.items():
        stems = {
            name: {p.stem for p in (world / folder / name).iterdir()} for name in MODALITY_FOLDERS.values()
        }
        masks = {p.stem for p in (world / "masks" / folder).iterdir()}
        assert all(found == masks for found in stems.values())
        assert len(masks) == counts[split]
    assert (world / "train_171" / "RGB" / "000001_cam1_0_00.jpg").is_file()
    train = {p.name[:6] for p in (world / "train_171" / "RGB").iterdir()}
    assert not train & {p.name[:6] for p in (world / "test" / "RGB").iterdir()}


def test_files_have_the_right_size_and_kind(world):
    for path in sorted(world.rglob("000003_cam2_0_01.*")):
        with Image.open(path) as image:
            image.load()
            assert image.size == (64, 128)
            assert image.mode == ("RGB" if path.parent.name == "RGB" else "L")


def test_bytes_do_not_depend_on_workers_and_follow_the_seed(world, tmp_path):
    make_world(tmp_path / "again", SMALL, workers=1)
    assert fingerprint(tmp_path / "again") == fingerprint(world)
    make_world(tmp_path / "other", replace(SMALL, seed=6), workers=1)
    one, other = fingerprint(world), fingerprint(tmp_path / "other")
    assert one.keys() == other.keys()
    assert not {p for p in one if p.endswith(".jpg") and one[p] == other[p]}


def test_an_occupied_folder_is_refused_and_left_alone(tmp_path):
    keep = tmp_path / "out" / "keep.txt"
    keep.parent.mkdir()
    keep.write_text("mine")
    with pytest.raises(DataError, match=r"out.*choose another folder"):
        make_world(keep.parent, SMALL)
    assert keep.read_text() == "mine"
    with pytest.raises(DataError, match=r"keep\.txt"):
        make_world(keep, SMALL)


def test_an_empty_folder_is_used_and_parents_are_made(tmp_path):
    out = tmp_path / "a" / "b"
    out.mkdir(parents=True)
    tiny = SynthOptions(identities=4, cameras=2, images_per_camera=1, size=(32, 16))
    assert make_world(out, tiny, workers=1) == 8
    assert make_world(tmp_path / "x" / "y", tiny, workers=1) == 8
    assert fingerprint(out) == fingerprint(tmp_path / "x" / "y")


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_left_behind_when_it_breaks(tmp_path, monkeypatch, workers):
    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(generate, "render_sample", broken)
    monkeypatch.setattr(generate, "worker_pool", ThreadPoolExecutor)  # threads see the patch too
    with pytest.raises(OSError, match="disk full"):
        make_world(tmp_path / "out", SMALL, workers=workers)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("identities", 3),
        ("cameras", 1),
        ("images_per_camera", 0),
        ("images_per_camera", 1.5),
        ("seed", -1),
        ("objects", "cats"),
        ("difficulty", 1.2),
        ("difficulty", float("nan")),
        ("test_share", 0.0),
        ("size", (8, 64)),
        ("size", (128, 64, 3)),
        ("size", (128.0, 64.0)),
    ],
)
def test_options_out_of_range_are_refused_by_name(key, value):
    with pytest.raises(ConfigError, match=key):
        SynthOptions(**{key: value})


def test_workers_must_be_positive(tmp_path):
    with pytest.raises(ConfigError, match="workers"):
        make_world(tmp_path / "w", SMALL, workers=0)


def test_default_size_follows_the_objects():
    assert SynthOptions().image_size == (128, 64)
    assert SynthOptions(objects="vehicles").image_size == (64, 128)
    assert SynthOptions(size=[96, 48]).image_size == (96, 48)
    assert SynthOptions(identities=64).test_identities == 21
