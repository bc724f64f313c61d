"""Evaluating models on datasets: figures against plain loops, and what is said about them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import slimreid
from reference import retrieval as reference
from reference.similarity import similarity
from slimreid.cli.commands.evaluate import evaluate
from slimreid.cli.options.measuring import EvaluateOptions
from slimreid.data.manifest import Sample, read_manifest, write_manifest
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation import KReciprocal, bootstrap_map, paired_bootstrap
from slimreid.evaluation.metrics.scores import NO_SIMILARITY, SimilarityScores
from slimreid.evaluation.reports.evaluate import (
    EvaluationOptions,
    evaluate_model,
    evaluation_folder,
    read_evaluation,
)
from slimreid.evaluation.reports.feature_metrics import Search, feature_metrics, prepare_rows
from slimreid.evaluation.reports.missing import missing_matrix
from slimreid.evaluation.reports.writing import chance_text, write_evaluation
from slimreid.inference.features import data as data_module
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction, Features, extract_features
from slimreid.inference.model_card import CHOSEN_ON_TEST
from slimreid.inference.similarity import Similarity, fit_impostors
from slimreid.modalities import all_subsets
from support.models import write_random_model
from support.retrieval import retrieve
from support.runs import NAMES, write_set

SUBSETS = tuple(all_subsets(NAMES))


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """Every third sample lacks one modality."""
    return write_set(tmp_path_factory.mktemp("set"), missing=True)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, manifest):
    return write_random_model(tmp_path_factory.mktemp("model"), manifest)


@pytest.fixture(scope="module")
def evaluation(loaded):
    return evaluate_model(loaded, None, EvaluationOptions(missing=True, rerank=KReciprocal(k1=4, k2=2)))


def by_hand(loaded, samples, features, kind, protocol, gallery_features=None):
    """Average precisions, CMC and the rest with plain loops, over rows that have features on their side.

    Scores of the loops must be those of the model to 1e-5. The latter are ranked, in which pairs that are
    alike to the last digits have the same order on every machine.
    """
    rows = {}
    for side, of_side in (("query", features), ("gallery", gallery_features or features)):
        has = set(of_side.rows.tolist())
        rows[side] = [i for i, s in enumerate(samples) if s.split == side and i in has]
    vectors = {
        "query": features.get(kind, np.array(rows["query"])).tolist(),
        "gallery": (gallery_features or features).get(kind, np.array(rows["gallery"])).tolist(),
    }
    shown = features.modalities, (gallery_features or features).modalities
    has = [
        [set(samples[i].images) & set(subset) for i in chosen]
        for chosen, subset in zip(rows.values(), shown, strict=True)
    ]
    blocks = [(name,) for name in NAMES] * (2 if kind == "both" else 1)
    scores = [
        [similarity(q, g, a, b, blocks) for g, b in zip(vectors["gallery"], has[1], strict=True)]
        for q, a in zip(vectors["query"], has[0], strict=True)
    ]
    sides = (
        prepare_rows(of_side, kind, loaded.similarity(kind), np.array(rows[side]))
        for side, of_side in (("query", features), ("gallery", gallery_features or features))
    )
    ranked = SimilarityScores(loaded.similarity(kind), *sides).scores(0, len(scores)).numpy()
    ranked = np.where(ranked <= NO_SIMILARITY, np.nan, ranked)
    np.testing.assert_allclose(ranked, scores, atol=1e-5)
    scores = np.nan_to_num(ranked, nan=-math.inf).tolist()
    labels = {}
    for side, chosen in rows.items():
        labels[f"{side}_ids"] = [samples[i].identity for i in chosen]
        labels[f"{side}_cameras"] = [samples[i].camera for i in chosen]
        labels[f"{side}_index"] = [repr(samples[i].images) for i in chosen]
    return reference.evaluate(scores, labels, protocol, 20), labels


def random_features(labels):
    rng = np.random.default_rng(0)
    found = {name: np.array(values) for name, values in labels.items() if not name.endswith("index")}
    return found | {
        f"{side}_features": rng.normal(size=(len(found[f"{side}_ids"]), 3)) for side in ("query", "gallery")
    }


@pytest.mark.parametrize("protocol", ["camera", "none"])
def test_every_kind_is_measured_as_a_plain_loop_does(loaded, protocol):
    evaluation = evaluate_model(loaded, None, EvaluationOptions(protocol=protocol))
    data = open_data(loaded)
    found = extract_features(loaded, data)[NAMES]
    assert list(evaluation.features) == ["original", "slimmed", "both"]
    assert evaluation.protocol == protocol
    for kind, scores in evaluation.features.items():
        expected, _ = by_hand(loaded, data.manifest.samples, found, kind, protocol)
        np.testing.assert_allclose(scores.result.average_precision, expected["ap"], atol=1e-12)
        np.testing.assert_allclose(scores.result.inverse_penalty, expected["inp"], atol=1e-12)
        np.testing.assert_allclose(scores.result.cmc[:20], expected["cmc"], atol=1e-12)
        assert scores.interval == bootstrap_map(scores.result)
        assert [p.false_match_rate for p in scores.operating_points] == [1e-2, 1e-3, 1e-4]


def test_the_matrix_holds_every_pair_of_subsets(loaded, evaluation):
    data = open_data(loaded)
    samples = data.manifest.samples
    found = extract_features(loaded, data, SUBSETS)
    for kind, matrix in evaluation.missing.items():
        assert matrix.subsets == SUBSETS
        for a, b in [(0, 0), (1, 5), (2, 6), (6, 3), (6, 6)]:
            first, second = found[SUBSETS[a]], found[SUBSETS[b]]
            expected, labels = by_hand(loaded, samples, first, kind, "camera", second)
            valid = [ap for ap in expected["ap"] if not math.isnan(ap)]
            assert matrix.map[a, b] == pytest.approx(sum(valid) / len(valid), abs=1e-12)
            assert matrix.rank1[a, b] == pytest.approx(expected["cmc"][0])
            assert matrix.valid_queries[a, b] == len(valid)
            assert matrix.chances[a, b] == pytest.approx(retrieve(**random_features(labels)).chance_map)
        assert np.isnan(matrix.map[0, 1]), "rgb and nir have nothing in common"
        assert not np.isnan(matrix.chances[0, 1])
    whole = evaluation.scores.result
    matrix = evaluation.missing["both"]
    assert (matrix.map[-1, -1], matrix.rank1[-1, -1]) == (whole.map, whole.rank(1))
    assert matrix.valid_queries.min() < matrix.valid_queries[-1, -1], "some samples lack a modality"
    assert matrix.chances[-1, -1] == matrix.chance
    assert matrix.chances.max() > matrix.chance, "a gallery with fewer wrong ones is easier"


def test_chance_is_told_as_one_level_or_a_range(evaluation):
    matrix = evaluation.missing["both"]
    shown = [f"{100 * f(matrix.chances):.1f}" for f in (np.nanmin, np.nanmax)]
    assert chance_text(matrix) == f"chance {shown[0]} to {shown[1]}, complete {100 * matrix.chance:.1f}"
    level = np.full_like(matrix.chances, 0.2)
    level[0, 0], level[1, 1] = 0.2004, np.nan
    assert chance_text(replace(matrix, chance=0.2, chances=level)) == "chance 20.0"
    assert chance_text(replace(matrix, chances=np.full_like(level, np.nan))) == "chance –"


def test_a_pair_of_subsets_without_any_right_answer_is_nan(tmp_path):
    """All queries lack tir, so a search by tir has nothing to ask."""
    manifest = read_manifest(write_set(tmp_path / "set"))
    samples = [
        replace(s, images={n: i for n, i in s.images.items() if n != "tir" or s.split != "query"})
        for s in manifest.samples
    ]
    write_manifest(manifest.with_samples(samples), tmp_path / "set" / "manifest.csv")
    loaded = write_random_model(tmp_path / "model", tmp_path / "set" / "manifest.csv")
    found = evaluate_model(loaded, None, EvaluationOptions(features="both", missing=True)).missing["both"]
    tir = SUBSETS.index(("tir",))
    assert np.isnan(found.map[tir]).all()
    assert np.isnan(found.rank1[tir]).all()
    assert (found.valid_queries[tir] == 0).all()
    shared = np.array([[bool(set(q) & set(g)) for g in SUBSETS] for q in SUBSETS])
    others = np.arange(len(SUBSETS)) != tir
    assert (np.isnan(found.map) == ~shared)[others].all(), "elsewhere only where nothing is shared"
    assert None in found.to_dict()["map"][tir]


def test_sides_say_where_their_rows_stand(loaded, evaluation, manifest):
    samples = read_manifest(manifest).samples
    for split, side in (("query", evaluation.query), ("gallery", evaluation.gallery)):
        assert len(side) == 12
        for n, row in enumerate(side.rows.tolist()):
            sample = samples[row]
            assert (sample.split, sample.identity, sample.camera) == (
                split,
                side.identities[n],
                side.cameras[n],
            )
            assert {name: image.path for name, image in sample.images.items()} == side.images[n]


def test_a_run_evaluates_as_its_own_result_says(trained_run):
    evaluation = evaluate_model(slimreid.load(trained_run))
    result = json.loads((trained_run / "result.json").read_text())
    own = evaluation.features[result["features"]].result.to_dict()
    for name in ("map", "minp", "chance_map"):
        assert own[name] == pytest.approx(result["test"][name], abs=1e-12)
    assert own["cmc"] == result["test"]["cmc"]
    assert evaluation.fingerprint == result["fingerprint"]
    assert (evaluation.epoch, evaluation.select_on) == (result["selected_epoch"], "val")
    assert evaluation.origin == "real rgb; simulated nir/tir"
    assert evaluation.notes == ()


def test_an_evaluation_is_read_back_as_it_was(evaluation, tmp_path):
    write_evaluation(evaluation, tmp_path)
    again = read_evaluation(tmp_path)
    assert again.to_dict() == json.loads((tmp_path / "evaluation.json").read_text())
    assert again.to_dict() == json.loads(json.dumps(evaluation.to_dict()))
    assert again.main == "both"
    for kind, scores in evaluation.features.items():
        other = again.features[kind]
        assert other.interval == scores.interval
        assert other.operating_points == scores.operating_points
        for name in ("thresholds", "false_rate", "true_rate", "edges", "true", "false"):
            np.testing.assert_array_equal(getattr(other.roc, name), getattr(scores.roc, name))
        np.testing.assert_array_equal(other.camera_pairs.map, scores.camera_pairs.map)
        np.testing.assert_array_equal(other.result.top_index, scores.result.top_index)
        np.testing.assert_allclose(other.result.top_score, scores.result.top_score, atol=1e-6)
        assert paired_bootstrap(scores.result, other.result).high == 0
        np.testing.assert_array_equal(other.reranked.average_precision, scores.reranked.average_precision)
        assert not np.allclose(scores.reranked.top_score, scores.result.top_score, equal_nan=True)
    np.testing.assert_array_equal(again.missing["both"].map, evaluation.missing["both"].map)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file; make it with 'slimreid evaluate'"),
        ("{", "not a readable evaluation"),
        ("[]", "not an evaluation of this version"),
        ('{"format": 99}', "not an evaluation of this version"),
        ('{"format": 1}', "not an evaluation of this version"),
        ('{"format": 2}', "damaged"),
    ],
)
def test_what_is_no_evaluation_is_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / "evaluation.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_evaluation(tmp_path)


def test_a_dataset_with_unknown_cameras_and_fewer_modalities(tmp_path, manifest):
    loaded = write_random_model(
        tmp_path / "model", manifest, "model.camera_embedding=true", cameras=("1", "2")
    )
    other = write_set(tmp_path / "other")
    text = other.read_text().replace("rgb,nir,tir", "rgb,depth,tir", 1)
    other.write_text(text)
    evaluation = evaluate_model(loaded, other, EvaluationOptions(features="original", missing=True))
    assert evaluation.modalities == ("rgb", "tir")
    assert evaluation.missing["original"].subsets == (("rgb",), ("tir",), ("rgb", "tir"))
    notes = "\n".join(evaluation.notes)
    assert "the data has no nir, which counts as missing" in notes
    assert "depth of the data is left out" in notes
    assert "cameras unknown to the model (1, 2) get the mean camera embedding" in notes

    # By name, camera 1 of other data is not camera 1 of training, unless the user says so.
    same = evaluate_model(loaded, other, EvaluationOptions(features="original"), Extraction(cameras="same"))
    assert "camera" not in "\n".join(same.notes)
    data = open_data(loaded, other)
    known = extract_features(loaded, data, options=Extraction(cameras="same"))[data.manifest.modalities].get(
        "original"
    )
    mean = extract_features(loaded, data, options=Extraction(cameras="other"))[data.manifest.modalities].get(
        "original"
    )
    assert not np.allclose(known, mean, atol=1e-4)
    embedding = loaded.model.backbone.camera_embedding
    with torch.no_grad():
        embedding.copy_(embedding.mean(dim=0, keepdim=True).expand_as(embedding))
    averaged = extract_features(loaded, data, options=Extraction(cameras="same"))[
        data.manifest.modalities
    ].get("original")
    np.testing.assert_allclose(averaged, mean, atol=1e-6)


def test_cameras_of_the_own_data_are_known(tmp_path, manifest):
    loaded = write_random_model(tmp_path, manifest, "model.camera_embedding=true", cameras=("1",))
    notes = evaluate_model(loaded, None, EvaluationOptions(features="both")).notes
    assert any("(2)" in note for note in notes), "camera 2 was not there in training, camera 1 was"


@pytest.mark.parametrize(
    ("select_on", "part", "own", "note"),
    [
        ("test", "test", True, CHOSEN_ON_TEST),
        ("test", "test", False, "chosen on the test set of the data it was trained on"),
        ("test", "val", True, "chosen on the test set of the data it was trained on"),
        ("val", "val", True, "chosen on these very rows"),
        ("val", "test", True, None),
        ("last", "test", True, None),
    ],
)
def test_how_the_checkpoint_was_chosen_is_said(tmp_path, manifest, select_on, part, own, note):
    loaded = write_random_model(tmp_path, manifest, select_on=select_on)
    path = None
    if not own:
        path = manifest.parent / "copy.csv"
        path.write_text(manifest.read_text())
    evaluation = evaluate_model(loaded, path, EvaluationOptions(features="original", part=part))
    assert evaluation.select_on == select_on
    assert [note in found for found in evaluation.notes] == [True] if note else evaluation.notes == ()


def test_identities_that_were_trained_on_are_named(tmp_path, manifest):
    loaded = write_random_model(tmp_path, manifest, identities=("id9", "id10", "x"))
    assert (
        "2 of these identities were trained on"
        in evaluate_model(loaded, None, EvaluationOptions(features="both")).notes[0]
    )


def test_only_one_identity_still_evaluates(tmp_path):
    manifest = write_set(tmp_path / "set")
    lines = manifest.read_text().splitlines()
    kept = [line for line in lines if line.startswith(("split", "query,id9", "gallery,id9"))]
    manifest.write_text("\n".join(kept) + "\n")
    loaded = write_random_model(tmp_path / "model", manifest)
    evaluation = evaluate_model(loaded)
    scores = evaluation.scores
    assert (scores.result.map, scores.operating_points) == (1.0, [])
    assert math.isnan(scores.interval.low)
    write_evaluation(evaluation, tmp_path / "out")
    assert math.isnan(read_evaluation(tmp_path / "out").scores.interval.high)


def test_a_model_without_a_second_branch_has_one_kind(tmp_path, manifest):
    loaded = write_random_model(tmp_path, manifest, "model.reduction=none", "model.fusion=none")
    evaluation = evaluate_model(loaded)
    assert list(evaluation.features) == ["original"]
    assert evaluation.main == "original"
    both = evaluate_model(loaded, None, EvaluationOptions(features="both"))
    assert both.scores.result.map == evaluation.scores.result.map


def test_wrong_requests_are_refused(loaded, manifest, tmp_path):
    with pytest.raises(ConfigError, match="no feature 'fused'"):
        evaluate_model(loaded, None, EvaluationOptions(features="fused"))
    with pytest.raises(DataError, match=rf"{manifest.name}: .*no scene"):
        evaluate_model(loaded, None, EvaluationOptions(protocol="scene"))
    with pytest.raises(DataError, match="no such manifest"):
        evaluate_model(loaded, tmp_path / "nothing.csv")
    (tmp_path / "train.csv").write_text(
        "\n".join(line for line in manifest.read_text().splitlines() if line.startswith(("split", "train")))
    )
    with pytest.raises(DataError, match=r"no query and gallery rows.*mark rows as query and gallery$"):
        evaluate_model(loaded, tmp_path / "train.csv")
    with pytest.raises(DataError, match=r"no val rows.*mark rows as val$"):
        evaluate_model(loaded, tmp_path / "train.csv", EvaluationOptions(part="val"))
    (tmp_path / "half.csv").write_text(
        "\n".join(line for line in manifest.read_text().splitlines() if not line.startswith("query"))
    )
    with pytest.raises(DataError, match=r"no query rows.*mark rows as query, or use --split val$"):
        evaluate_model(loaded, tmp_path / "half.csv")
    lost = write_random_model(tmp_path / "a", tmp_path / "gone" / "manifest.csv")
    with pytest.raises(DataError, match="no longer exists; name it with --data"):
        evaluate_model(lost)


def test_results_lie_beside_the_model(loaded, manifest, tmp_path):
    own = open_data(loaded)
    assert evaluation_folder(loaded.path, own) == loaded.path.parent / "evaluation"
    assert evaluation_folder(loaded.path, own, "val").name == "evaluation-val"
    other = open_data(loaded, write_set(tmp_path / "night"))
    assert evaluation_folder(loaded.path, other).name == "evaluation-night"
    assert evaluation_folder(tmp_path / "best.safetensors").name == "best-evaluation"


def test_a_manifest_is_read_once_and_similarities_are_computed_once(tmp_path, manifest, monkeypatch):
    write_random_model(tmp_path / "model", manifest)
    read, scored = [], []
    real_read, real_scores = data_module.read_manifest, SimilarityScores.scores
    monkeypatch.setattr(
        data_module, "read_manifest", lambda *given, **named: read.append(1) or real_read(*given, **named)
    )
    monkeypatch.setattr(
        SimilarityScores, "scores", lambda self, a, b: scored.extend(range(a, b)) or real_scores(self, a, b)
    )
    evaluate(EvaluateOptions(model=tmp_path / "model", no_cache=True, out=tmp_path / "out"))
    evaluation = read_evaluation(tmp_path / "out")
    assert len(read) == 1
    assert len(scored) == len(evaluation.features) * len(evaluation.query), "each query once per kind"


def test_no_pair_of_subsets_is_scored_twice(loaded, monkeypatch):
    sources = []
    real = SimilarityScores.__init__
    monkeypatch.setattr(
        SimilarityScores,
        "__init__",
        lambda self, similarity, query, gallery: (
            sources.append(query.values.tobytes() + gallery.values.tobytes())
            or real(self, similarity, query, gallery)
        ),
    )
    evaluate_model(loaded, None, EvaluationOptions(features="both", missing=True))
    assert len(sources) > len(SUBSETS)
    assert len(set(sources)) == len(sources)


def test_a_mixed_gallery_is_not_sorted_by_what_was_seen(tmp_path):
    """Features that tell little of who, much of what was seen: the fault that cosines of fills had."""
    rng = np.random.default_rng(0)
    S, R, C = len(SUBSETS), 240, 16
    who = np.arange(R) % 30
    samples = [
        Sample(
            "query" if i < 90 else "gallery", f"id{who[i]}", str(i // 30 % 3), "", images=dict.fromkeys(NAMES)
        )
        for i in range(R)
    ]
    blocks = 8 + 0.8 * rng.normal(size=(30, 3, C))[who] + rng.normal(size=(R, 3, C))
    features = {}
    for subset in SUBSETS:
        has = np.array([name in subset for name in NAMES])
        unit = blocks / np.linalg.norm(blocks, axis=2, keepdims=True)
        filled = np.where(has[:, None], unit, 0.1 * unit[:, has].mean(axis=1, keepdims=True))
        branch = filled.reshape(R, -1).astype(np.float32)
        present = np.tile(has, (R, 1))
        features[subset] = Features(subset, {"original": branch}, np.arange(R), present)
    plain = Similarity(NAMES, tuple((name,) for name in NAMES))
    table = fit_impostors(plain, [(f.branches["original"], who) for f in features.values()])
    search = Search(samples, np.arange(90), np.arange(90, R), "camera")

    def measured(similarity: Similarity):
        complete = feature_metrics(features[SUBSETS[-1]], "original", search, similarity).result
        return missing_matrix(features, "original", search, similarity, complete)

    matrix = measured(replace(plain, impostors=table))
    mixed = matrix.mixed
    assert mixed is not None
    assert len(mixed.maps) == 3
    assert mixed.map > 0.9 * mixed.uniform_map
    assert abs(mixed.equal_share - mixed.equal_chance) < 0.05
    unscaled = measured(plain).mixed
    assert unscaled is not None
    assert abs(unscaled.equal_share - unscaled.equal_chance) > 0.05, "the scale is needed"
    assert np.isfinite(matrix.thresholds[-1, -1])
    assert matrix.thresholds.shape == (S, S)
