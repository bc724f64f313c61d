"""Galleries in and out: nothing is lost, nothing comes twice."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from slimreid.errors import DataError
from slimreid.gallery.errors import GalleryError, OtherModelError
from slimreid.gallery.exchange import transfer
from slimreid.gallery.gallery import Gallery
from slimreid.gallery.store.contract import CALIBRATION, whole_rows
from slimreid.gallery.store.open import create_store, open_store
from slimreid.gallery.store.rows import Change, Filter, RowState
from support.galleries import make_info, make_rows, row_fields


@pytest.fixture
def place(tmp_path):
    store = create_store(tmp_path / "one.gallery", make_info())
    store.commit(Change("enrol", "me", rows=make_rows(30)))
    store.commit(Change("calibrate", "me", settings={CALIBRATION: '{"x": 1}'}))
    store.close()
    return tmp_path / "one.gallery"


def contents(place):
    store = open_store(place)
    rows = [
        (row_fields(new), new.thumbnail, new.feature.tobytes())
        for chunk in whole_rows(store, Filter())
        for _, new in chunk
    ]
    found = (
        sorted(rows, key=lambda row: row[0]["hash"]),
        store.settings().get(CALIBRATION),
        store.model.to_json(),
    )
    store.close()
    return found


def test_parquet_holds_everything(place, tmp_path):
    with Gallery(place) as gallery:
        assert gallery.export(tmp_path / "all.parquet") == 30
        with pytest.raises(DataError, match="exists"):
            gallery.export(tmp_path / "all.parquet")
    with Gallery.for_import(tmp_path / "two.gallery", [tmp_path / "all.parquet"]) as other:
        done = other.import_([tmp_path / "all.parquet"])
        assert (done.added, done.known) == (30, 0)
    assert contents(tmp_path / "two.gallery") == contents(place)
    table = pq.read_table(tmp_path / "all.parquet")
    feature = table.column("feature")[3].as_py()
    np.testing.assert_array_equal(np.array(feature, np.float32), make_rows(30)[3].feature)


def test_several_files_and_again_changes_nothing(place, tmp_path):
    with Gallery(place) as gallery:
        gallery.export(tmp_path / "a.parquet", Filter(cameras=["cam0"]))
        gallery.export(tmp_path / "b.parquet", Filter(cameras=["cam1"]))
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with Gallery.for_import(tmp_path / "two.gallery", files) as other:
        assert other.import_(files).added == 30
        before = other.log(), other.store.version
        done = other.import_([*files, files[0]])
        assert (done.added, done.known, done.entry) == (0, 45, None)
        assert (other.log(), other.store.version) == before
        other.undo()
        assert len(other) == 0
    assert contents(place)


def test_files_of_others_are_refused(place, tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"hello")
    with Gallery(place) as gallery:
        with pytest.raises(DataError, match="not a readable"):
            gallery.import_([tmp_path / "x.parquet"])
        with pytest.raises(DataError, match="no such file"):
            gallery.import_([tmp_path / "none.parquet"])
        gallery.export(tmp_path / "all.parquet")
    create_store(tmp_path / "other.gallery", make_info("two")).close()
    with Gallery(tmp_path / "other.gallery") as other, pytest.raises(OtherModelError, match="another model"):
        other.import_([tmp_path / "all.parquet"])


def test_copies_are_compared_row_by_row(place, tmp_path):
    with Gallery(place) as gallery:
        assert gallery.copy(tmp_path / "two.gallery").added == 30
        assert contents(tmp_path / "two.gallery") == contents(place)
        done = gallery.copy(tmp_path / "two.gallery")
        assert (done.added, done.known) == (0, 30)
        other = open_store(tmp_path / "two.gallery")
        other.commit(Change("rename", "me", states={4: RowState("somebody else", "")}))
        other.close()
        with pytest.raises(GalleryError, match="not the same"):
            gallery.copy(tmp_path / "two.gallery")


def test_rows_without_a_hash_come_once(tmp_path):
    store = create_store(tmp_path / "a.gallery", make_info())
    rows = [row.__class__(**{**vars(row), "hash": ""}) for row in make_rows(5)]
    for expected in (5, 0):
        assert transfer.take_in(store, [rows], "import", "me").added == expected
    store.close()
