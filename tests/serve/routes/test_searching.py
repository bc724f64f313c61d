"""Images in, answers out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slimreid.errors import DataError
from slimreid.gallery.gallery import Gallery
from slimreid.serve.batching import Batcher
from support.galleries import ColourModel
from support.services import Served, files_of, picture


def enrolled_image(place, name: str, number: int = 0, modality: str = "rgb") -> bytes:
    with Gallery(place) as gallery:
        rows = [row for row in gallery.store.rows() if row.identity == name]
    return Path(rows[number].files[modality].path).read_bytes()


def test_embedding_is_what_the_model_gives_for_the_file(served: Served, tmp_path):
    image, deep = picture(1), picture(2, kind="JPEG")
    (tmp_path / "a.png").write_bytes(image)
    (tmp_path / "b.jpg").write_bytes(deep)
    parts = files_of({"rgb": image, "tir.1": deep})
    found = served.client.post("/v1/embed", files=parts).json()
    model = ColourModel()
    wanted = model.embed([{"rgb": tmp_path / "a.png"}, {"tir": tmp_path / "b.jpg"}])
    np.testing.assert_array_equal(np.float32([s["embedding"] for s in found["samples"]]), wanted)
    assert [s["modalities"] for s in found["samples"]] == [["rgb"], ["tir"]]
    assert found["fingerprint"] == model.feature_fingerprint


def test_sixteen_bit_image_is_seen_as_its_file_is(served: Served, tmp_path):
    values = np.arange(512, dtype=np.uint16).reshape(32, 16) * 50
    Image.fromarray(values).save(tmp_path / "heat.png")
    found = served.client.post("/v1/embed", files=files_of({"tir": (tmp_path / "heat.png").read_bytes()}))
    wanted = ColourModel().embed([{"tir": tmp_path / "heat.png"}])[0]
    np.testing.assert_array_equal(np.float32(found.json()["samples"][0]["embedding"]), wanted)


def test_search_answers_as_the_gallery_itself(served: Served, place):
    image = enrolled_image(place, "ben")
    found = served.client.post("/v1/search", files=files_of({"rgb": image}), data={"k": "3"}).json()
    with Gallery(place, ColourModel()) as gallery:
        path = next(Path(r.files["rgb"].path) for r in gallery.store.rows() if r.identity == "ben")
        (wanted,) = gallery.search([{"rgb": path}], k=3)
    (answer,) = found["answers"]
    assert [(m["row"]["id"], m["score"]) for m in answer["matches"]] == [
        (m.row.id, pytest.approx(m.score)) for m in wanted.matches
    ]
    assert answer["matches"][0]["row"]["identity"] == "ben"
    assert answer["searched"] == 6
    assert "files" not in answer["matches"][0]["row"], "paths of the machine stay there"


def test_search_obeys_filters_and_pools(served: Served, place):
    files = files_of({"rgb": enrolled_image(place, "ben"), "rgb.1": enrolled_image(place, "ben", 1)})
    for data, names in [
        ({"identity": ["anna", "cleo"], "identities": "true"}, {"anna", "cleo"}),
        ({"identities": "true"}, {"anna", "ben", "cleo"}),
        ({"id": ["1"]}, {"anna"}),
    ]:
        answers = served.client.post("/v1/search", files=files, data=data).json()["answers"]
        assert len(answers) == 2
        assert {m["row"]["identity"] for a in answers for m in a["matches"]} == names
    pooled = served.client.post("/v1/search", files=files, data={"pooled": "true", "k": "1"}).json()[
        "answers"
    ]
    assert [a["query"] for a in pooled] == ["sample 0 and 1 more"]
    assert pooled[0]["matches"][0]["row"]["identity"] == "ben"
    none = served.client.post("/v1/search", files=files, data={"since": "2030-01-01"}).json()["answers"]
    assert [a["matches"] for a in none] == [[], []]


def test_identify_says_why_it_cannot_decide(served: Served, place):
    found = served.client.post("/v1/identify", files=files_of({"rgb": enrolled_image(place, "anna")})).json()
    (answer,) = found["answers"]
    assert answer["state"] == "undecided"
    assert "calibrate" in answer["reason"]
    assert answer["strict"] is None
    assert answer["matches"][0]["row"]["identity"] == "anna"
    assert found["samples"][0]["modalities"] == ["rgb"]


def test_searches_are_in_the_log(served: Served):
    served.client.post("/v1/search", files=files_of({"rgb": picture(1)}))
    entry = served.client.get("/v1/log", params={"limit": 1}).json()["entries"][0]
    assert entry["operation"] == "search"
    assert entry["by"] == served.service.access._local.name


def test_model_that_does_not_tell_its_patches_says_so(served: Served):
    answer = served.client.post("/v1/patches", files=files_of({"rgb": picture(1)}))
    assert answer.status_code == 404
    assert answer.json()["name"] == "NotAvailableError"
    assert served.client.get("/v1/status").json()["model"]["patches"] is False


def test_requests_that_come_together_are_embedded_together():
    calls = []

    def embed(samples):
        calls.append(len(samples))
        return np.float32([[sample["n"]] for sample in samples])

    async def ask() -> list[float]:
        batcher = Batcher(embed, batch=8, wait=0.2, capacity=32)
        found = await asyncio.gather(*(batcher.embed([{"n": n}, {"n": -n}]) for n in range(4)))
        batcher.stop()
        return [float(part[1, 0]) for part in found]

    assert asyncio.run(ask()) == [0, -1, -2, -3]
    assert calls == [8]


def test_sample_that_does_not_fit_harms_no_other_request():
    def embed(samples):
        if any(sample["n"] == 1 for sample in samples):
            raise DataError("sample 1 is wrong")
        return np.float32([[sample["n"]] for sample in samples])

    async def ask() -> list[object]:
        batcher = Batcher(embed, batch=8, wait=0.2, capacity=32)
        found = await asyncio.gather(*(batcher.embed([{"n": n}]) for n in range(3)), return_exceptions=True)
        batcher.stop()
        return found

    first, second, third = asyncio.run(ask())
    assert isinstance(second, DataError)
    assert (float(first[0, 0]), float(third[0, 0])) == (0, 2)


def test_every_body_is_described_with_an_example(served: Served):
    document = served.client.get("/v1/openapi.json").json()
    described = 0
    for path, methods in document["paths"].items():
        for operation in methods.values():
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                schema = content["schema"]
                if "$ref" in schema:
                    schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
                fields = schema["properties"].values()
                is_file = kind == "multipart/form-data" and any("binary" in str(field) for field in fields)
                assert is_file or any("examples" in str(field) for field in fields), path
                described += 1
    assert described == 15
