"""Changes: what would happen is what happens, and can be undone."""

from __future__ import annotations

import pytest

from support.services import Served, copy_gallery, files_of, picture, serve

CHANGES = [
    ("/v1/identities/rename", {"old": "ben", "new": "bob"}, {"anna": 2, "bob": 2, "cleo": 2}),
    ("/v1/identities/merge", {"identities": ["ben", "cleo"], "into": "anna"}, {"anna": 6}),
    ("/v1/identities/split", {"rows": [1], "new": "dora"}, {"anna": 1, "ben": 2, "cleo": 2, "dora": 1}),
    ("/v1/rows/assign", {"identities": {"1": "ben", "2": ""}}, {"ben": 3, "cleo": 2}),
    ("/v1/rows/remove", {"identities": ["cleo"]}, {"anna": 2, "ben": 2}),
    ("/v1/rows/remove", {"rows": [1, 3]}, {"anna": 1, "ben": 1, "cleo": 2}),
]


@pytest.fixture(scope="module")
def kept(made_gallery, tmp_path_factory):
    """A service for requests that are refused."""
    with serve(copy_gallery(made_gallery, tmp_path_factory.mktemp("kept"))) as found:
        yield found


def sizes(served: Served) -> dict[str, int]:
    return {i["name"]: i["rows"] for i in served.client.get("/v1/identities").json()["identities"]}


@pytest.mark.parametrize(("path", "body", "after"), CHANGES)
def test_preview_says_what_the_change_does_and_undo_takes_it_back(served: Served, path, body, after):
    before = sizes(served)
    foreseen = served.client.post(path, json={**body, "dry_run": True}).json()
    assert sizes(served) == before
    assert served.client.get("/v1/log").json()["entries"][0]["operation"] == "enrol", "nothing is logged"
    done = served.client.post(path, json=body).json()
    assert done["entry"] is not None
    assert {**done, "entry": None, "dry_run": True} == foreseen
    assert sizes(served) == after
    changed = {e["identity"]: (e["before"], e["after"]) for e in done["effects"] if e["identity"]}
    assert changed == {
        name: (before.get(name, 0), after.get(name, 0))
        for name in {*before, *after}
        if before.get(name, 0) != after.get(name, 0)
    }
    assert done["rows"] == sum(len(move["rows"]) for move in done["moves"])
    back = served.client.post("/v1/undo", json={"expect": done["entry"], "dry_run": True}).json()
    assert {(m["target"], m["source"]) for m in back["moves"]} == {
        (m["source"], m["target"]) for m in done["moves"]
    }
    assert served.client.post("/v1/undo", json={"expect": done["entry"]}).status_code == 200
    assert sizes(served) == before


def test_undo_of_another_change_than_expected_is_refused(served: Served):
    first = served.client.post("/v1/identities/rename", json={"old": "ben", "new": "bob"}).json()
    served.client.post("/v1/identities/rename", json={"old": "bob", "new": "bert"})
    answer = served.client.post("/v1/undo", json={"expect": first["entry"]})
    assert answer.status_code == 409
    assert "not the last change" in answer.json()["detail"]
    assert "bert" in sizes(served)


def test_several_steps_are_previewed_as_one(served: Served):
    before = sizes(served)
    served.client.post("/v1/identities/rename", json={"old": "ben", "new": "bob"})
    served.client.post("/v1/identities/merge", json={"identities": ["bob"], "into": "anna"})
    foreseen = served.client.post("/v1/undo", json={"steps": 2, "dry_run": True}).json()
    assert [(m["source"], m["target"]) for m in foreseen["moves"]] == [("anna", "ben")]
    served.client.post("/v1/undo", json={"steps": 2})
    assert sizes(served) == before


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/identities/rename", {"old": "bem", "new": "x"}, 409, "did you mean 'ben'"),
        ("/v1/identities/rename", {"old": "ben", "new": "anna"}, 409, "merge"),
        ("/v1/identities/rename", {"old": "ben", "new": " "}, 422, "empty"),
        ("/v1/identities/rename", {"old": "ben", "new": "a\nb"}, 422, "control"),
        ("/v1/identities/rename", {"old": "ben", "new": "b", "colour": 1}, 422, "colour"),
        ("/v1/identities/split", {"rows": [1, 3], "new": "x"}, 409, "one identity at a time"),
        ("/v1/rows/assign", {"identities": {"99": "x"}}, 409, "no row 99"),
        ("/v1/rows/assign", {"identities": {}}, 422, "identities"),
        ("/v1/rows/remove", {}, 422, "which rows"),
        ("/v1/undo", {"steps": 50}, 409, "can be undone"),
        ("/v1/undo", {"steps": 0}, 422, "steps"),
    ],
)
def test_mistakes_are_named_also_in_a_preview(kept: Served, path, body, status, words):
    for dry_run in (True, False):
        answer = kept.client.post(path, json={**body, "dry_run": dry_run})
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert words in problem["detail"]
        assert problem["status"] == status
        assert problem["type"].startswith("urn:slimreid:error:")
        assert str(kept.service.store.place) not in answer.text, "paths of the machine stay there"


def test_forgotten_rows_leave_no_image_behind(served: Served):
    for images in ({"rgb": picture(1)}, {"rgb": picture(1), "tir": picture(2)}):
        served.client.post("/v1/enrol", files=files_of(images), data={"identity": "eve"})
    folder = served.service.settings.images
    kept = {path.read_bytes() for path in folder.rglob("*.png")}
    assert kept == {picture(1), picture(2)}
    foreseen = served.client.post(
        "/v1/rows/remove", json={"rows": [8], "forget": True, "dry_run": True}
    ).json()
    assert "cannot be undone" in foreseen["notes"][0]
    served.client.post("/v1/rows/remove", json={"rows": [8], "forget": True})
    assert {path.read_bytes() for path in folder.rglob("*.png")} == {picture(1)}, "the other row needs it"
    served.client.post("/v1/rows/remove", json={"identities": ["eve"], "forget": True})
    assert not list(folder.rglob("*.png"))
