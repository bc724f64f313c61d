"""What every store of a gallery does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reference.gallery_search import best
from slimreid.errors import DataError
from slimreid.gallery.errors import GalleryError
from slimreid.gallery.store.contract import CALIBRATION, GENERATION, whole_rows
from slimreid.gallery.store.open import create_store, open_store
from slimreid.gallery.store.rows import Change, Filter, RowState
from support.galleries import NAMES, make_info, make_rows, make_similarity, row_fields


def enrol(store, count=12, seed=0, **options):
    rows = make_rows(count, seed, **options)
    return rows, store.commit(Change("enrol", "me", {"from": "here"}, rows=rows))


def test_rows_come_back_whole(make_store):
    store = make_store()
    rows, _ = enrol(store)
    found = store.rows()
    assert [row_fields(row) for row in found] == [row_fields(row) for row in rows]
    ids = [row.id for row in found]
    assert ids == sorted(set(ids))
    np.testing.assert_array_equal(store.features(ids[::-1]), np.stack([row.feature for row in rows])[::-1])
    assert store.thumbnails(ids[:3]) == {i: row.thumbnail for i, row in zip(ids[:3], rows, strict=False)}
    exported = [pair for chunk in whole_rows(store, Filter(), chunk=5) for pair in chunk]
    assert [number for number, _ in exported] == ids
    for (_, copy), row in zip(exported, rows, strict=True):
        assert row_fields(copy) == row_fields(row)
        assert copy.thumbnail == row.thumbnail
        np.testing.assert_array_equal(copy.feature, row.feature)
    assert store.check() == []


def test_what_is_committed_is_there_after_a_restart(make_store, place):
    store = make_store()
    rows, entry = enrol(store)
    store.commit(Change("set", "me", settings={CALIBRATION: "{}"}))
    store.close()
    again = open_store(place)
    assert [row_fields(row) for row in again.rows()] == [row_fields(row) for row in rows]
    assert again.settings()[CALIBRATION] == "{}"
    assert again.model.to_json() == make_info().to_json()
    assert [line.operation for line in again.log()] == ["set", "enrol"]
    assert again.log()[-1].count == 12
    again.close()


FILTERS = [
    Filter(),
    Filter(identities=["person 1"]),
    Filter(identities=[""]),
    Filter(cameras=["cam1"], since=1003),
    Filter(until=1006.0),
    Filter(modalities=["nir"]),
    Filter(modalities=["rgb", "tir"], groups=["track 0", "track 2"]),
    Filter(ids=[2, 3, 11, 99]),
    Filter(identities=[]),
    Filter(hashes=[row.hash for row in make_rows(12)[3:6]]),
]


def is_meant(row, which):
    return (
        (which.ids is None or row.id in which.ids)
        and (which.identities is None or row.identity in which.identities)
        and (which.cameras is None or row.camera in which.cameras)
        and (which.groups is None or row.group in which.groups)
        and (which.hashes is None or row.hash in which.hashes)
        and (which.since is None or (row.time is not None and row.time >= which.since))
        and (which.until is None or (row.time is not None and row.time < which.until))
        and set(which.modalities or ()) <= set(row.modalities)
    )


def test_filters_mean_the_same_everywhere(make_store):
    store = make_store()
    enrol(store)
    query = make_similarity().prepare(store.features([1, 2]), [[1, 1, 1], [1, 1, 1]])
    for which in FILTERS:
        meant = [row.id for row in store.rows() if is_meant(row, which)]
        assert [row.id for row in store.rows(which)] == meant, which
        assert store.count(which) == len(meant)
        for found in store.search(query, 50, which):
            assert set(found.ids.tolist()) <= set(meant)
        assert [row.id for row in store.rows(which, limit=2, after=2)] == [i for i in meant if i > 2][:2]


@pytest.mark.parametrize("scaled", [True, False])
def test_search_is_that_of_a_plain_loop(make_store, scaled):
    store = make_store(scaled=scaled)
    rows, _ = enrol(store, 24)
    similarity = make_similarity(scaled)
    listed = [(row.id, new.feature, row.modalities) for row, new in zip(store.rows(), rows, strict=True)]
    rng = np.random.default_rng(1)
    seen = [NAMES, ("rgb",), ("nir", "tir"), ("tir",)]
    features = rng.normal(size=(len(seen), rows[0].feature.size)).astype(np.float32)
    present = [[name in names for name in NAMES] for names in seen]
    found = store.search(similarity.prepare(features, present), 5)
    for names, feature, each in zip(seen, features, found, strict=True):
        expected = best(similarity, feature, names, listed, 5)
        assert each.ids.tolist() == [number for number, _ in expected]
        np.testing.assert_allclose(each.scores, [score for _, score in expected], atol=1e-5)
        assert list(each.identities) == [store.rows(Filter(ids=[i]))[0].identity for i in each.ids.tolist()]


def test_rows_that_share_nothing_are_never_found(make_store):
    store = make_store()
    rows = [row for row in make_rows(30) if row.modalities == ("nir",)]
    assert rows
    store.commit(Change("enrol", "me", rows=rows))
    query = make_similarity().prepare(rows[0].feature[None], [[1, 0, 1]])
    assert store.search(query, 5)[0].ids.tolist() == []


def test_another_scale_changes_scores(make_store):
    store = make_store()
    enrol(store)
    query = make_similarity().prepare(store.features([2]), [[1, 1, 1]])
    (plain,) = store.search(query, 1, Filter(), make_similarity(scaled=False))
    assert plain.scores[0] == pytest.approx(1, abs=1e-5)
    assert store.search(query, 1)[0].scores[0] != pytest.approx(1, abs=1e-2)


def test_a_search_sees_what_was_just_changed(make_store, place):
    store, other = make_store(), None
    rows, _ = enrol(store, missing=False)
    query = make_similarity().prepare(rows[4].feature[None])
    other = open_store(place)
    for each in (store, other):
        assert each.search(query, 1)[0].ids.tolist() == [5]
    before = other.version
    store.commit(Change("remove", "me", states={5: RowState("person 1", "", removed=True)}))
    assert other.version != before
    for each in (store, other):
        assert each.search(query, 1)[0].ids.tolist() != [5]
        assert each.count() == 11
    store.commit(Change("rename", "me", states={6: RowState("somebody", "")}))
    (found,) = other.search(query, 12)
    assert dict(zip(found.ids.tolist(), found.identities, strict=True))[6] == "somebody"
    enrol(store, 3, seed=5)
    assert other.search(query, 50)[0].ids.max() == 15
    other.close()


def test_changes_are_undone_one_by_one(make_store, place):
    store = make_store()
    enrol(store)
    states = [_state(store)]
    changes = [
        Change("merge", "a", states={1: RowState("x", ""), 2: RowState("x", "")}),
        Change("remove", "b", states={2: RowState("x", "", removed=True)}),
        Change("calibrate", "c", settings={CALIBRATION: "{}"}),
        Change("enrol", "d", rows=make_rows(2, seed=3)),
    ]
    for change in changes:
        store.commit(change)
        states.append(_state(store))
    store.close()
    store = open_store(place)
    for expected in states[-2::-1]:
        (entry,) = store.log(1, undoable=True)
        store.commit(replace(store.before(entry.id), by="u"))
        assert _state(store) == expected
    entries = {line.id: line for line in store.log()}
    assert [line.operation for line in store.log()][:4] == ["undo"] * 4
    assert all(entries[line.undone_by].operation == "undo" for line in entries.values() if line.undone_by)
    with pytest.raises(GalleryError, match="was undone"):
        store.before(store.log()[-2].id)
    store.close()


def _state(store):
    rows = {row.id: row_fields(row) for row in store.rows()}
    return rows, {k: v for k, v in store.settings().items() if k in (CALIBRATION, GENERATION)}


def test_parts_of_one_entry_are_undone_together(make_store):
    store = make_store()
    rows = make_rows(6)
    entry = store.commit(Change("enrol", "me", rows=rows[:2]))
    assert store.commit(Change("enrol", "me", rows=rows[2:], continues=entry)) == entry
    assert [(line.operation, line.count) for line in store.log()] == [("enrol", 6)]
    store.commit(store.before(entry))
    assert store.count() == 0
    with pytest.raises(GalleryError, match="was undone"):
        store.commit(Change("enrol", "me", rows=rows[:1], continues=entry))
    assert store.count() == 0


def test_a_change_that_fails_leaves_nothing(make_store):
    store = make_store()
    enrol(store, 3)
    before = _state(store), store.log()
    with pytest.raises(GalleryError, match="no row 99"):
        store.commit(
            Change("rename", "me", rows=make_rows(2, 1), states={1: RowState("x", ""), 99: RowState("x", "")})
        )
    with pytest.raises(GalleryError, match="a feature is"):
        store.commit(Change("enrol", "me", rows=[replace(make_rows(1)[0], feature=np.zeros(3, np.float32))]))
    assert (_state(store), store.log()) == before


def test_searches_are_noted(make_store):
    store = make_store()
    version = store.version
    store.note("search", "me", 3, {"queries": ["a.png"]})
    (line,) = store.log()
    assert (line.operation, line.by, line.count, dict(line.details)) == (
        "search",
        "me",
        3,
        {"queries": ["a.png"]},
    )
    assert not line.undoable
    assert store.version == version
    assert store.log(undoable=True) == []


def test_identities_are_counted(make_store):
    store = make_store()
    rows, _ = enrol(store)
    names = [row.identity for row in rows]
    assert store.identities() == {name: names.count(name) for name in sorted(set(names))}


def test_forgotten_rows_are_gone(make_store):
    store = make_store()
    rows, _ = enrol(store, missing=False)
    store.commit(
        Change(
            "rename",
            "me",
            {"identities": [rows[1].identity], "to": "secret"},
            states={2: RowState("secret", "")},
        )
    )
    store.commit(
        Change("remove", "me", {"identities": ["secret"]}, states={2: RowState("secret", "", removed=True)})
    )
    store.note("search", "me", 1, {"queries": [rows[1].files["rgb"].path, "other.png"]})
    entry = store.forget([2], "boss")
    assert [row.id for row in store.rows(Filter(removed=None))] == [1, *range(3, 13)]
    lines = {line.id: line for line in store.log()}
    assert (lines[entry].operation, lines[entry].by, lines[entry].count, lines[entry].undoable) == (
        "forget",
        "boss",
        1,
        False,
    )
    text = repr([dict(line.details) for line in lines.values()])
    assert "secret" not in text
    assert "1_rgb" not in text
    assert "other.png" in text
    query = make_similarity().prepare(rows[1].feature[None])
    assert 2 not in store.search(query, 50)[0].ids.tolist()
    for line in store.log(undoable=True):
        store.commit(store.before(line.id))
    assert store.count(Filter(removed=None)) == 11
    enrol(store, 1, seed=9)
    assert store.rows()[-1].id > 12, "numbers of rows are not used twice"


def test_another_generation_is_seen_only_after_the_switch(make_store, place):
    store = make_store()
    rows, _ = enrol(store, 4, missing=False)
    new = {number + 1: np.roll(row.feature, 1) for number, row in enumerate(rows)}
    other = make_info("two")
    store.stage(2, other, {1: new[1], 2: new[2]})
    assert store.model.fingerprint == "one"
    np.testing.assert_array_equal(store.features([1]), rows[0].feature[None])
    info, there = store.staged(2)
    assert info is not None
    assert (info.fingerprint, there.tolist()) == ("two", [1, 2])
    with pytest.raises(GalleryError, match="no feature"):
        store.commit(Change("reembed", "me", settings={GENERATION: "2"}))
    store.stage(2, other, {3: new[3], 4: new[4]})
    store.commit(Change("reembed", "me", settings={GENERATION: "2"}, count=4))
    assert store.model.fingerprint == "two"
    query = make_similarity().prepare(new[3][None])
    assert store.search(query, 1)[0].ids.tolist() == [3]
    np.testing.assert_array_equal(store.features([1]), new[1][None])
    (entry,) = store.log(1, undoable=True)
    store.commit(store.before(entry.id))
    assert store.model.fingerprint == "one"
    np.testing.assert_array_equal(store.features([1]), rows[0].feature[None])
    store.unstage(2)
    assert store.staged(2)[0] is None
    with pytest.raises(GalleryError, match="in use"):
        store.unstage(1)


def test_a_gallery_is_made_only_once(make_store, place):
    make_store()
    with pytest.raises(DataError, match="exists"):
        create_store(place, make_info())


def test_features_of_rows_that_are_not_there(make_store):
    with pytest.raises(GalleryError, match="row 7"):
        make_store().features([7])
