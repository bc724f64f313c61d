"""Several processes that run one exported model on one machine: their threads, and their memory.

    python benchmarks/workers.py                                   # people-tiny; 2 and 4 processes
    python benchmarks/workers.py exported --workers 8 --rounds 3

All processes of all ways are started first and sleep until it is their turn. Ways take turns, ratios are
medians of the ratios within a round. Two figures: samples per second of the clock, until each process of a
way has made its calls, which means something on a machine that is idle otherwise; and processor time per
sample, which other programs disturb less. Memory is the proportional set size (Linux) of a process beyond
that before it opened the model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from slimreid.cli.console import console, table
from slimreid.config.model import DEFAULT_MODEL
from slimreid.files import write_text
from slimreid.inference.exported_model import ExportedModel
from slimreid.inference.load import load
from slimreid.profiling.latency import median_ratios, medians
from slimreid.progress import progress
from slimreid.threads import THREADS, WORKERS, usable_cores

ONE, DEFAULT, ALL, SPINNING = "one thread", "default", "all cores", "all cores, spinning"
CALLS = """
import sys, time
import numpy as np
import onnxruntime
from slimreid.inference import onnx_engine
onnxruntime.set_default_logger_severity(3)  # it tells that an option is set again
folder, batch, spinning = sys.argv[1], int(sys.argv[2]), sys.argv[3]
options = onnx_engine.session_options
def changed(*given):
    found = options(*given)
    found.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    return found
onnx_engine.session_options = changed
engine = onnx_engine.OnnxEngine(folder)
size = engine.card.model.config.transforms.size
images = {name: np.zeros((batch, 3, *size), np.float32) for name in engine.card.modalities}
engine.features(images)
print(engine.threads, flush=True)
for line in sys.stdin:
    start = time.process_time()
    for _ in range(int(line)):
        engine.features(images)
    print(time.process_time() - start, flush=True)
"""
MEMORY = """
import json, re, sys
from pathlib import Path
import numpy as np
from slimreid.inference.onnx_engine import PRIVATE_BYTES, OnnxEngine
def used():
    return int(re.search(r"^Pss: +([0-9]+)", Path("/proc/self/smaps_rollup").read_text(), re.M)[1]) / 1024
before = used()
engine = OnnxEngine(sys.argv[1], 1, PRIVATE_BYTES if sys.argv[2] == "copies" else 0)
size = engine.card.model.config.transforms.size
found = []
for subset in reversed(engine.card.graphs):
    engine.features({name: np.zeros((1, 3, *size), np.float32) for name in subset})
    found.append(used() - before)
print(json.dumps(found))
"""


class Pool:
    """Processes that open the model and then wait."""

    def __init__(self, model: Path, batch: int, workers: int, way: str) -> None:
        settings = {
            ONE: {THREADS: "1"},
            DEFAULT: {WORKERS: str(workers)},
            ALL: {THREADS: str(usable_cores())},
            SPINNING: {THREADS: str(usable_cores())},
        }[way]
        plain = {name: value for name, value in os.environ.items() if name not in (THREADS, WORKERS)}
        words = [sys.executable, "-c", CALLS, str(model), str(batch), str(int(way == SPINNING))]
        self.children = [
            subprocess.Popen(
                words, env=plain | settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(workers)
        ]
        self.threads = int(self._answers()[0])

    def _answers(self) -> list[str]:
        found = [child.stdout.readline().strip() for child in self.children if child.stdout]
        if not all(found):
            raise SystemExit("a process ended early")
        return found

    def work(self, calls: int) -> float:
        """Let each process make so many calls, and wait for all; seconds of processor time of all."""
        for child in self.children:
            assert child.stdin is not None
            child.stdin.write(f"{calls}\n")
            child.stdin.flush()
        return sum(map(float, self._answers()))

    def close(self) -> None:
        """End the processes."""
        for child in self.children:
            child.communicate()


def measure_threads(model: Path, workers: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per way for a number of processes."""
    pools: dict[str, Pool] = {}
    try:
        for way in (ONE, DEFAULT, ALL, SPINNING):
            pools[way] = Pool(model, args.batch, workers, way)
        clock: dict[str, list[float]] = {way: [] for way in pools}
        cost: dict[str, list[float]] = {way: [] for way in pools}
        for _ in progress(range(args.rounds), f"{workers} processes"):
            for way, pool in pools.items():
                start = time.perf_counter()
                cost[way].append(pool.work(args.calls))
                clock[way].append(time.perf_counter() - start)
    finally:
        for pool in pools.values():
            pool.close()
    samples = workers * args.calls * args.batch
    middle, middle_cost = medians(clock), medians(cost)
    ratios, cost_ratios = median_ratios(clock, ONE), median_ratios(cost, ONE)
    return [
        {
            "workers": workers,
            "way": way,
            "threads": pools[way].threads,
            "samples_per_second": samples / middle[way],
            "ratio": ratios[way],
            "processor_ms": 1000 * middle_cost[way] / samples,
            "processor_ratio": 1 / cost_ratios[way],
        }
        for way in pools
    ]


def measure_memory(model: Path) -> dict[str, list[float]]:
    """MB that a process uses more after each graph that it opens, with and without copies of the weights."""
    return {
        way: json.loads(subprocess.check_output([sys.executable, "-c", MEMORY, str(model), way], text=True))
        for way in ("copies", "shared")
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", nargs="?", default=DEFAULT_MODEL, help="an exported model, or a built-in one"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4], help="processes")
    parser.add_argument("--batch", type=int, default=1, help="samples of all modalities per call")
    parser.add_argument("--calls", type=int, default=20, help="calls of each process in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args(arguments)
    loaded = load(args.model)
    if not isinstance(loaded, ExportedModel):
        parser.error(f"{args.model} is not an exported model")
    path, weights = loaded.path, loaded.weight_bytes / 2**20
    rows = [row for workers in args.workers for row in measure_threads(path, workers, args)]
    memory = measure_memory(path) if Path("/proc/self/smaps_rollup").exists() else {}
    cells = [
        (
            row["workers"],
            row["way"],
            row["threads"],
            f"{row['samples_per_second']:.1f}",
            f"{row['ratio']:.2f}×",
            f"{row['processor_ms']:.1f}",
            f"{row['processor_ratio']:.2f}×",
        )
        for row in rows
    ]
    title = f"{args.model}, {loaded.exported.precision}, batch {args.batch}, {usable_cores()} cores"
    head = [
        "processes",
        "threads of each",
        "number",
        "samples/s",
        "to one",
        "ms of processor",
        "to one thread",
    ]
    console.print(table(head, cells, title))
    lines = [(way, f"{found[0]:.0f}", f"{found[-1]:.0f}") for way, found in memory.items()]
    head = ["weights", "MB, one graph", "MB, all graphs"]
    console.print(table(head, lines, f"memory; the file of weights has {weights:.0f} MB"))
    if args.json:
        found = {"settings": title, "weights_mb": weights, "rows": rows, "memory_mb": memory}
        write_text(args.json, json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
