"""A small service in a thread, for tests of its page."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from slimreid.gallery.decisions.calibration import ANY, Bound, Calibration, Point
from slimreid.gallery.decisions.rates import Estimate
from slimreid.gallery.enrolment.sources import Labels
from slimreid.gallery.gallery import Gallery
from slimreid.gallery.identification import present_bound
from slimreid.gallery.store.contract import CALIBRATION
from slimreid.gallery.store.open import open_store
from slimreid.gallery.store.rows import Change, Filter
from slimreid.inference.loaded_model import LoadedModel
from slimreid.serve.http.app import create_app
from slimreid.serve.service import Service
from slimreid.serve.settings import Settings, state_folder

THRESHOLDS = {0.1: 0.2, 0.01: 0.99995, 0.001: 1.5}
"""FPIR -> threshold: at 1 % the same image is known and others are unsure, at 0.1 % others are unknown."""


def fill(place: Path, model: LoadedModel, manifest: Path) -> None:
    """A gallery of the training identities; the rows of the last one have no name."""
    with Gallery.create(place, model, by="anna") as gallery:
        gallery.enrol(manifest, labels=Labels(split="train", time=1772353505.0), show_progress=False)
        last = max(gallery.list())
        gallery.assign({row.id: "" for row in gallery.show(Filter(identities=[last]))})
        calibration = _calibration(present_bound(gallery.store), gallery)
        gallery.store.commit(
            Change(
                "calibrate", "anna", settings={CALIBRATION: calibration.to_json()}, details={"rates": [0.01]}
            )
        )


def _calibration(bound: Bound, gallery: Gallery) -> Calibration:
    points = [
        Point(
            subset,
            rate,
            searches=3000,
            identities=100,
            threshold=Estimate(score, score - 0.05, score + 0.05),
            fnir=Estimate(0.1 * score, 0.05 * score, 0.2 * score),
            mated=300,
            achieved=Estimate(rate, rate / 2, 2 * rate),
            held_out=1000,
        )
        for subset in (ANY, "r")
        for rate, score in THRESHOLDS.items()
    ]
    return Calibration(bound, gallery.info.similarity, tuple(points))


@contextmanager
def serve(place: Path, model: LoadedModel) -> Iterator[str]:
    """The address of a service for a gallery."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = Settings(state_folder(str(place)), port=port, decoders=1)
    service = Service(open_store(place), model, settings)
    config = uvicorn.Config(create_app(service), port=port, log_config=None, timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        service.stopping.set()
        server.should_exit = True
        thread.join()
