"""Enrolment: once, on disk before it is acknowledged; jobs that survive a restart."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from slimreid.gallery.gallery import Gallery
from slimreid.serve.jobs.files import job_folders, part_files, read_state, write_state
from support.galleries import ColourModel
from support.services import Served, files_of, picture, serve


def rows_of(place: Path) -> list:
    with Gallery(place) as gallery:
        return gallery.store.rows()


def begin(served: Served, **labels: str) -> str:
    return served.client.post("/v1/jobs", json=labels).json()["id"]


def add(served: Served, job: str, images: dict[str, bytes], **data: str) -> dict:
    answer = served.client.post(f"/v1/jobs/{job}/samples", files=files_of(images), data=data)
    assert answer.status_code == 202, answer.text
    return answer.json()


def wait(served: Served, job: str) -> dict:
    """The last of a job's events."""
    with served.client.stream("GET", f"/v1/jobs/{job}/events") as stream:
        lines = [line for line in stream.iter_lines() if line.startswith("data: ")]
    return json.loads(lines[-1].removeprefix("data: "))


def test_enrolled_sample_is_a_row_with_everything_said_of_it(served: Served, place: Path):
    data = {"identity": "dora", "camera": "gate", "time": "2026-03-01T14:30:00", "group": "t1"}
    answer = served.client.post(
        "/v1/enrol", files=files_of({"tir": picture(5), "rgb": picture(4)}), data=data
    )
    assert answer.status_code == 201
    (sample,) = answer.json()["samples"]
    row = served.client.get(f"/v1/rows/{sample['row']}").json()
    assert (row["identity"], row["camera"], row["group"]) == ("dora", "gate", "t1")
    assert row["modalities"] == ["rgb", "tir"]
    assert row["time"] == 1772375400.0
    assert served.client.get(row["thumbnail"]).headers["content-type"] == "image/jpeg"
    larger = served.client.get(f"/v1/rows/{sample['row']}/image", params={"modality": "tir"})
    assert larger.content.startswith(b"\xff\xd8\xff")
    stored = rows_of(place)[-1]
    assert Path(stored.files["rgb"].path).read_bytes() == picture(4), "so that it can be embedded anew"


def test_row_is_the_same_as_one_enrolled_from_the_file(served: Served, tmp_path, place: Path):
    folder = tmp_path / "new" / "dora"
    folder.mkdir(parents=True)
    (folder / "1_rgb.png").write_bytes(picture(4))
    served.client.post("/v1/enrol", files=files_of({"rgb": picture(4)}), data={"identity": "dora"})
    with Gallery(place, ColourModel()) as gallery:
        done = gallery.enrol(tmp_path / "new", show_progress=False)
    assert (done.added, len(done.known)) == (0, 1), "its hash is that of the file"


def test_labels_of_single_samples(served: Served):
    images = {"rgb": picture(1), "rgb.1": picture(2), "tir.7": picture(3)}
    data = {"identity": "dora", "identity.1": "eve", "camera.7": "gate"}
    samples = served.client.post("/v1/enrol", files=files_of(images), data=data).json()["samples"]
    rows = [served.client.get(f"/v1/rows/{sample['row']}").json() for sample in samples]
    assert [sample["number"] for sample in samples] == [0, 1, 7]
    assert [row["identity"] for row in rows] == ["dora", "eve", "dora"]
    assert [row["camera"] for row in rows] == ["", "", "gate"]


def test_same_image_is_enrolled_once(served: Served):
    files = files_of({"rgb": picture(1), "rgb.1": picture(1)})
    first = served.client.post("/v1/enrol", files=files).json()["samples"]
    assert [sample["state"] for sample in first] == ["enrolled", "known"]
    second = served.client.post("/v1/enrol", files=files)
    assert second.status_code == 200
    assert [sample["state"] for sample in second.json()["samples"]] == ["known", "known"]
    assert {s["row"] for s in first} == {s["row"] for s in second.json()["samples"]}
    assert served.client.get("/v1/status").json()["rows"] == 7


def test_preview_of_an_enrolment_says_what_speaks_against_it(served: Served, place: Path):
    known = Path(rows_of(place)[0].files["rgb"].path).read_bytes()
    files = files_of({"rgb": known, "tir.1": picture(3)})
    data = {"identity": "ben", "dry_run": "true"}
    foreseen = served.client.post("/v1/enrol", files=files, data=data).json()
    assert foreseen["entry"] is None
    assert served.client.get("/v1/status").json()["rows"] == 6
    done = served.client.post("/v1/enrol", files=files, data={"identity": "ben"}).json()
    for before, after in zip(foreseen["samples"], done["samples"], strict=True):
        assert set(before["concerns"]) == set(after["concerns"])
    assert any("closer to somebody else" in text for text in done["samples"][0]["concerns"])


def test_one_broken_image_enrols_nothing(served: Served):
    answer = served.client.post("/v1/enrol", files=files_of({"rgb": picture(1), "rgb.1": b"no image"}))
    assert answer.status_code == 422
    assert answer.json()["name"] == "DataError"
    assert served.client.get("/v1/status").json()["rows"] == 6


def test_job_is_one_entry_of_the_log_and_is_undone_as_one(served: Served):
    job = begin(served, identity="dora", camera="gate")
    add(served, job, {"rgb": picture(1), "rgb.1": picture(2)})
    add(served, job, {"rgb": picture(3), "rgb.1": b"broken", "rgb.2": picture(1)}, identity="eve")
    served.client.post(f"/v1/jobs/{job}/finish")
    done = wait(served, job)
    assert (done["state"], done["received"]) == ("done", 5)
    assert (done["enrolled"], done["known"], done["broken"]) == (3, 1, 1)
    assert "sample 1 of part 2" in done["problems"][0]
    found = {i["name"]: i["rows"] for i in served.client.get("/v1/identities").json()["identities"]}
    assert (found["dora"], found["eve"]) == (2, 1)
    entry = served.client.get("/v1/log").json()["entries"][0]
    assert (entry["id"], entry["count"]) == (done["entry"], 3)
    served.client.post("/v1/undo", json={"expect": entry["id"]})
    assert served.client.get("/v1/status").json()["rows"] == 6
    late = served.client.post(f"/v1/jobs/{job}/samples", files=files_of({"rgb": picture(9)}))
    assert late.status_code == 422
    assert [j["id"] for j in served.client.get("/v1/jobs").json()["jobs"]] == [job]


def test_cancelled_job_keeps_nothing_that_waits(served: Served):
    job = begin(served)
    assert served.client.delete(f"/v1/jobs/{job}").json()["state"] == "cancelled"
    assert wait(served, job)["state"] == "cancelled"
    assert not part_files(served.service.settings.jobs / job)
    assert served.client.get(f"/v1/jobs/{'0' * 16}").status_code == 404


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_job_goes_on_after_a_kill(place: Path, tmp_path: Path, moment: str):
    """The state that a kill leaves before, between, and after a commit of the gallery and the counting."""
    with serve(place) as served:
        job = begin(served, identity="dora")
        before = served.service.settings.jobs / job
        shutil.copytree(before, tmp_path / "kept")
        add(served, job, {"rgb": picture(1), "rgb.1": picture(2)})
        served.client.post(f"/v1/jobs/{job}/finish")
        done = wait(served, job)
        assert done["enrolled"] == 2
        finished = read_state(before)
    folder = place.with_name(place.name + ".service") / "jobs" / job
    if moment == "before":
        with Gallery(place) as gallery:
            gallery.undo()
    if moment != "after":
        with serve(place) as served:  # writes the part again, as it was before
            other = begin(served)
            served.service.stopping.set()
            add(served, other, {"rgb": picture(1), "rgb.1": picture(2)}, identity="dora")
        parts = part_files(folder.with_name(other))
        assert list(parts) == [1]
        shutil.move(parts[1], folder / "part-000001.bin")
        shutil.rmtree(folder.with_name(other))
        hashes = [row.hash for row in rows_of(place) if row.identity == "dora"]
        state = read_state(tmp_path / "kept")
        write_state(folder, replace(state, state="running", received=2, pending=hashes))
    with serve(place) as served:
        again = wait(served, job)
        assert (again["state"], again["enrolled"], again["known"]) == ("done", 2, 0)
        if moment != "before":
            assert again["entry"] == finished.entry
    rows = [row for row in rows_of(place) if row.identity == "dora"]
    assert len(rows) == len({row.hash for row in rows}) == 2


def test_damaged_job_does_not_stop_the_service(place: Path, caplog):
    folder = place.with_name(place.name + ".service") / "jobs" / ("a" * 16)
    folder.mkdir(parents=True)
    (folder / "job.json").write_text("{")
    with serve(place) as served:
        assert served.client.get("/v1/jobs").json() == {"jobs": []}
    assert job_folders(folder.parent) == [folder], "it is left for somebody to look at"
    assert "cannot be read" in caplog.text


def test_calibration_is_a_job(served: Served):
    job = served.client.post("/v1/calibration", json={"rates": [0.01]}).json()
    done = wait(served, job["id"])
    assert done["state"] == "done"
    found = served.client.get("/v1/calibration").json()
    assert found["state"] == "ok"
    assert found["rates"] == [0.01]
    assert all(point["refusal"] for point in found["points"]), "three people are too few"
    answer = served.client.post("/v1/identify", files=files_of({"rgb": picture(1)})).json()["answers"][0]
    assert answer["state"] == "undecided"
    assert "cannot be promised" in answer["reason"]
