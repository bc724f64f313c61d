"""Evaluation in blocks: the figures of the features in memory, ties and missing modalities included."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import slimreid
from slimreid.bulk.evaluate import evaluate_embeddings
from slimreid.cli.app import main
from slimreid.errors import DataError
from slimreid.evaluation.metrics.labels import Labels
from slimreid.evaluation.metrics.result import bootstrap_map
from slimreid.evaluation.metrics.retrieval import evaluate_scores
from slimreid.evaluation.metrics.scores import SimilarityScores
from slimreid.inference.embedding_sets.card import read_card
from slimreid.inference.embedding_sets.tables import parquet_files
from support.bulk import read_rows, write_bulk_set


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Embeddings with random features, some equal, and files whose order is not that of the ids."""
    place = tmp_path_factory.mktemp("evaluated")
    model, manifest = write_bulk_set(place, times=1)
    slimreid.embed_dataset(manifest, model, place / "out")
    files = parquet_files(place / "out" / "rows")
    table = pa.concat_tables([pq.read_table(path) for path in files])
    rng = np.random.default_rng(0)
    features = rng.normal(size=(len(table), 18)).astype(np.float32)
    features[::7] = features[0]  # ties
    column = pa.FixedSizeListArray.from_arrays(
        pa.array(features.reshape(-1)),
        type=pa.list_(pa.float32(), 18),
        mask=pa.array([status != "ok" for status in table["status"].to_pylist()]),
    )
    table = table.set_column(table.schema.get_field_index("feature"), table.schema.field("feature"), column)
    table = table.take(rng.permutation(len(table)))
    for path in files:
        path.unlink()
    for number in range(3):
        pq.write_table(table.slice(number * 20, 20), place / "out" / "rows" / f"{number}.parquet")
    return place / "out"


def in_memory(folder, protocol):
    """The same figures with everything in memory, by ascending id."""
    rows = sorted(read_rows(folder).values(), key=lambda row: row["id"])
    sides = {
        name: [r for r in rows if r["split"] == name and r["status"] == "ok"] for name in ("query", "gallery")
    }
    similarity = read_card(folder).similarity
    prepared, labels = [], {"protocol": protocol}
    for name, side in sides.items():
        present = [[m in row["modalities"] for m in similarity.modalities] for row in side]
        prepared.append(similarity.prepare(np.array([row["feature"] for row in side], np.float32), present))
        labels[f"{name}_ids"] = [row["identity"] for row in side]
        labels[f"{name}_cameras"] = [row["camera"] for row in side]
        labels[f"{name}_index"] = [row["images"] for row in side]
    return evaluate_scores(SimilarityScores(similarity, *prepared), Labels(**labels), roc=True)


@pytest.mark.parametrize("protocol", ["camera", "none"])
@pytest.mark.parametrize(("block", "megabytes"), [(7, 0.01), (1000, 100.0)])
def test_figures_are_those_of_features_in_memory(folder, protocol, block, megabytes):
    found = evaluate_embeddings(folder, protocol, memory_megabytes=megabytes, block_rows=block)
    expected = in_memory(folder, protocol)
    figures, others = found.result.to_dict(), expected.to_dict()
    for point, other in zip(figures.pop("roc"), others.pop("roc"), strict=True):
        # A block is another matrix product: the last bit of a score may differ.
        threshold, expected_threshold = point.pop("threshold"), other.pop("threshold")
        assert point == other
        assert (threshold or 0.0) == pytest.approx(expected_threshold or 0.0, abs=1e-5)
    assert figures == others
    np.testing.assert_array_equal(found.result.average_precision, expected.average_precision)
    np.testing.assert_array_equal(found.result.first_hit, expected.first_hit)
    assert found.interval == bootstrap_map(expected)
    assert (found.queries, found.gallery, found.left_out) == (12, 12, 0)


def test_command_line(folder, tmp_path, capsys):
    assert main(["evaluate", str(folder), "--out", str(tmp_path), "--memory", "1"]) == 0
    written = json.loads((tmp_path / "evaluation.json").read_text())
    assert written["map"] == in_memory(folder, "camera").map
    assert f"{100 * written['map']:.1f}" in capsys.readouterr().out
    assert main(["evaluate", str(folder), "--out", str(tmp_path), "--rerank"]) == 2
    assert "--rerank cannot be used with a folder of embeddings" in capsys.readouterr().err


def test_a_folder_without_queries_or_with_damage_is_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    for path in parquet_files(tmp_path / "copy" / "rows"):
        table = pq.read_table(path)
        pq.write_table(table.filter(pa.compute.not_equal(table["split"], "query")), path)
    with pytest.raises(DataError, match="no query rows"):
        evaluate_embeddings(tmp_path / "copy")
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        evaluate_embeddings(tmp_path / "copy")
    card = tmp_path / "copy" / "embeddings.json"
    card.write_text(card.read_text().replace('"both"', '"original"'))
    with pytest.raises(DataError, match="does not match its checksum"):
        evaluate_embeddings(tmp_path / "copy")
