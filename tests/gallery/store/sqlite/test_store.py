"""What only a gallery in a file can do: be damaged, full, busy, copied; leave nothing behind."""

from __future__ import annotations

import shutil
import sqlite3
import threading

import numpy as np
import pytest

from slimreid.gallery.errors import GalleryBusyError, GalleryDamagedError, GalleryError, GalleryFullError
from slimreid.gallery.store.open import create_store, open_store
from slimreid.gallery.store.rows import Change, Filter, RowState
from slimreid.gallery.store.sqlite import connection as connections
from support.galleries import make_info, make_rows, make_similarity


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.gallery"


@pytest.fixture
def store(path):
    made = create_store(path, make_info())
    made.commit(Change("enrol", "me", rows=make_rows(40, missing=False)))
    yield made
    made.close()


def test_the_file_alone_is_the_gallery(store, path, tmp_path):
    store.close()
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(path, tmp_path / "elsewhere" / "copy.gallery")
    copy = open_store(tmp_path / "elsewhere" / "copy.gallery")
    assert copy.count() == 40
    copy.close()


def test_settings_of_the_database(store):
    pragmas = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1}
    for name, value in pragmas.items():
        assert store._connection.execute(f"PRAGMA {name}").fetchone() == (value,)


def test_what_is_no_gallery_is_refused(tmp_path):
    with pytest.raises(GalleryError, match="no such gallery"):
        open_store(tmp_path / "none.gallery")
    (tmp_path / "text.gallery").write_text("hello " * 1000)
    with pytest.raises(GalleryDamagedError, match="not a gallery"):
        open_store(tmp_path / "text.gallery")
    with sqlite3.connect(tmp_path / "other.gallery") as other:
        other.execute("CREATE TABLE t (x)")
    with pytest.raises(GalleryError, match="not a gallery"):
        open_store(tmp_path / "other.gallery")


def test_another_version_is_refused(store, path):
    store._connection.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(GalleryError, match="newer; update"):
        open_store(path)


def test_damage_is_named(store, path):
    store.close()
    content = bytearray(path.read_bytes())
    for start in range(16384, len(content), 16384):
        content[start : start + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(GalleryDamagedError, match="restore"):
        open_store(path)


def test_a_damaged_feature_is_named(store, path):
    vector = make_rows(40, missing=False)[16].feature.tobytes()
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    content = path.read_bytes()
    assert content.count(vector) == 1
    path.write_bytes(content.replace(vector, vector[:-1] + bytes([vector[-1] ^ 1])))
    again = open_store(path)
    with pytest.raises(GalleryDamagedError, match="row 17"):
        again.features([17])
    assert any("row 17" in fault for fault in again.check())
    again.close()


def test_a_full_disk_is_named_and_changes_nothing(store):
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    before = store.count(), store.log()
    with pytest.raises(GalleryFullError, match="the disk is full"):
        store.commit(Change("enrol", "me", rows=make_rows(400, seed=1)))
    assert (store.count(), store.log()) == before
    query = make_similarity().prepare(store.features([3]))
    assert store.search(query, 1)[0].ids.tolist() == [3]
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.commit(Change("enrol", "me", rows=make_rows(400, seed=1)))
    assert store.count() == 440


def test_a_second_writer_waits_or_is_refused(store, path, monkeypatch):
    store._connection.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(connections, "WAIT", 0.05)
    hasty = open_store(path)
    with pytest.raises(GalleryBusyError, match="another process is writing"):
        hasty.commit(Change("enrol", "me", rows=make_rows(1, 5)))
    assert hasty.count() == 40, "readers do not wait"
    monkeypatch.setattr(connections, "WAIT", 30)
    patient = open_store(path)
    waiting = threading.Thread(target=patient.commit, args=(Change("enrol", "me", rows=make_rows(1, 6)),))
    waiting.start()
    store._connection.execute("COMMIT")
    waiting.join(30)
    assert store.count() == 41
    hasty.close()
    patient.close()


def test_nothing_of_forgotten_rows_is_on_the_disk(store, path):
    rows = make_rows(40, missing=False)
    secret = rows[6]
    store.commit(Change("rename", "me", {"to": "Maria Secreta"}, states={7: RowState("Maria Secreta", "")}))
    store.search(make_similarity().prepare(secret.feature[None]), 3)
    traces = [
        secret.feature.tobytes(),
        secret.thumbnail,
        b"Maria Secreta",
        secret.hash.encode(),
        secret.files["rgb"].path.encode(),
    ]
    store.stage(2, make_info("two"), {7: np.roll(secret.feature, 1)})
    traces.append(np.roll(secret.feature, 1).tobytes())

    def found():
        files = [file for file in path.parent.rglob("*") if file.is_file()]
        content = b"".join(file.read_bytes() for file in files)
        return [trace for trace in traces if trace in content]

    assert found() == traces, "the test can fail"
    store.forget([7], "me")
    store.search(make_similarity().prepare(rows[0].feature[None]), 3)
    assert found() == []
    assert store.count() == 39


def test_forgetting_is_finished_by_the_next_who_opens(store, path, monkeypatch):
    secret = make_rows(40, missing=False)[6].feature.tobytes()
    monkeypatch.setattr("slimreid.gallery.store.sqlite.forgetting.finish", lambda *_: None)
    store.forget([7], "me")
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    monkeypatch.undo()
    open_store(path).close()
    assert secret not in b"".join(f.read_bytes() for f in path.parent.rglob("*") if f.is_file())
    assert "forgetting" not in open_store(path).settings()


def test_a_reader_does_not_keep_others_from_opening(store, path, monkeypatch):
    monkeypatch.setattr("slimreid.gallery.store.sqlite.forgetting.WAIT", 0.05)
    monkeypatch.setattr(connections, "WAIT", 0.05)
    reader = open_store(path)
    reader._connection.execute("BEGIN")
    reader.count()
    again = open_store(path)
    with pytest.raises(GalleryBusyError, match="erased from the gallery"):
        again.forget([7], "me")
    assert again.count() == 39
    other = open_store(path)
    assert other.count() == 39
    reader._connection.execute("COMMIT")
    for each in (reader, again, other):
        each.close()
    open_store(path).close()
    secret = make_rows(40, missing=False)[6].feature.tobytes()
    assert secret not in b"".join(f.read_bytes() for f in path.parent.rglob("*") if f.is_file())


def test_the_sidecar_is_only_a_copy(store, path):
    query = make_similarity().prepare(store.features([3, 9]))
    folder = path.with_name(path.name + ".index")

    def answer(expected):
        again = open_store(path)
        assert [hit.ids[0] for hit in again.search(query, 1)] == expected
        again.close()

    answer([3, 9])
    assert (folder / "state.json").is_file()
    before = {file.name for file in folder.iterdir()}
    answer([3, 9])
    assert {file.name for file in folder.iterdir()} == before, "it is used again"
    for damage in (lambda: shutil.rmtree(folder), lambda: (folder / "state.json").write_text("{")):
        damage()
        answer([3, 9])
    values = next(folder.glob("values-*"))
    values.write_bytes(values.read_bytes()[:100])
    answer([3, 9])


def test_the_sidecar_of_another_gallery_is_not_used(store, path, tmp_path):
    query = make_similarity().prepare(store.features([3]))
    store.search(query, 1)
    store.close()
    copy = tmp_path / "copy.gallery"
    shutil.copy(path, copy)
    one, two = open_store(path), open_store(copy)
    for each, seed in ((one, 50), (two, 51)):
        each.commit(Change("enrol", "me", rows=make_rows(1, seed, missing=False)))
    one.search(query, 1)
    two.close()
    one.close()
    shutil.copy(copy, path)  # under the sidecar of what was there before
    for left in ("-wal", "-shm"):
        path.with_name(path.name + left).unlink(missing_ok=True)
    again = open_store(path)
    own = make_similarity().prepare(make_rows(1, 51, missing=False)[0].feature[None])
    plain = make_similarity(scaled=False)
    assert again.search(own, 1, Filter(), plain)[0].scores[0] == pytest.approx(1, abs=1e-5)
    again.close()
