"""`slimreid.Gallery`, with a model of colours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import slimreid
from slimreid.errors import ConfigError, DataError
from slimreid.gallery.clusters import read_table, table_text
from slimreid.gallery.enrolment import enrol as enrolment
from slimreid.gallery.enrolment.sources import Labels
from slimreid.gallery.errors import GalleryError, OtherModelError
from slimreid.gallery.store.rows import Change, Filter, NewRow
from slimreid.times import parse_time, show_time
from support.files import write_csv, write_image
from support.galleries import NAMES, ColourModel, D, write_people


@pytest.fixture
def people(tmp_path):
    return write_people(tmp_path / "crops", ("anna", "ben", "carl"), images=3)


@pytest.fixture
def gallery(tmp_path):
    with slimreid.Gallery.create(tmp_path / "people.gallery", ColourModel(), by="tester") as made:
        yield made


def test_a_folder_per_identity(gallery, people):
    done = gallery.enrol(people, show_progress=False)
    assert (done.added, done.known, done.broken) == (9, [], [])
    assert gallery.list() == {"anna": 3, "ben": 3, "carl": 3}
    row = gallery.show(Filter(identities=["anna"]))[0]
    assert row.modalities == ("rgb", "tir")
    assert row.files["tir"].path == (people / "anna" / "0_tir.png").as_posix()
    assert 0 <= row.quality <= 1
    assert gallery.store.thumbnails([row.id])[row.id].startswith(b"\xff\xd8")
    (entry,) = gallery.log()
    assert (entry.operation, entry.by, entry.count) == ("enrol", "tester", 9)


def test_a_file_enrolled_twice_is_noticed(gallery, people):
    gallery.enrol(people)
    (people / "dora").mkdir()
    for name in ("rgb", "tir"):
        (people / "dora" / f"x_{name}.png").write_bytes((people / "ben" / f"1_{name}.png").read_bytes())
    done = gallery.enrol(people)
    assert done.added == 0
    assert any("is row 5 already (ben)" in line for line in done.known)
    assert any("dora" in line and "the same as" in line for line in done.known)
    assert len(gallery) == 9


def test_enrolment_goes_on_where_it_was_stopped(gallery, people, monkeypatch):
    monkeypatch.setattr(enrolment, "CHUNK", 2)
    (people / "ben" / "9_rgb.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"9_rgb\.png.*stays"):
        gallery.enrol(people)
    first = len(gallery)
    assert 0 < first < 9
    done = gallery.enrol(people, skip_broken=True)
    assert (done.added, len(done.known), len(done.broken)) == (9 - first, first, 1)
    assert len(gallery) == 9
    gallery.undo()
    assert len(gallery) == first


def test_a_manifest_with_tracklets_and_times(gallery, tmp_path):
    for number in range(3):
        write_image(tmp_path / f"{number}.png", (32, 64))
    manifest = write_csv(
        tmp_path / "m.csv",
        "split,identity,camera,rgb,rgb_box,x_group,x_time",
        "gallery,a,7,0.png,,t1,2026-03-01T14:30:00",
        "gallery,a,7,1.png,0 0 20 40,t1,1000",
        "query,b,8,2.png,,,",
    )
    gallery.enrol(manifest, labels=Labels(split="gallery"))
    first, second = gallery.show(Filter(identities=["a"]))
    assert (first.group, show_time(first.time)) == ("t1", "2026-03-01T14:30:00Z")
    assert (second.time, second.files["rgb"].box) == (1000.0, (0, 0, 20, 40))
    assert len(gallery) == 2
    (answer,) = gallery.search({"rgb": tmp_path / "0.png"}, k=1, which=Filter(until=2000.0))
    assert answer.matches[0].row.id == second.id


def test_search_by_any_subset(gallery, people):
    gallery.enrol(people)
    for names in (("rgb",), ("tir",), ("rgb", "tir")):
        (answer,) = gallery.search({name: people / "ben" / f"1_{name}.png" for name in names}, k=3)
        assert answer.modalities == names
        assert answer.matches[0].row.identity == "ben"
        assert answer.matches[0].score == pytest.approx(1, abs=1e-5)
        assert [match.rank for match in answer.matches] == [1, 2, 3]
        assert answer.searched == 9
    (answer,) = gallery.search({"nir": people / "ben" / "1_rgb.png"})
    assert answer.matches == ()
    assert [line.operation for line in gallery.log()].count("search") == 4
    assert len(gallery) == 9, "nothing is enrolled by a search"


def test_identities_are_answered_once(gallery, people):
    gallery.enrol(people)
    (answer,) = gallery.search({"rgb": people / "carl" / "0_rgb.png"}, k=2, identities=True)
    assert answer.matches[0].row.identity == "carl"
    assert len({match.row.identity for match in answer.matches}) == 2


def test_images_of_one_object_are_one_query(gallery, people):
    gallery.enrol(people)
    shots = [{"rgb": people / "anna" / f"{n}_rgb.png"} for n in range(3)]
    (answer,) = gallery.search(shots, pooled=True, k=1)
    assert answer.matches[0].row.identity == "anna"
    assert len(gallery.log(1)[0].details["queries"]) == 3
    assert len(gallery.search(shots, k=1)) == 3


def test_editing_and_undoing(gallery, people):
    gallery.enrol(people)
    gallery.rename("anna", "Anna A.")
    gallery.merge(["ben", "carl"], "ben")
    gallery.split([4, 5], "dora")
    gallery.assign({6: ""})
    assert gallery.list() == {"": 1, "Anna A.": 3, "ben": 3, "dora": 2}
    gallery.remove(Filter(identities=["dora"]))
    assert len(gallery) == 7
    assert [entry.operation for entry in gallery.undo(3)] == ["remove", "assign", "split"]
    assert gallery.list() == {"Anna A.": 3, "ben": 6}
    gallery.undo(2)
    assert gallery.list() == {"anna": 3, "ben": 3, "carl": 3}
    with pytest.raises(GalleryError, match="1 changes can be undone, not 2"):
        gallery.undo(2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda g: g.rename("ana", "x"), "did you mean 'anna'"),
        (lambda g: g.rename("anna", "ben"), "merge"),
        (lambda g: g.rename("anna", " "), "needs a name"),
        (lambda g: g.merge(["anna"], "anna"), "at least one other"),
        (lambda g: g.split([1, 4], "x"), "one identity at a time"),
        (lambda g: g.split([99], "x"), "no row 99"),
        (lambda g: g.assign({99: "x"}), "no row 99"),
        (lambda g: g.remove(Filter()), "say which rows"),
        (lambda g: g.remove(Filter(cameras=["none"])), "no row matches"),
        (lambda g: g.undo(0), "at least 1"),
        (lambda g: g.search({"rgb": "none.png"}), "none.png"),
        (lambda g: g.search([]), "no image"),
    ],
)
def test_mistakes_are_named_and_change_nothing(gallery, people, wrong, message):
    gallery.enrol(people)
    before = gallery.list(), gallery.log()
    with pytest.raises((GalleryError, ConfigError, DataError), match=message):
        wrong(gallery)
    assert (gallery.list(), gallery.log()) == before


def test_another_model_is_refused_and_reembedding_is_the_cure(gallery, people, tmp_path):
    gallery.enrol(people)
    other = ColourModel(shift=0.3)
    with (
        slimreid.Gallery(tmp_path / "people.gallery", other) as wrong,
        pytest.raises(OtherModelError, match="reembed"),
    ):
        wrong.search({"rgb": people / "anna" / "0_rgb.png"})
    before = gallery.store.features([1])
    done = gallery.reembed(other, show_progress=False)
    assert done.rows == 9
    assert gallery.info.fingerprint == "colours 0.3"
    assert not np.allclose(gallery.store.features([1]), before)
    (answer,) = gallery.search({"rgb": people / "anna" / "0_rgb.png"}, k=1)
    assert answer.matches[0].score == pytest.approx(1, abs=1e-5)
    assert gallery.reembed(other).entry is None
    gallery.undo()
    np.testing.assert_array_equal(gallery.store.features([1]), before)


def test_reembedding_goes_on_where_it_was_stopped(gallery, people, monkeypatch):
    gallery.enrol(people)
    monkeypatch.setattr("slimreid.gallery.reembedding.CHUNK", 2)
    other = ColourModel(shift=0.3)
    kept = (people / "ben" / "2_rgb.png").read_bytes()
    write_image(people / "ben" / "2_rgb.png", (32, 64), seed=999)
    with pytest.raises(GalleryError, match=r"row 6: .*has changed.*--drop-missing"):
        gallery.reembed(other)
    assert gallery.info.fingerprint == "colours 0.0"
    gallery.enrol([str(write_image(people.parent / "new.png", (32, 64)))], identity="new")
    (people / "ben" / "2_rgb.png").write_bytes(kept)
    other.calls.clear()
    done = gallery.reembed(other)
    assert done.rows == 6, "four rows were done before"
    assert gallery.info.fingerprint == "colours 0.3"
    (people / "anna" / "0_tir.png").unlink()
    done = gallery.reembed(ColourModel(shift=0.5), drop_missing=True)
    assert "0_tir.png" in done.missing[0]
    assert gallery.list()["anna"] == 2
    gallery.undo()
    assert gallery.list()["anna"] == 3


def test_rows_to_look_at(gallery, tmp_path):
    folder = write_people(tmp_path / "crops", ("anna", "ben"), images=2)
    small = write_image(folder / "anna" / "small_rgb.png", (8, 8), seed=5)
    twin = folder / "ben" / "twin_rgb.png"
    twin.write_bytes((folder / "anna" / "0_rgb.png").read_bytes())
    done = gallery.enrol(folder)
    reasons = {concern.row.files["rgb"].path: concern.reasons for concern in done.concerns}
    assert any("too small" in reason for reason in reasons[small.as_posix()])
    found = reasons[twin.as_posix()]
    assert any("near-duplicate of row 1" in reason for reason in found)
    assert any("closer to somebody else: row 1 (anna)" in reason for reason in found)
    again = {concern.row.id: concern.reasons for concern in gallery.check()}
    assert again == {concern.row.id: concern.reasons for concern in done.concerns}


def crowd(gallery, identities=80, each=4, seed=0):
    """Rows around centres that are far apart."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(identities, D))
    found = np.repeat(centres, each, axis=0) + 0.3 * rng.normal(size=(identities * each, D))
    found = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
    rows = [NewRow(f, NAMES, identity=f"id{n // each}", hash=f"{seed} {n}") for n, f in enumerate(found)]
    gallery.store.commit(Change("enrol", "me", rows=rows))
    return centres


def test_known_unsure_unknown(gallery):
    query = gallery.query_features(np.ones((1, D)))
    assert gallery.identify(query)[0].decision.state == "undecided"
    centres = crowd(gallery, 100, 6)
    calibration = gallery.calibrate(show_progress=False)
    point = calibration.point("", 0.01)
    assert point.threshold is not None
    assert point.achieved is not None
    assert calibration.bound.identities == 100
    strangers = np.random.default_rng(9).normal(size=(20, D))
    (known,) = gallery.identify(gallery.query_features(centres[:1]))
    assert (known.decision.state, known.decision.name) == ("known", "id0")
    assert known.decision.rate == pytest.approx(0.01)
    states = [answer.decision.state for answer in gallery.identify(gallery.query_features(strangers))]
    assert states.count("known") <= 2
    assert gallery.log(1)[0].operation == "identify"
    crowd(gallery, 150, 6, seed=3)
    (outgrown,) = gallery.identify(gallery.query_features(centres[:1]))
    assert outgrown.decision.state == "undecided"
    assert "calibrate again" in outgrown.decision.reason


def test_identities_of_training_do_not_calibrate(gallery, people):
    gallery.enrol(people)
    gallery.use(ColourModel(identities=("anna", "ben", "carl")))
    with pytest.raises(DataError, match="was not trained on"):
        gallery.calibrate()


def test_clusters_become_identities(gallery, tmp_path):
    crowd(gallery, 5, 4)
    gallery.assign(dict.fromkeys(range(1, 21), ""))
    with pytest.raises(GalleryError, match="not calibrated"):
        gallery.cluster()
    proposal = gallery.cluster(threshold=0.7)
    assert [len(rows) for name, rows in proposal.rows.items() if name] == [4] * 5
    table = tmp_path / "clusters.csv"
    table.write_text(table_text(proposal), encoding="utf-8")
    gallery.assign(read_table(table))
    assert gallery.list() == {f"cluster-{n}": 4 for n in range(1, 6)}
    table.write_text("row,name\n1,x\n")
    with pytest.raises(DataError, match="no column 'identity'"):
        read_table(table)
    table.write_text("row,identity\nx,y\n")
    with pytest.raises(DataError, match="line 2"):
        read_table(table)


def test_times():
    assert parse_time("") is None
    assert parse_time("12.5") == 12.5
    assert show_time(parse_time("2026-03-01T14:30:00+01:00")) == "2026-03-01T13:30:00Z"
    with pytest.raises(ConfigError, match="not a time"):
        parse_time("yesterday")


def test_the_model_is_found_again(gallery, tmp_path):
    with pytest.raises(OtherModelError):
        gallery.use(replace(gallery.model, shift=1.0))
