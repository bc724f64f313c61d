"""Limits: what is too large, too much or too slow is refused by name, and the service goes on."""

from __future__ import annotations

import io
import threading
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from slimreid.errors import DataError
from slimreid.gallery.errors import GalleryDamagedError, OtherModelError
from slimreid.gallery.store.open import open_store
from slimreid.serve.decoding.messages import Decoded, pack, pack_decoded, unpack_decoded
from slimreid.serve.decoding.pool import DecodePool
from slimreid.serve.service import Service, open_service
from slimreid.serve.settings import ServiceLimits, Settings
from support.galleries import ColourModel
from support.services import LIMITS, Served, files_of, picture, serve, with_limits


def test_too_large_a_body_is_refused_before_it_is_read(served: Served):
    answer = served.client.post("/v1/search", content=b"", headers={"Content-Length": "3000000"})
    assert answer.status_code == 413
    assert answer.json()["name"] == "TooLargeError"


def test_body_in_pieces_is_cut_off(served: Served):
    answer = served.client.post("/v1/search", content=(bytes(100_000) for _ in range(30)))
    assert answer.status_code == 413
    assert served.client.get("/v1/ready").status_code == 200


def test_too_many_images_and_pixels(served: Served):
    many = {f"rgb.{n}": picture(1) for n in range(17)}
    assert served.client.post("/v1/search", files=files_of(many)).status_code == 413
    large = picture(1, (1001, 1000))
    answer = served.client.post("/v1/search", files=files_of({"rgb": large}))
    assert answer.status_code == 422
    assert "more than the 1,000,000 allowed" in answer.json()["detail"]
    together = {f"rgb.{n}": picture(n, (900, 1000)) for n in range(3)}
    assert served.client.post("/v1/search", files=files_of(together)).status_code == 413


def test_full_queue_is_said_and_health_still_answers(place):
    with serve(place, limits=ServiceLimits(rate=0, queue=2)) as served:
        with served.service.batcher.reserve(2):
            answer = served.client.post("/v1/search", files=files_of({"rgb": picture(1)}))
            assert answer.status_code == 503
            assert answer.json()["name"] == "BusyError"
            assert int(answer.headers["retry-after"]) >= 1
            assert served.client.get("/v1/ready").status_code == 503
            assert served.client.get("/v1/health").status_code == 200
        assert served.client.post("/v1/search", files=files_of({"rgb": picture(1)})).status_code == 200
        assert served.client.get("/v1/status").json()["load"]["refused"] == 2


def test_request_that_takes_too_long_is_given_up(place):
    with serve(place, request=with_limits(seconds=0.3)) as served:
        held = threading.Event()
        plain = served.service.model.embed

        def slow(images, **options):
            held.wait(1.0)
            return plain(images, **options)

        served.service.model.embed = slow
        answer = served.client.post("/v1/search", files=files_of({"rgb": picture(1)}))
        held.set()
        assert answer.status_code == 503
        assert "0.3 seconds" in answer.json()["detail"]


def test_mistake_of_ours_shows_nothing_of_the_code(place):
    with serve(place) as served:
        served.service.model.embed = lambda *_, **__: 1 / 0
        answer = served.client.post("/v1/search", files=files_of({"rgb": picture(1)}))
        assert answer.status_code == 500
        assert answer.headers["content-type"] == "application/problem+json"
        assert "ZeroDivision" not in answer.text
        assert "Traceback" not in answer.text


def bomb() -> bytes:
    """A small file that claims to be a large image."""
    buffer = io.BytesIO()
    Image.new("1", (12_000, 12_000)).save(buffer, "PNG")
    return buffer.getvalue()


def test_decoder_that_dies_is_replaced():
    pool = DecodePool(1, LIMITS)
    try:
        assert pool.decode({"rgb": picture(1)}).arrays["rgb"].shape == (32, 16, 3)
        process = pool._decoders[0]._process
        assert process is not None
        process.kill()
        process.join()
        assert pool.decode({"rgb": picture(1)}).quality >= 0, "a process that is gone is started again"
        with pytest.raises(DataError, match="more than the 1,000,000 allowed"):
            pool.decode({"rgb": bomb()})
    finally:
        pool.stop()


def test_decoder_that_hangs_or_talks_nonsense_is_ended():
    class Odd:
        """Answers, but not as a decoder does."""

        stopped = 0

        def __init__(self, answer):
            self.answer = answer

        def ask(self, message, seconds):
            return self.answer

        def stop(self):
            self.stopped += 1

    for answer in (
        None,
        b"",
        b"\x80\x04K\x01.",
        pack({"arrays": [["rgb", "object", [1]]], "quality": 1}, [b""]),
    ):
        pool = DecodePool(0, LIMITS)
        odd = Odd(answer)
        pool._idle.put(odd)
        with pytest.raises(DataError, match="could not be decoded"):
            pool.decode({"rgb": b""})
        assert pool.deaths == 1
        assert odd.stopped == (answer is not None)


def test_message_of_a_decoder_is_read_back():
    arrays = {"rgb": np.arange(24, dtype=np.uint8).reshape(2, 4, 3), "tir": np.ones((2, 4), np.uint16)}
    found = unpack_decoded(pack_decoded(Decoded(arrays, 0.5, ("rgb: blurred",), b"jpeg")))
    assert isinstance(found, Decoded)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    assert (found.quality, found.reasons, found.thumbnail) == (0.5, ("rgb: blurred",), b"jpeg")
    assert unpack_decoded(pack({"error": "no"}, [])) == "no"


def test_damaged_gallery_and_other_model_are_named_at_start(place, tmp_path):
    with open_and_close(place) as store, pytest.raises(OtherModelError, match="another model"):
        Service(store, ColourModel(shift=1.0), Settings(tmp_path))
    content = bytearray(place.read_bytes())
    content[:100] = bytes(100)
    place.write_bytes(content)
    with pytest.raises(GalleryDamagedError):
        open_service(str(place), tmp_path / "model", Settings(tmp_path))


def open_and_close(place):
    return closing(open_store(place))


def test_metrics_count_what_happened(served: Served):
    served.client.post("/v1/search", files=files_of({"rgb": picture(1)}))
    served.client.get("/v1/nothing")
    text = served.client.get("/v1/metrics").text
    assert "slimreid_rows 6" in text
    assert "slimreid_embedded_total 1" in text
    assert 'slimreid_batch_samples_bucket{le="1"} 1' in text
    assert any("search" in line and line.endswith(" 1") for line in text.splitlines())
    for line in text.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2
