"""A service in a process of its own: slow senders, an orderly end, kills, client and command line."""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slimreid.client import Client, ServerError, UnreachableError
from slimreid.errors import ConfigError, DataError, SlimReIDError
from slimreid.gallery.errors import GalleryError
from slimreid.gallery.gallery import Gallery
from support.commands import run_command
from support.galleries import ColourModel
from support.service_process import free_port, service_process, start
from support.services import copy_gallery, picture, serve

HEAD = "POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def running(made_gallery, tmp_path_factory):
    """A service: its gallery and port."""
    place = copy_gallery(made_gallery, tmp_path_factory.mktemp("running"))
    with service_process(place) as (port, _):
        yield place, port


@pytest.fixture(scope="module")
def strict(made_gallery, tmp_path_factory):
    """The port of a service that allows 2 seconds for a request; on a busy machine an honest one takes longer."""
    place = copy_gallery(made_gallery, tmp_path_factory.mktemp("strict"))
    with service_process(place, seconds=2.0) as (port, _):
        yield port


@pytest.fixture
def client(running):
    with Client(f"http://127.0.0.1:{running[1]}", retries=1) as found:
        yield found


def talk(port: int, pieces: list[bytes], pause: float = 0.0) -> bytes:
    """Send pieces with pauses; what comes back until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
            connection.settimeout(20)
        except OSError:
            pass
        received = b""
        try:
            while data := connection.recv(65536):
                received += data
        except ConnectionError:
            pass
        return received


def test_who_sends_no_head_is_dropped(strict):
    starts = ([], [b"GET /v1/status HT"], [b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
    with ThreadPoolExecutor(3) as senders:
        assert list(senders.map(talk, [strict] * 3, starts)) == [b"", b"", b""]


def test_who_sends_a_body_too_slowly_is_refused(strict):
    head = f"{HEAD}Content-Length: 1000\r\n\r\n".encode()
    with ThreadPoolExecutor(1) as senders:
        drip = senders.submit(talk, strict, [head, *[b"a"] * 6], pause=0.5)
        answer = talk(strict, [head, b"a"])
    assert answer.startswith(b"HTTP/1.1 408")
    assert drip.result().split()[1] in (b"408", b"503")


def test_endless_body_is_cut_off(running):
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    answer = talk(running[1], [f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode(), *[chunk] * 60])
    assert answer == b"" or b"413" in answer.split(b"\r\n")[0]


def test_what_is_no_http_is_refused(running):
    rng = random.Random(0)
    for piece in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"A" * 100_000, rng.randbytes(500) + b"\r\n\r\n"):
        answer = talk(running[1], [piece])
        assert answer == b"" or answer.split()[1].startswith(b"4")
    two_lengths = f"{HEAD}Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef".encode()
    assert talk(running[1], [two_lengths]).split()[1] == b"400"


def test_client_uses_the_words_of_a_gallery(running, client: Client, tmp_path: Path):
    place, _ = running
    with Gallery(place, ColourModel()) as gallery:
        row = gallery.store.rows()[0]
        path = Path(row.files["rgb"].path)
        (wanted,) = gallery.search([{"rgb": path}], k=3)
    (answer,) = client.search([{"rgb": path}], k=3)
    assert [(m.row.id, m.row.identity) for m in answer.matches] == [
        (m.row.id, m.row.identity) for m in wanted.matches
    ]
    assert [m.score for m in answer.matches] == pytest.approx([m.score for m in wanted.matches])
    assert answer.query == str(path)
    assert client.embed([{"rgb": path}, {"tir": picture(2)}]).shape == (2, 24)
    assert client.identify([{"rgb": path}])[0].decision.state == "undecided"
    assert client.identities() == {"anna": 2, "ben": 2, "cleo": 2}
    (sample,) = client.enrol([{"rgb": picture(50)}], identity="dora")
    assert sample.state == "enrolled"
    assert client.thumbnail(sample.row).startswith(b"\xff\xd8")
    assert client.rename("dora", "eve", dry_run=True).moves[0]["target"] == "eve"
    client.assign({sample.row: "fay"})
    client.undo(2)
    assert client.status()["rows"] == 6
    assert client.log(1)[0]["operation"] == "undo"
    assert client.calibration()["state"] == "none"
    jobs = list(client.enrol_many([{"rgb": picture(n)} for n in range(60, 80)], [{"identity": "gus"}] * 20))
    assert (jobs[-1].state, jobs[-1].enrolled) == ("done", 20)
    client.remove(identities=["gus"])


def test_client_raises_what_a_file_would_raise(running, client: Client):
    with pytest.raises(GalleryError, match="no identity 'bem'; did you mean 'ben'"):
        client.rename("bem", "x")
    with pytest.raises(DataError, match="not a JPEG"):
        client.search([{"rgb": b"text"}])
    with pytest.raises(DataError, match="no image to send"):
        client.search([])
    with pytest.raises(ServerError, match="no such job"):
        client.job("0" * 16)
    with pytest.raises(ConfigError, match="not the address"):
        Client("ftp://x")
    with Client(f"http://127.0.0.1:{free_port()}", retries=0) as lost, pytest.raises(UnreachableError):
        lost.status()


def test_command_works_on_a_service_as_on_a_file(running, capsys, tmp_path: Path):
    place, port = running

    def run_cli(*words: str) -> str:
        code, out, err = run_command(*words, capsys=capsys)
        assert code == 0, err
        return out

    with Gallery(place) as gallery:
        image = gallery.store.rows()[2].files["rgb"].path
    url = f"http://127.0.0.1:{port}"
    found = json.loads(run_cli("gallery", "search", image, "--server", url, "--json", "--top", "2"))
    assert found[0]["matches"][0]["identity"] == "ben"
    assert run_cli("gallery", "search", url, image, "--json", "--top", "2") == run_cli(
        "gallery", "search", "--server", url, "--json", image, "--top", "2"
    )
    assert (
        json.loads(run_cli("gallery", "identify", image, "--server", url, "--json"))[0]["state"]
        == "undecided"
    )
    (tmp_path / "hal").mkdir()
    (tmp_path / "hal" / "1_rgb.png").write_bytes(picture(90))
    text = run_cli("gallery", "enrol", str(tmp_path), "--server", url)
    assert "1 samples enrolled, 0 were there already; now 7 rows of 4 identities" in text
    with Client(url) as client:
        client.undo()


def test_sigterm_finishes_what_runs(made_gallery, tmp_path: Path):
    place = copy_gallery(made_gallery, tmp_path / "g")
    with service_process(place) as (port, process):
        url = f"http://127.0.0.1:{port}"
        answers: list[object] = []

        def ask(number: int) -> None:
            with Client(url, retries=0) as client:
                try:
                    answers.append(client.enrol([{"rgb": picture(number)}])[0].row)
                except SlimReIDError as error:
                    answers.append(error)

        with Client(url) as client:
            job = client.begin_enrolment()
            client.add_samples(job.id, [{"rgb": picture(500)}])
        stream = http.client.HTTPConnection("127.0.0.1", port)
        stream.request("GET", f"/v1/jobs/{job.id}/events")
        reader = stream.getresponse()
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while not answers:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        reader.read()
        assert process.wait(30) == 0
    rows = [answer for answer in answers if isinstance(answer, int)]
    assert rows
    assert all(isinstance(answer, (int, UnreachableError)) for answer in answers), answers
    with Gallery(place) as gallery:
        assert {row.id for row in gallery.store.rows()} >= set(rows)


def test_killed_service_loses_nothing_it_acknowledged(made_gallery, tmp_path: Path):
    place = copy_gallery(made_gallery, tmp_path / "g")
    port, rng = free_port(), random.Random(3)
    acknowledged: dict[str, int] = {}
    url = f"http://127.0.0.1:{port}"
    for round_ in range(3):
        process = start(place, port)

        def enrol(first: int, url: str = url) -> None:
            with Client(url, retries=0) as client:
                try:
                    job = client.begin_enrolment(identity=f"job {first}")
                    for number in range(first, first + 100, 3):
                        (one,) = client.enrol([{"rgb": picture(number)}], identity=f"{number}")
                        acknowledged[f"{number}"] = one.row
                        client.add_samples(
                            job.id, [{"rgb": picture(number + 1)}, {"tir": picture(number + 2)}]
                        )
                        acknowledged[f"job {first}"] = acknowledged.get(f"job {first}", 0) + 2
                except UnreachableError:
                    pass  # killed

        before = len(acknowledged)
        threads = [threading.Thread(target=enrol, args=(1000 * round_ + 200 * n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        try:
            while len(acknowledged) < before + rng.randrange(4, 9):
                assert any(thread.is_alive() for thread in threads), "nothing more is sent"
                time.sleep(0.005)
        finally:
            process.kill()
            process.communicate()
        for thread in threads:
            thread.join()
    with serve(place) as served:
        for job in served.client.get("/v1/jobs").json()["jobs"]:
            served.client.post(f"/v1/jobs/{job['id']}/finish")
            with served.client.stream("GET", f"/v1/jobs/{job['id']}/events") as stream:
                assert '"state": "done"' in list(stream.iter_lines())[-2]
    with Gallery(place) as gallery:
        rows = gallery.store.rows()
        assert gallery.store.check() == []
    assert len({row.hash for row in rows}) == len(rows), "no row is there twice"
    by_name = {row.identity: row.id for row in rows}
    for name, value in acknowledged.items():
        if name.startswith("job"):
            assert sum(row.identity == name for row in rows) >= value, name
        else:
            assert by_name[name] == value
    assert any(name.startswith("job") for name in acknowledged)
