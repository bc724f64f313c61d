"""Embeddings in Parquet by one process: columns, statuses, going on, and the file of `slimreid embed`."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import slimreid
from slimreid.bulk.embed import EmbedChoices
from slimreid.bulk.embedder import Embedding, RowEmbedder
from slimreid.bulk.images import fetch
from slimreid.bulk.manifest import seconds
from slimreid.bulk.summary import check_complete, drop_repeats, mend
from slimreid.cli.app import main
from slimreid.errors import ConfigError, DataError
from slimreid.inference.embedding_sets.files import read_embeddings
from slimreid.inference.embedding_sets.tables import IMAGE_ROWS, embedding_rows, parquet_files
from support.bulk import assert_same_rows, read_rows, write_bulk_set
from support.models import write_random_model


@pytest.fixture(scope="module")
def bulk(tmp_path_factory):
    """Model, manifest, and the folder of embeddings that one process made of them."""
    folder = tmp_path_factory.mktemp("bulk")
    model, manifest = write_bulk_set(folder)
    summary = slimreid.embed_dataset(manifest, model, folder / "out")
    return model, manifest, folder / "out", summary


def test_every_row_is_there_with_its_columns(bulk):
    _, manifest, out, summary = bulk
    rows = read_rows(out)
    count = len(manifest.read_text().splitlines()) - 1
    assert list(rows) == list(range(2, count + 2))
    assert summary.rows == count == 240
    assert summary.statuses == {"ok": 239, "unreadable": 1}
    assert pq.read_schema(parquet_files(out / "rows")[0]).equals(embedding_rows(18))
    assert rows[2]["identity"] == "id0"
    assert rows[2]["time"] == 1767323040.0
    assert json.loads(rows[2]["images"]).keys() == {"nir", "tir"}
    assert rows[2]["modalities"] == ["nir", "tir"], "rgb of the first sample is missing"
    broken = rows[7]
    assert broken["feature"] is None
    assert "nowhere" in broken["error"]
    assert not (out / ".images").exists()


def test_features_are_those_of_the_file(bulk, tmp_path):
    model, manifest, out, _ = bulk
    words = ["embed", str(manifest), "--model", str(model), "--out", str(tmp_path / "f.safetensors")]
    assert main([*words, "--skip-broken"]) == 0
    expected = read_embeddings(tmp_path / "f.safetensors").features
    found = [row["feature"] for row in read_rows(out).values() if row["status"] == "ok"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_torch_runs_a_model_where_a_device_asks_for_it(bulk, tmp_path):
    """By this process, and as an actor of Ray does it, which loads the model by itself."""
    _, manifest, _, _ = bulk
    model = tmp_path / "run"
    write_random_model(model, manifest.with_name("manifest.csv"))
    words = ["embed", str(manifest), "--model", str(model), "--split", "query", "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "f.safetensors"), "--skip-broken"]) == 0
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    expected = read_embeddings(tmp_path / "f.safetensors").features
    found = read_rows(tmp_path / "out")
    np.testing.assert_allclose([row["feature"] for row in found.values()], expected, rtol=0, atol=1e-5)
    table = pq.read_table(parquet_files(tmp_path / "out" / "rows")[0])
    names = ("rgb", "nir", "tir")
    actor = RowEmbedder(Embedding(str(model), "both", names, cameras=False, batch=7, device="cpu"))
    again = actor(table.select(IMAGE_ROWS.names)).to_pylist()
    np.testing.assert_allclose([row["feature"] for row in again], expected[: len(again)], rtol=0, atol=1e-5)


def test_a_parquet_manifest_and_addresses_give_the_same(bulk, tmp_path):
    model, manifest, out, _ = bulk
    table = pa_csv.read_csv(manifest, convert_options=pa_csv.ConvertOptions(strings_can_be_null=True))
    root = manifest.parent.resolve().as_uri()
    for name in ("rgb", "nir", "tir"):
        paths = [None if path is None else f"{root}/{path}" for path in table[name].to_pylist()]
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(paths, pa.string()))
    table = table.set_column(0, "split", table["split"].cast(pa.string()))
    pq.write_table(table, tmp_path / "long.parquet")
    slimreid.embed_dataset(tmp_path / "long.parquet", model, tmp_path / "out")
    found, expected = read_rows(tmp_path / "out"), read_rows(out)
    for row in (*found.values(), *expected.values()):
        row.pop("images"), row.pop("time"), row.pop("error")
    assert_same_rows(found, expected)


def test_the_same_call_goes_on_and_another_is_refused(bulk, tmp_path, monkeypatch):
    model, manifest, out, _ = bulk
    made = []

    def stop_after_two(path, table, real=slimreid.bulk.embed.write_table):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(path.name)
        real(path, table)

    monkeypatch.setattr(slimreid.bulk.embed, "write_table", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        slimreid.embed_dataset(manifest, model, tmp_path)
    monkeypatch.undo()
    with pytest.raises(DataError, match=r"holds embeddings of other work .feature 'both', not 'original'"):
        slimreid.embed_dataset(manifest, model, tmp_path, choices=EmbedChoices(feature="original"))
    summary = slimreid.embed_dataset(manifest, model, tmp_path)
    assert summary.new_rows == 240 - 2 * 64
    assert_same_rows(read_rows(tmp_path), read_rows(out))
    assert slimreid.embed_dataset(manifest, model, tmp_path).new_rows == 0


def test_command_line(bulk, tmp_path, capsys):
    model, manifest, _, _ = bulk
    words = ["embed", str(manifest), "--model", str(model), "--out", str(tmp_path / "out")]
    assert main([*words, "--split", "query", "--modalities", "rn", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["rows"] == 48
    assert {tuple(row["modalities"]) for row in read_rows(tmp_path / "out").values()} <= {
        ("rgb", "nir"),
        ("rgb",),
        ("nir",),
    }
    assert main([*words, "--split", "query", "--modalities", "rn"]) == 0
    assert "complete already" in capsys.readouterr().out
    for wrong in (["--actors", "2"], ["--skip-broken"], ["--engine", "ray", "--out", "x.safetensors"]):
        assert main([*words, *wrong]) == 2


def test_what_is_no_manifest_is_refused(bulk, tmp_path):
    model, manifest, _, _ = bulk
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").touch()
    with pytest.raises(DataError, match="not a folder of embeddings"):
        slimreid.embed_dataset(manifest, model, tmp_path / "taken")
    bad = tmp_path / "bad.csv"
    bad.write_text("split,identity,camera,rgb\nquery,a,1,x.png\nquery,,1,y.png\n")
    with pytest.raises(DataError, match="row 3"):
        slimreid.embed_dataset(bad, model, tmp_path / "out")
    bad.write_text("split,identity,camera,depth\n")
    with pytest.raises(DataError, match="no column of rgb"):
        slimreid.embed_dataset(bad, model, tmp_path / "out")
    with pytest.raises(ConfigError, match="batch must be"):
        slimreid.embed_dataset(manifest, model, tmp_path / "out", choices=EmbedChoices(batch=0))


def test_repeated_rows_are_dropped_and_missing_ones_named(bulk, tmp_path):
    _, _, out, _ = bulk
    first, *_ = parquet_files(out / "rows")
    table = pq.read_table(first)
    for name, part in (("a", table), ("b", table.slice(0, 5)), ("c", pa.concat_tables([table.slice(5, 2)]))):
        pq.write_table(part, tmp_path / f"{name}.parquet")
    extra = pq.read_table(parquet_files(out / "rows")[1]).slice(0, 3)
    pq.write_table(pa.concat_tables([table.slice(60), extra]), tmp_path / "d.parquet")
    (tmp_path / "e.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:900])  # torn
    mend(tmp_path, 67)
    assert [path.name for path in parquet_files(tmp_path)] == ["a.parquet", "d.parquet"]
    assert drop_repeats(parquet_files(tmp_path)) == 0
    assert check_complete(parquet_files(tmp_path), 67).total() == 67
    with pytest.raises(DataError, match="67 rows of 67 different ids, but the manifest has 68"):
        check_complete(parquet_files(tmp_path), 68)


def test_addresses_are_of_known_kinds(tmp_path):
    with pytest.raises(DataError, match="addresses begin with s3://"):
        fetch("shell::ls://x")
    with pytest.raises(DataError, match="cannot be read"):
        fetch((tmp_path / "no.png").as_uri())
    (tmp_path / "empty.png").touch()
    with pytest.raises(DataError, match="empty"):
        fetch((tmp_path / "empty.png").as_uri())


def test_times():
    assert seconds("") is None
    assert seconds("12.5") == 12.5
    assert seconds("1970-01-01T00:01:00") == seconds("1970-01-01T01:01:00+01:00") == 60
    with pytest.raises(DataError, match="row 7: x_time 'noon'"):
        seconds("noon", 7)
