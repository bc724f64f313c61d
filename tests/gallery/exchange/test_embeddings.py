"""Folders of embeddings into galleries: every row that has a feature, once, however often it is tried."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

import slimreid
from slimreid.bulk.embed import EmbedChoices
from slimreid.cli.app import main
from slimreid.data.manifest import images_from_json
from slimreid.errors import ConfigError, DataError
from slimreid.gallery.errors import GalleryError, OtherModelError
from slimreid.gallery.exchange import transfer
from slimreid.gallery.gallery import Gallery
from slimreid.gallery.store.contract import whole_rows
from slimreid.gallery.store.milvus import bulk_import, collections, store, writing
from slimreid.gallery.store.rows import Filter
from slimreid.inference.embedding_sets.tables import parquet_files
from support.bulk import read_rows, write_bulk_set
from support.bulk_import import serve_bulk_import
from support.galleries import row_fields

ROWS, TWICE = 47, 12
"""Samples that can be read, and rows of the manifest that show one of them again."""


class Killed(BaseException):
    """Stands in for a process that dies: nothing is cleaned up."""


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Model, manifest, and the folder of its 60 embeddings, one of which is of a file that is not there."""
    folder = tmp_path_factory.mktemp("work")
    model, manifest = write_bulk_set(folder, times=1)
    slimreid.embed_dataset(manifest, model, folder / "out")
    return model, manifest, folder / "out"


@pytest.fixture(params=["sqlite", "milvus"])
def place(request, tmp_path):
    if request.param == "milvus":
        return f"{request.getfixturevalue('milvus_server')}/from_embeddings_{tmp_path.name[-20:].strip('_')}"
    return tmp_path / "people.gallery"


def contents(gallery):
    """Everything in the rows, by id."""
    return {
        number: (row_fields(row), row.feature.tobytes())
        for chunk in whole_rows(gallery.store, Filter())
        for number, row in chunk
    }


def import_folder(place, *paths, **options):
    with Gallery.for_import(place, paths, **options) as gallery:
        done = gallery.import_(paths)
        return done, contents(gallery), (gallery.log(), gallery.store.version)


def test_every_row_with_a_feature_comes_once(work, place):
    _, _, out = work
    done, rows, before = import_folder(place, out)
    assert (done.added, done.known, dict(done.left_out)) == (ROWS, TWICE, {"unreadable": 1})
    good = [row for row in read_rows(out).values() if row["status"] == "ok"]
    expected = {row["hash"]: row for row in reversed(good)}
    by_hash = {fields["hash"]: (fields, feature) for fields, feature in rows.values()}
    assert len(by_hash) == len(rows) == len(expected) == ROWS
    for digest, row in expected.items():
        fields, feature = by_hash[digest]
        assert feature == np.array(row["feature"], np.float32).tobytes()
        assert fields["modalities"] == tuple(row["modalities"])
        assert fields["files"] == images_from_json(row["images"])
        for name in ("identity", "camera", "time", "group"):
            assert fields[name] == row[name]
    again, same, after = import_folder(place, out)
    assert (again.added, again.known, again.entry) == (0, ROWS + TWICE, None)
    assert (same, after) == (rows, before), "the log and the ids, too"


def test_a_killed_import_goes_on_to_the_same_ids(work, place, tmp_path, monkeypatch):
    _, _, out = work
    whole = import_folder(tmp_path / "whole.gallery", out)[1]
    for kind in (slimreid.gallery.store.sqlite.store.SqliteStore, store.MilvusStore):
        monkeypatch.setattr(kind, "at_once", 16)
    commits = []
    with Gallery.for_import(place, [out]) as gallery:

        def commit(change, real=gallery.store.commit):
            if len(commits) == 2:
                raise Killed
            commits.append(real(change))
            return commits[-1]

        monkeypatch.setattr(gallery.store, "commit", commit)
        with pytest.raises(Killed):
            gallery.import_([out])
        monkeypatch.undo()
        begun = len(gallery)
        assert 0 < begun < ROWS
    done, rows, _ = import_folder(place, out)
    assert (done.added, done.known) == (ROWS - begun, TWICE + begun)
    assert rows == whole


def test_samples_are_those_that_were_enrolled(work, tmp_path):
    model, manifest, out = work
    with Gallery.create(tmp_path / "people.gallery", model) as gallery:
        enrolled = gallery.enrol(manifest, skip_broken=True)
        done = gallery.import_([out])
    assert (done.added, done.known) == (0, enrolled.added + TWICE) == (0, ROWS + TWICE)


def test_single_files_and_the_command_line(work, tmp_path, capsys):
    _, _, out = work
    (file,) = parquet_files(out / "rows")
    place = str(tmp_path / "people.gallery")
    assert main(["gallery", "import", place, str(file)]) == 0
    said = capsys.readouterr().out
    assert "47 rows imported, 12 were there already, 1 left out (unreadable); each was found once" in said
    assert main(["gallery", "import", place, str(out / "rows"), str(out)]) == 0
    assert "0 rows imported, 118 were there already" in capsys.readouterr().out
    assert main(["gallery", "import", place, str(out), "--bucket", "s3://x/y"]) == 2
    assert "only a gallery on Milvus has one" in capsys.readouterr().err


def test_what_cannot_be_imported_is_refused_before_anything_is_written(work, tmp_path):
    model, manifest, out = work
    slimreid.embed_dataset(manifest, model, tmp_path / "other", choices=EmbedChoices(feature="original"))
    import_folder(tmp_path / "people.gallery", out)
    with Gallery(tmp_path / "people.gallery") as gallery:
        with pytest.raises(OtherModelError, match=r"other: features of another model .*original, not .*both"):
            gallery.import_([out, tmp_path / "other"])
        assert len(gallery) == ROWS
    shutil.copytree(out, tmp_path / "begun")
    (file,) = parquet_files(tmp_path / "begun" / "rows")
    pq.write_table(pq.read_table(file).slice(0, 50), file)
    with pytest.raises(DataError, match=r"begun: 50 of 60 rows are embedded; finish it first"):
        Gallery.for_import(tmp_path / "new.gallery", [tmp_path / "begun"])
    file.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="not a readable Parquet file of embeddings"):
        Gallery.for_import(tmp_path / "new.gallery", [tmp_path / "begun"])
    assert not (tmp_path / "new.gallery").exists()


def test_rows_that_are_missing_in_the_end_are_counted(work, tmp_path, monkeypatch):
    _, _, out = work
    with Gallery.for_import(tmp_path / "people.gallery", [out]) as gallery:
        real = transfer._fresh
        monkeypatch.setattr(transfer, "_fresh", lambda store, rows: real(store, rows)[1:])
        with pytest.raises(GalleryError, match="46 rows are there of the 47 in"):
            gallery.import_([out])


@pytest.fixture
def cluster(milvus_server, tmp_path, monkeypatch):
    """A Milvus with bulk import, small pieces, and the options to use it."""
    (tmp_path / "bucket").mkdir()
    monkeypatch.setattr(store, "BULK_AT_ONCE", 25)
    monkeypatch.setattr(collections, "BULK_LEAST", 5)
    monkeypatch.setattr(bulk_import, "BETWEEN", 0.01)
    with serve_bulk_import(tmp_path / "bucket", milvus_server.replace("milvus", "http")) as (address, found):
        monkeypatch.setattr(collections, "Jobs", lambda _, *rest: bulk_import.Jobs(address, *rest))
        host = milvus_server.replace("//", "//anna:secret@")
        yield found, f"{host}/bulk_{tmp_path.name[-20:].strip('_')}", (tmp_path / "bucket").as_uri()


def left_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_rows_go_by_the_bucket_in_several_requests(work, cluster, tmp_path):
    _, _, out = work
    found, place, bucket = cluster
    done, rows, before = import_folder(place, out, bucket=bucket)
    assert (done.added, dict(done.left_out)) == (ROWS, {"unreadable": 1})
    assert [len(job["lines"]) for job in found.jobs.values()] == [24, 24, 18, 18, 5, 5]
    assert found.authorization == "Bearer anna:secret"
    assert not left_in(found.bucket)
    assert rows == import_folder(tmp_path / "file.gallery", out)[1]
    again, _, after = import_folder(place, out, bucket=bucket)
    assert (again.added, again.known) == (0, ROWS + TWICE)
    assert after == before
    with Gallery(place) as gallery:
        gallery.undo()
        assert len(gallery) == 0


def test_a_job_that_fails_leaves_nothing(work, cluster):
    _, _, out = work
    found, place, bucket = cluster
    found.failing = "file not found in bucket"
    with Gallery.for_import(place, [out], bucket=bucket) as gallery:
        with pytest.raises(GalleryError, match=r"could not import .file not found in bucket"):
            gallery.import_([out])
        assert (len(gallery), list(gallery.log())) == (0, [])
    assert not left_in(found.bucket)
    found.failing = ""
    assert import_folder(place, out, bucket=bucket)[0].added == ROWS


@pytest.mark.parametrize("collection", ["touched", "rows_1"])
def test_a_job_that_outlives_its_process_is_taken_back(work, cluster, tmp_path, monkeypatch, collection):
    _, _, out = work
    found, place, bucket = cluster
    found.looks = 3

    def wait(self, job, meanwhile, real=bulk_import.Jobs.wait):
        if found.jobs[job]["collectionName"].endswith(collection):
            raise Killed
        return real(self, job, meanwhile)

    with Gallery.for_import(place, [out], bucket=bucket) as gallery, monkeypatch.context() as patch:
        patch.setattr(bulk_import.Jobs, "wait", wait)
        patch.setattr(bulk_import.Bucket, "remove", lambda *_: None)
        patch.setattr(writing.Writer, "_take_back", lambda *_: None)
        with pytest.raises(Killed):
            gallery.import_([out])
        gallery.store._writer.set_state(writer=None)  # its note has run out
    assert left_in(found.bucket)
    assert any(job["state"] == "Importing" for job in found.jobs.values())
    with Gallery(place) as gallery:  # without the bucket: the jobs are waited for all the same
        assert all(job["state"] == "Completed" for job in found.jobs.values())
        assert (len(gallery), list(gallery.log())) == (0, [])
    done, rows, _ = import_folder(place, out, bucket=bucket)
    assert done.added == ROWS
    assert rows == import_folder(tmp_path / "file.gallery", out)[1]
    assert not left_in(found.bucket)


def test_a_server_or_a_bucket_that_cannot_be_used_is_named(work, cluster, monkeypatch):
    _, _, out = work
    _, place, bucket = cluster
    with pytest.raises(ConfigError, match=r"--bucket somewhere: cannot be used"):
        Gallery.for_import(place, [out], bucket="somewhere")
    monkeypatch.setattr(collections, "Jobs", lambda _, *rest: bulk_import.Jobs("http://127.0.0.1:9", *rest))
    refused = pytest.raises(GalleryError, match=r"no bulk import at .*; without --bucket rows are sent")
    with Gallery.for_import(place, [out], bucket=bucket) as gallery, refused:
        gallery.import_([out])
    assert import_folder(place, out)[0].added == ROWS
