"""What only a gallery on a server can do: be left half written, and be written to by two machines."""

from __future__ import annotations

import itertools
import json
import time

import pytest

from slimreid.gallery.errors import GalleryBusyError, GalleryError
from slimreid.gallery.gallery import Gallery
from slimreid.gallery.store.contract import CALIBRATION
from slimreid.gallery.store.milvus import collections, writing
from slimreid.gallery.store.milvus.store import MilvusStore, connect
from slimreid.gallery.store.open import create_store
from slimreid.gallery.store.rows import Change, RowState
from support.galleries import make_info, make_rows, row_fields

NUMBERS = itertools.count()


class Killed(BaseException):
    """Stands in for a process that dies: nothing is cleaned up."""


@pytest.fixture
def uri(milvus_server):
    return f"{milvus_server}/milvus_{next(NUMBERS)}"


def state(store):
    rows = [(row.id, row_fields(row)) for row in store.rows()]
    return (
        rows,
        dict(store.settings()),
        [(line.operation, line.count, line.undone_by) for line in store.log()],
    )


@pytest.mark.parametrize("request_number", range(3, 11))
def test_a_change_that_was_cut_off_is_taken_back(uri, monkeypatch, request_number):
    store = MilvusStore.create(uri, make_info())
    entry = store.commit(Change("enrol", "me", rows=make_rows(4)))
    before = state(store)
    change = Change(
        "enrol",
        "me",
        rows=make_rows(3, seed=1),
        states={1: RowState("x", ""), 2: RowState("y", "", removed=True)},
        settings={CALIBRATION: "{}"},
        continues=entry,
    )
    calls = iter(range(1000))
    real = writing.Collections.put

    def put(self, name, lines):
        if next(calls) == request_number:
            raise Killed
        real(self, name, lines)

    monkeypatch.setattr(writing.Collections, "put", put)
    monkeypatch.setattr(writing.Writer, "_take_back", lambda *_: None)
    finished = False
    try:
        store.commit(change)
        finished = True
    except Killed:
        pass
    monkeypatch.undo()
    store._writer.set_state(writer=None)  # its note has run out
    again = MilvusStore(uri)
    if finished or state(again) != before:
        rows = state(again)[0]
        assert len(rows) == 6, "the whole change is there"
        assert again.settings()[CALIBRATION] == "{}"
        assert state(again)[2] == [("enrol", 9, None)]
    again.commit(Change("enrol", "me", rows=make_rows(1, seed=7)))
    again.close()
    store.close()


def test_a_second_writer_waits_or_is_refused_by_name(uri, monkeypatch):
    store = MilvusStore.create(uri, make_info())
    note = {"who": "anna, process 7 on elsewhere", "until": time.time() + 100}
    store._writer.set_state(writer=json.dumps(note))
    monkeypatch.setattr(writing, "WAIT", 0.1)
    with pytest.raises(GalleryBusyError, match="anna, process 7 on elsewhere is writing"):
        store.commit(Change("enrol", "me", rows=make_rows(1)))
    assert store.count() == 0
    store._writer.set_state(writer=json.dumps({**note, "until": time.time() - 1}))
    store.commit(Change("enrol", "me", rows=make_rows(1)))
    assert store.count() == 1
    store.close()


def test_more_lines_than_one_answer_holds(uri, monkeypatch):
    monkeypatch.setattr(collections, "MOST", 4)
    monkeypatch.setattr(collections, "AT_ONCE", 3)
    store = MilvusStore.create(uri, make_info())
    entry = store.commit(Change("enrol", "me", rows=make_rows(11)))
    assert len(store.rows()) == 11
    store.commit(store.before(entry))
    assert store.count() == 0
    store.note("search", "me", 1, {"queries": [f"{'x' * 100}{n}" for n in range(1000)]})
    assert store.log(1)[0].details["queries"][-1] == "and 950 more"
    store.close()


def test_addresses(uri):
    with pytest.raises(GalleryError, match="no such gallery"):
        MilvusStore(uri)
    for wrong in ("milvus:///x", "milvus://host/a-b", "milvus://host/a b"):
        with pytest.raises(GalleryError, match="write milvus://host"):
            connect(wrong)


def test_a_file_is_copied_to_a_server_and_back(uri, tmp_path):
    store = create_store(tmp_path / "one.gallery", make_info())
    store.commit(Change("enrol", "me", rows=make_rows(12)))
    store.close()
    with Gallery(tmp_path / "one.gallery") as gallery:
        assert gallery.copy(uri).added == 12
    with Gallery(uri) as gallery:
        assert gallery.copy(tmp_path / "two.gallery").added == 12
        assert gallery.copy(tmp_path / "two.gallery").added == 0
