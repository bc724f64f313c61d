"""The service under load, overload, attack and kills; on the loopback alone, bounded in count and time.

    python benchmarks/service.py --model exported --data set/manifest.csv
    python benchmarks/service.py --model exported --data set --seconds 10 --attacks 2000 --kills 3

1. `embed` alone, then 1, 8 and 32 clients that send one sample per request: samples per second as a share of
   `embed` alone in this run (goal: 0.8 at 8 clients), latency, failed requests (goal: 0), growth of memory
   (goal: 5 %), that of the processes that decode included.
2. Overload: five times as many clients as places in the queue, on a service that is warm. Every request is
   answered or refused, memory stays flat.
3. Hostile requests (`service_attacks.py`) beside senders that dawdle or never end: no 500, no trace of code,
   no file where none belongs, well afterwards.
4. Kills (SIGKILL) while samples are enrolled: no acknowledged row is missing, none is there twice.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import random
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from service_attacks import attacks, good_image
from slimreid.cli.console import ending_in_one_line, print_table, say
from slimreid.client import Client, UnreachableError
from slimreid.errors import SlimReIDError
from slimreid.files import write_text
from slimreid.gallery.enrolment.sources import open_source
from slimreid.gallery.gallery import Gallery
from slimreid.gallery.store.open import open_store
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.progress import progress
from slimreid.serve.settings import state_folder
from slimreid.serve.tokens import TokenFile

CLIENTS = (1, 8, 32)
QUEUE = 64
DAWDLERS = 6
"""Clients that send slowly or without end, beside the attacks."""
SHARE_GOAL, GROWTH_GOAL = 0.8, 0.05
Sample = dict[str, bytes]


@dataclass
class Load:
    """What clients saw."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    refused: int = 0
    failed: Counter[str] = field(default_factory=Counter)


@contextmanager
def service(place: Path, model: Path, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`slimreid serve` in a process of its own, ready."""
    words = ["serve", str(place), "--model", str(model), "--port", str(port), "--rate-limit", "0", *options]
    process = subprocess.Popen([sys.executable, "-m", "slimreid", *words], stdout=subprocess.DEVNULL)
    try:
        await_ready(port, process)
        yield process
    finally:
        process.kill()
        process.wait()


def await_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/v1/ready")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise SlimReIDError("the service did not start")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def embed_alone(model: LoadedModel, samples: Sequence[dict[str, str]], seconds: float) -> float:
    """Samples per second of `embed`, decoding included, without any service."""
    model.embed(list(samples[:16]), show_progress=False)
    count, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        count += len(model.embed(list(samples[:64]), batch=16, show_progress=False))
    return count / (time.monotonic() - began)


def send_load(port: int, token: str, samples: Sequence[Sample], clients: int, seconds: float) -> Load:
    """Clients that send one sample per request, as fast as they are answered."""
    load_, lock = Load(), threading.Lock()
    until = time.monotonic() + seconds

    def work(number: int) -> None:
        with Client(f"http://127.0.0.1:{port}", token, retries=0, timeout=60) as client:
            for sample in itertools.islice(itertools.cycle(samples), number, None):
                began = time.monotonic()
                if began >= until:
                    return
                try:
                    client.embed([sample])
                except SlimReIDError as error:
                    with lock:
                        name = getattr(error, "name", type(error).__name__)
                        if name in ("BusyError", "RateError"):
                            load_.refused += 1
                        else:
                            load_.failed[name] += 1
                    if isinstance(error, UnreachableError):
                        client.close()
                    time.sleep(0.05)
                    continue
                with lock:
                    load_.latencies.append(time.monotonic() - began)

    began = time.monotonic()
    run_threads(clients, work, seconds + 90)
    load_.seconds = time.monotonic() - began
    return load_


def run_threads(count: int, work: Callable[[int], None], most: float) -> None:
    """Run threads to their end; raises where one hangs."""
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + most
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            raise SlimReIDError("a request hangs")


def memory(pid: int) -> float:
    """Resident memory in MB of a process and those it started."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6 + sum(map(memory, children))


class Watch:
    """Memory of a service before, at most during, and after a block, in MB."""

    def __init__(self, pid: int) -> None:
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.before = self.most = self.after = memory(pid)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.after = memory(self._pid)

    def _look(self) -> None:
        while not self._over.wait(0.5):
            self.most = max(self.most, memory(self._pid))


def row(name: str, load_: Load, alone: float, seen: Watch) -> dict[str, Any]:
    found = np.percentile(load_.latencies or [np.nan], [50, 95, 99]) * 1000
    rate = len(load_.latencies) / load_.seconds
    return {
        "clients": name,
        "samples_per_second": rate,
        "share_of_embed": rate / alone,
        "p50_ms": found[0],
        "p95_ms": found[1],
        "p99_ms": found[2],
        "refused": load_.refused,
        "failed": sum(load_.failed.values()),
        "failures": dict(load_.failed),
        "memory_mb": [seen.before, seen.most, seen.after],
    }


def attack(
    port: int, tokens: dict[str, str], revoked: str, count: int, modalities: Sequence[str]
) -> Counter[str]:
    """Answers to hostile requests, by status; 'shown' where one shows code."""
    seen: Counter[str] = Counter()
    hostile = itertools.islice(attacks(7, modalities, tokens, [revoked]), count)
    for request in progress(list(hostile), "attacking", show=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.putrequest(request.method, request.path, skip_host="Host" in request.headers)
            for name, value in {"Content-Length": str(len(request.body)), **request.headers}.items():
                connection.putheader(name, value.encode("latin-1", "replace"))
            connection.endheaders(request.body)
            answer = connection.getresponse()
            text = answer.read()
            seen[str(answer.status)] += 1
            if b"Traceback" in text or b"site-packages" in text:
                seen["shown"] += 1
        except (http.client.HTTPException, ConnectionError):
            seen["closed"] += 1
        except ValueError:  # the client library refuses to send it
            seen["not sent"] += 1
        finally:
            connection.close()
    return seen


def dawdle(port: int, token: str, over: threading.Event, seen: Counter[str]) -> None:
    """Send heads without end, bodies by single bytes, and bodies that never end, until it is over."""
    head = f"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    ways = [
        (head.encode(), b"X-More: 1\r\n", 0.5),
        (f"{head}Content-Length: 100000\r\n\r\n".encode(), b"a", 0.5),
        (f"{head}Transfer-Encoding: chunked\r\n\r\n".encode(), b"10000\r\n" + bytes(0x10000) + b"\r\n", 0.0),
    ]
    for start, piece, pause in itertools.cycle(ways):
        if over.is_set():
            return
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection, suppress(OSError):
            connection.sendall(start)
            while not over.wait(pause):  # until the service has enough
                connection.sendall(piece)
        seen["dawdlers shaken off"] += not over.is_set()


def under_attack(
    port: int, tokens: dict[str, str], revoked: str, count: int, modalities: Sequence[str]
) -> dict[str, int]:
    """Hostile requests while some dawdle; how many of what."""
    over, shaken = threading.Event(), Counter[str]()
    slow = [
        threading.Thread(target=dawdle, args=(port, tokens["admin"], over, shaken), daemon=True)
        for _ in range(DAWDLERS)
    ]
    for thread in slow:
        thread.start()
    try:
        seen = attack(port, tokens, revoked, count, modalities)
    finally:
        over.set()
    for thread in slow:
        thread.join(60)
    return dict(seen + shaken)


def kill_often(place: Path, model: Path, token: str, modality: str, kills: int) -> dict[str, int]:
    """Kill the service while two clients enrol; what is missing or there twice afterwards."""
    rng, acknowledged = random.Random(0), dict[str, int]()
    numbers = itertools.count(10_000)
    port = free_port()
    for _ in progress(range(kills), "killing", show=None):
        with service(place, model, port) as process:

            def work(_: int) -> None:
                with Client(f"http://127.0.0.1:{port}", token, retries=0) as client:
                    while True:
                        number = next(numbers)
                        image = good_image(number, size=(16, 32))
                        try:
                            (one,) = client.enrol([{modality: image}], identity=f"killed {number}")
                        except UnreachableError:
                            return
                        acknowledged[f"killed {number}"] = one.row or 0

            threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(2)]
            for thread in threads:
                thread.start()
            enough, until = len(acknowledged) + rng.randrange(2, 25), time.monotonic() + 30
            while len(acknowledged) < enough and time.monotonic() < until:
                time.sleep(0.002)
            process.kill()
            for thread in threads:
                thread.join(70)
    store = open_store(place)
    rows = store.rows()
    faults = store.check()
    store.close()
    there = {row.identity: row.id for row in rows}
    return {
        "acknowledged": len(acknowledged),
        "missing": sum(there.get(name) != number for name, number in acknowledged.items()),
        "twice": len(rows) - len({row.hash for row in rows}),
        "faults": len(faults),
    }


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    model = load(args.model)
    source = open_source(model, args.data)
    paths = [{n: ref.path for n, ref in sample.images.items()} for sample in source.samples][:256]
    samples = [{n: Path(path).read_bytes() for n, path in sample.items()} for sample in paths]
    place = folder / "bench.gallery"
    with Gallery.create(place, model) as gallery:
        gallery.enrol(source)
    known = TokenFile(state_folder(str(place)) / "tokens.json")
    tokens = {"admin": known.add("bench", "admin")}
    revoked = known.add("revoked", "admin")
    known.revoke("revoked")
    token, port = tokens["admin"], free_port()
    result: dict[str, Any] = {"load": []}
    with service(place, args.model, port) as process:
        send_load(port, token, samples, 8, min(5.0, args.seconds))  # warm
        for clients in args.clients:
            alone = embed_alone(model, paths, min(10.0, args.seconds))
            with Watch(process.pid) as seen:
                found = send_load(port, token, samples, clients, args.seconds)
            result["load"].append(row(str(clients), found, alone, seen))
        if args.attacks:
            result["attacks"] = under_attack(port, tokens, revoked, args.attacks, model.modalities)
            await_ready(port, process)
            result["healthy"] = len(send_load(port, token, samples, 2, 2.0).latencies) > 0
            result["strays"] = [
                path.name for path in folder.iterdir() if not path.name.startswith(place.name)
            ]
    with service(place, args.model, port, "--queue", str(QUEUE)) as process:
        send_load(port, token, samples, 8, min(5.0, args.seconds))  # warm
        with Watch(process.pid) as seen:
            many = send_load(port, token, samples, 5 * QUEUE, args.seconds)
        result["overload"] = row(f"{5 * QUEUE} (queue {QUEUE})", many, alone, seen)
    if args.kills:
        result["kills"] = kill_often(place, args.model, token, model.modalities[0], args.kills)
    return result


def show(result: dict[str, Any]) -> None:
    columns = [
        "clients",
        "samples/s",
        "of embed",
        "p50 ms",
        "p95",
        "p99",
        "refused",
        "failed",
        "MB before, most, after",
    ]
    rows = [
        [
            found["clients"],
            f"{found['samples_per_second']:.1f}",
            f"{found['share_of_embed']:.2f}",
            *(f"{found[name]:.0f}" for name in ("p50_ms", "p95_ms", "p99_ms")),
            found["refused"],
            found["failed"],
            "{:.0f} {:.0f} {:.0f}".format(*found["memory_mb"]),
        ]
        for found in [*result["load"], result["overload"]]
    ]
    print_table(columns, rows)
    for name in ("attacks", "healthy", "strays", "kills"):
        if name in result:
            say(f"{name}: {result[name]}")


@ending_in_one_line
def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="exported folder or run")
    parser.add_argument("--data", type=Path, required=True, help="manifest or folder of images")
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS))
    parser.add_argument("--seconds", type=float, default=60.0, help="per number of clients")
    parser.add_argument("--attacks", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write everything here")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(args, Path(folder))
    show(result)
    if args.json is not None:
        write_text(args.json, json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
