"""The service under load, overload, attack and kills; on the loopback alone, bounded in count and time.

    python benchmarks/service.py --model exported --data set/manifest.csv
    python benchmarks/service.py --model exported --data set --seconds 10 --attacks 2000 --kills 3

1. `embed` alone, then 1, 8 and 32 clients that send one sample per request: samples per second as a share of
   `embed` alone in this run (goal: 0.8 at 8 clients), latency, failed requests (goal: 0), growth of memory
   (goal: 5 %).
2. Overload: five times as many clients as places in the queue. Every request is answered or refused.
3. Hostile requests (`service_attacks.py`): no 500, no trace of code, well afterwards.
4. Kills (SIGKILL) while samples are enrolled: no acknowledged row is missing, none is there twice.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import random
import re
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
from slimreid.inference.load import LoadedModel, load
from slimreid.progress import progress
from slimreid.serve.settings import state_folder
from slimreid.serve.tokens import TokenFile

CLIENTS = (1, 8, 32)
QUEUE = 64
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


def memory(port: int, token: str) -> float:
    """Resident memory of the service in MB."""
    with Client(f"http://127.0.0.1:{port}", token) as client:
        text = client._transport.get_bytes("/v1/metrics").decode()
    return float(re.findall(r"^slimreid_resident_memory_bytes (\S+)$", text, re.M)[0]) / 1e6


def row(name: str, load_: Load, alone: float, before: float, after: float) -> dict[str, Any]:
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
        "memory_mb": [before, after],
    }


def attack(port: int, tokens: dict[str, str], count: int, modalities: Sequence[str]) -> Counter[str]:
    """Answers to hostile requests, by status; 'shown' where one shows code."""
    seen: Counter[str] = Counter()
    hostile = itertools.islice(attacks(7, modalities, tokens), count)
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
            time.sleep(rng.uniform(0.2, 1.5))
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
    tokens = {"admin": TokenFile(state_folder(str(place)) / "tokens.json").add("bench", "admin")}
    token, port = tokens["admin"], free_port()
    result: dict[str, Any] = {"load": []}
    with service(place, args.model, port) as process:
        send_load(port, token, samples, 8, min(5.0, args.seconds))  # warm
        for clients in args.clients:
            alone = embed_alone(model, paths, min(10.0, args.seconds))
            before = memory(port, token)
            found = send_load(port, token, samples, clients, args.seconds)
            result["load"].append(row(str(clients), found, alone, before, memory(port, token)))
        if args.attacks:
            result["attacks"] = dict(attack(port, tokens, args.attacks, model.modalities))
            await_ready(port, process)
            result["healthy"] = len(send_load(port, token, samples, 2, 2.0).latencies) > 0
    with service(place, args.model, port, "--queue", str(QUEUE)):
        before = memory(port, token)
        many = send_load(port, token, samples, 5 * QUEUE, args.seconds)
        result["overload"] = row(f"{5 * QUEUE} (queue {QUEUE})", many, alone, before, memory(port, token))
    if args.kills:
        result["kills"] = kill_often(place, args.model, token, model.modalities[0], args.kills)
    return result


def show(result: dict[str, Any]) -> None:
    columns = ["clients", "samples/s", "of embed", "p50 ms", "p95", "p99", "refused", "failed", "MB"]
    rows = [
        [
            found["clients"],
            f"{found['samples_per_second']:.1f}",
            f"{found['share_of_embed']:.2f}",
            *(f"{found[name]:.0f}" for name in ("p50_ms", "p95_ms", "p99_ms")),
            found["refused"],
            found["failed"],
            "{:.0f} to {:.0f}".format(*found["memory_mb"]),
        ]
        for found in [*result["load"], result["overload"]]
    ]
    print_table(columns, rows)
    for name in ("attacks", "healthy", "kills"):
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
