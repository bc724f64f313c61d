"""The test on other looks from a tiny dataset and two random models to tables and picture."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import look_sets
import looks
import numpy as np
import pytest
from look_results import ALL_LOOKS, compare, missed, over_seeds, read_result, write_result
from looks_plot import looks_plot
from PIL import Image

from slimreid.cli.app import main as slimreid
from slimreid.data.images.decode import read_image
from slimreid.data.manifest import read_manifest
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.metrics.result import paired_bootstrap
from slimreid.evaluation.reports.evaluate import evaluate_model
from slimreid.inference.load import load
from support.exported import write_exported_model
from support.models import write_random_model
from support.runs import write_set

FOLDER = Path(__file__).parents[2] / "research"
SHOWN = ("dark_0.3", "occluded", "site_a")


def load_script(name):
    spec = importlib.util.spec_from_file_location(f"script_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script():
    return load_script("other_looks")


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    """12 people in a flat folder named as Market-1501 is."""
    folder = tmp_path_factory.mktemp("flat") / "people"
    folder.mkdir()
    for person in range(1, 13):
        for camera in (1, 2, 3):
            for shot in range(2):
                seed = np.random.default_rng([person, camera, shot])
                small = np.random.default_rng(person).integers(40, 216, (8, 4, 3)) + seed.integers(
                    -40, 40, (8, 4, 3)
                )
                picture = Image.fromarray(small.astype(np.uint8)).resize((16, 32))
                picture.save(folder / f"{person:04d}_c{camera}s1_{shot:06d}_01.jpg", quality=95)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two random models of three modalities."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("full", "slim")):
        write_random_model(folder / name, None, seed=seed)
    return [folder / "full", folder / "slim"]


@pytest.fixture(scope="module")
def measured(script, market, models, tmp_path_factory):
    """Folders of the results and sets of both models."""
    out, cache = (tmp_path_factory.mktemp(name) for name in ("out", "cache"))
    words = ["--data", str(market), "--identities", "6:12", "--cache", str(cache), "--out", str(out)]
    assert script.main([*map(str, models), *words, "--looks", *SHOWN, "--threshold-identities", "0:6"]) == 0
    return out, cache


def test_sets_are_datasets_of_their_own(market, tmp_path, capsys):
    source = look_sets.open_source(market, "6:12")
    sets = look_sets.make_sets(source, tmp_path, ["clean", *SHOWN])
    rows = source.manifest.samples
    assert {s.identity for s in rows} == {f"{n:04d}" for n in range(7, 13)}
    for name, path in sets.items():
        manifest = read_manifest(path)
        told = [(s.split, s.identity, s.camera) for s in manifest.samples]
        assert told == [(s.split, s.identity, s.camera) for s in rows]
        assert slimreid(["data", "check", str(path)]) == 0
        for sample, row in zip(manifest.samples[:3], rows, strict=False):
            photo = read_image(market / row.images["rgb"].path)
            key = "\0".join((row.identity, row.camera, row.images["rgb"].path))
            shown = looks.show(name, photo, modality="rgb", camera=row.camera, sample=key)
            found = read_image(path.parent / sample.images["rgb"].path)
            assert np.abs(found.astype(float) - shown).mean() < (0.01 if name == "clean" else 3)


def test_sets_are_made_once_and_for_what_they_show(market, tmp_path):
    source = look_sets.open_source(market, "6:12")
    path = look_sets.make_sets(source, tmp_path / "a", ["clean", "noise"])["noise"]
    picture = next((path.parent / "rgb").iterdir())
    before = picture.stat().st_mtime_ns
    look_sets.make_sets(source, tmp_path / "a", ["noise", "grey"])
    assert picture.stat().st_mtime_ns == before
    again = look_sets.make_sets(source, tmp_path / "b", ["noise"])["noise"]
    assert (again.parent / "rgb" / picture.name).read_bytes() == picture.read_bytes()
    fewer = look_sets.Source(source.manifest.with_samples(source.manifest.samples[:-1]), source.name)
    keys = {look_sets.sets_key(s, simulate=sim) for s in (source, fewer) for sim in (False, True)}
    assert len(keys) == 4


def test_thinning_keeps_everybody(market):
    samples = look_sets.open_source(market, "6:12").manifest.samples
    kept = look_sets.thinned(samples, 24)
    assert abs(len(kept) - 24) <= 1
    assert [s for s in samples if s in kept] == kept
    assert {s.identity for s in kept} == {s.identity for s in samples}
    shares = [sum(s.split == "query" for s in rows) / len(rows) for rows in (samples, kept)]
    assert abs(shares[0] - shares[1]) < 0.05
    assert look_sets.thinned(samples, 1000) == list(samples)


def test_simulated_modalities_get_their_looks(market, tmp_path):
    source = look_sets.open_source(market, "9:12")
    path = look_sets.make_sets(source, tmp_path, ["clean", "dark_0.3"], simulate=True)["dark_0.3"]
    manifest = read_manifest(path)
    assert manifest.modalities == ("rgb", "nir", "tir")
    assert "simulated nir/tir" in manifest.origin
    clean = read_manifest(path.parents[1] / "clean")
    rgb, nir = (
        [read_image(m.file(m.samples[0].images[name])).mean() for m in (clean, manifest)]
        for name in ("rgb", "nir")
    )
    assert abs(rgb[1] / rgb[0] - 0.3) < 0.05
    assert abs(nir[1] / nir[0] - 1) < 0.05


def test_a_dataset_with_splits_needs_no_range(models, tmp_path):
    data = write_set(tmp_path / "set")
    source = look_sets.open_source(data.parent)
    assert {s.identity for s in source.manifest.samples} == {"id9", "id10", "id11"}
    assert {s.identity for s in look_sets.open_source(data, "0:2").manifest.samples} == {"id9", "id10"}
    path = look_sets.make_sets(source, tmp_path / "looks", ["blur"])["blur"]
    made = read_manifest(path)
    assert made.modalities == ("rgb", "nir", "tir")
    assert len({s.images["rgb"].path for s in made.samples}) == len(made.samples) // 2  # query and gallery


def test_figures_are_those_of_evaluate(measured, models):
    out, cache = measured
    result = read_result(out / "full-people-6-12.json")
    assert list(result.looks) == ["clean", *SHOWN]
    (folder,) = cache.glob(f"{result.sets}-*")
    loaded = load(models[0])
    calm = evaluate_model(loaded, next(cache.glob("people-0-6-*")) / "clean").scores.operating_points[0]
    assert result.facts["threshold"] == (calm.threshold if calm.supported else None)
    for name, found in result.looks.items():
        scores = evaluate_model(loaded, folder / name).scores
        assert found.map == pytest.approx(scores.result.map, abs=1e-5)
        assert found.rank1 == pytest.approx(scores.result.rank(1), abs=1e-5)
        assert (found.low, found.high) == pytest.approx((scores.interval.low, scores.interval.high), abs=1e-5)
        assert result.share(name) == pytest.approx(found.map / result.looks["clean"].map)
    assert result.facts["identities_trained_on"] == 0


def test_false_matches_are_counted_at_the_clean_threshold(script, market, models, tmp_path):
    words = [str(models[0]), "--data", str(market), "--identities", "0:12", "--looks", "warm"]
    assert script.main([*words, "--cache", str(tmp_path / "c"), "--out", str(tmp_path)]) == 0
    result = read_result(tmp_path / "full-people-0-12.json")
    assert 0 < result.looks["clean"].false_match_rate <= 0.01
    assert 0 <= result.looks["warm"].false_match_rate <= 1
    loaded = load(models[0])
    features, who, where = {}, {}, {}
    (path,) = (tmp_path / "c").glob("*/warm/manifest.csv")
    manifest = read_manifest(path)
    for split in ("query", "gallery"):
        rows = manifest.select(split)
        pictures = {"rgb": [path.parent / s.images["rgb"].path for s in rows]}
        features[split] = loaded.embed(pictures)
        who[split], where[split] = ([getattr(s, n) for s in rows] for n in ("identity", "camera"))
    mask = np.tile([True, False, False], (max(map(len, who.values())), 1))
    scores = loaded.similarity()(
        features["query"], features["gallery"], mask[: len(who["query"])], mask[: len(who["gallery"])]
    )
    false = [
        scores[q, g] >= result.facts["threshold"]
        for q, person in enumerate(who["query"])
        for g, other in enumerate(who["gallery"])
        if person != other
    ]
    assert np.mean(false) == pytest.approx(result.looks["warm"].false_match_rate, abs=1e-6)


def test_models_are_compared_on_the_same_people(measured, capsys):
    out, _ = measured
    first, second = (read_result(out / f"{name}-people-6-12.json") for name in ("full", "slim"))
    found = compare(first, second)
    assert list(found) == ["clean", *SHOWN, ALL_LOOKS]
    for name in SHOWN:
        value = second.looks[name].map - first.looks[name].map
        assert found[name].value == pytest.approx(value, abs=1e-4)
        alone = paired_bootstrap(first.precisions([name]), second.precisions([name]))
        assert (found[name].low, found[name].high) == (alone.low, alone.high)
    assert found[ALL_LOOKS].value == pytest.approx(np.mean([found[name].value for name in SHOWN]))
    assert found[ALL_LOOKS].low <= found[ALL_LOOKS].value <= found[ALL_LOOKS].high
    with pytest.raises(DataError, match="measured on different sets"):
        compare(first, replace(second, sets="others"))


def test_seeds_are_joined_and_compared_from_files(measured, tmp_path, capsys):
    out, _ = measured
    files = [out / f"{name}-people-6-12.json" for name in ("full", "slim")]
    results = [read_result(file) for file in files]
    both = over_seeds(results, "two seeds")
    for name, found in both.looks.items():
        maps = [result.looks[name].map for result in results]
        assert found.map == pytest.approx(np.mean(maps))
        assert found.map == pytest.approx(both.precisions([name]).map, abs=1e-4)
        assert found.low < found.map < found.high
    assert compare(results[0], both)["clean"].value == pytest.approx(
        compare(*results)["clean"].value / 2, abs=1e-4
    )
    main = load_script("compare_looks").main
    joined = ",".join(map(str, files))
    picture = tmp_path / "looks.png"
    assert main([str(files[0]), f"seeds={joined}", "--markdown", "--plot", str(picture)]) == 0
    text = capsys.readouterr().out
    assert "| look | full | seeds | Δ mAP | Δ 95 % |" in text
    assert f"| clean | {100 * results[0].looks['clean'].map:.1f} |" in text
    assert Image.open(picture).size[0] > 500
    write_result(tmp_path / "other.json", replace(results[1], sets="others"))
    assert main([str(files[0]), str(tmp_path / "other.json")]) == 1
    assert "measured on different sets" in " ".join(capsys.readouterr().err.split())


def test_degradations_that_cost_too_much_are_named(measured):
    out, _ = measured
    result = read_result(out / "full-people-6-12.json")
    clean = result.looks["clean"]
    looks_ = {
        "clean": replace(clean, map=0.5),
        "dark_0.3": replace(clean, map=0.41),
        "occluded": replace(clean, map=0.39),
        "site_a": replace(clean, map=0.1),
    }
    assert missed(replace(result, looks=looks_)) == ["occluded"]  # sites are no single degradation


def test_the_picture_shows_every_model_and_look(measured):
    out, _ = measured
    results = [read_result(out / f"{name}-people-6-12.json") for name in ("full", "slim")]
    figure = looks_plot(results)
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["clean", *SHOWN]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["full", "slim"]
    assert axes.texts[1].get_text() == f"{100 * results[0].looks['dark_0.3'].map:.1f}"
    assert Image.open(out / "people-6-12.png").size[0] > 500
    with pytest.raises(ConfigError, match="at least one result"):
        looks_plot([])


def test_exported_models_and_model_files_are_measured_too(script, market, models, tmp_path):
    exported = write_exported_model(tmp_path / "colours")
    words = ["--data", str(market), "--identities", "6:12", "--cache", str(tmp_path / "c"), "--looks", "grey"]
    file = models[1] / "model.safetensors"
    assert script.main([str(exported), str(file), *words, "--out", str(tmp_path)]) == 0
    found = read_result(tmp_path / "colours-people-6-12.json")
    assert found.facts["precision"] == "onnx float32"
    assert found.looks["grey"].map < found.looks["clean"].map  # its features are the mean colours
    assert (tmp_path / "slim-people-6-12.json").is_file()


def test_all_looks_in_one_picture(tmp_path, capsys):
    data = write_set(tmp_path / "set")
    out = tmp_path / "looks.png"
    assert load_script("look_sheet").main([str(data), "--out", str(out), "--samples", "2"]) == 0
    width, height = Image.open(out).size
    assert width > 11 * 64
    assert height > 4 * 128  # two samples in two strips
    assert str(out) in capsys.readouterr().out.replace("\n", "")


def test_results_are_kept_and_damage_is_named(measured, tmp_path):
    out, _ = measured
    path = out / "full-people-6-12.json"
    result = read_result(path)
    write_result(tmp_path / "again.json", result)
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    assert str(out.parent) not in path.read_text()
    values = json.loads(path.read_text())
    del values["looks"]["clean"]
    (tmp_path / "damaged.json").write_text(json.dumps(values))
    (tmp_path / "other.json").write_text('{"format": 1}')
    for name, message in (("damaged", "damaged"), ("other", "not a result"), ("none", "no such result")):
        with pytest.raises(DataError, match=rf"{name}\.json: .*{message}"):
            read_result(tmp_path / f"{name}.json")


def test_wrong_use_is_explained(script, market, models, tmp_path, capsys):
    words = ["--data", str(market), "--cache", str(tmp_path)]
    for arguments, message in (
        ([str(models[0]), str(models[0]), *words], "two models are called 'full'"),
        ([f"a/b={models[0]}", *words], "'a/b' is no name"),
        ([str(models[0]), *words, "--looks", "drak"], "no such look"),
        ([str(models[0]), *words], "say who is tested: --identities"),
        ([str(models[0]), *words, "--identities", "6:99"], "only 12 identities"),
        ([str(models[0]), *words, "--identities", "six"], "START:STOP"),
    ):
        assert script.main(arguments) in (1, 2)
        assert message in " ".join(capsys.readouterr().err.split())
