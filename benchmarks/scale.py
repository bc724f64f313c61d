"""Embedding with Ray against one process: speed, memory that does not grow, and rows after three kills.

    python benchmarks/scale.py --folder scale                   # 20,000 rows, nano and ViT-Tiny
    python benchmarks/scale.py --rows 2000 --backbones nano      # smaller

Every row has three images of its own, rendered by the synthetic world. Both engines run the same exported
model, one thread for each of two actors against two threads in one process, in turns: A B, then B A. Rows per
second are those of the whole command, its start included, and those after the start, from one file of rows to
the next. Processor time is that of the command and all its descendants; other work on the machine hardly
changes it. With --folder, the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from process_tree import measured, titled
from slimreid.exporting.export import export
from slimreid.files import write_text
from slimreid.inference.embedding_sets.tables import ROWS_FOLDER, parquet_files

GOAL = 0.85
"""Rows per second of Ray as a share of one process."""
RATES = ("rows_per_second", "rows_per_second_after_start")
COSTS = ("processor_seconds", "peak_mb")
KILLS = ("actor", "driver", "machine")
TITLES = {"actor": "MapWorker(MapBatches(RowEmbedder))", "machine": "raylet/raylet"}
ROWS_OF_A_PERSON = 12


def slimreid(*words: object) -> list[str]:
    return [sys.executable, "-m", "slimreid", *map(str, words)]


def make_world(folder: Path, people: int) -> Path:
    if not folder.is_dir():
        subprocess.run(
            slimreid("data", "synth", folder, "--identities", people), check=True, capture_output=True
        )
    return folder


def make_model(world: Path, folder: Path, backbone: str) -> Path:
    """A model of one epoch, exported: what it has learned does not matter here."""
    exported = folder / f"model-{backbone}"
    if exported.is_dir():
        return exported
    options = [
        f"--model.backbone={backbone}",
        "--train.epochs=1",
        "--optim.warmup_epochs=0",
        f"--data.manifest={world}",
    ]
    words = slimreid("train", "--config", "synthetic/sdtps", "--out", folder / f"run-{backbone}", *options)
    subprocess.run(words, check=True, capture_output=True)
    export(folder / f"run-{backbone}", exported, force=True)
    return exported


def first_rows(manifest: Path, rows: int) -> Path:
    out = manifest.with_name(f"rows-{rows}.csv")
    with manifest.open(encoding="utf-8") as file:
        write_text(out, "".join(islice(file, rows + 1)))
    return out


def embed_words(manifest: Path, model: Path, out: Path, engine: str) -> list[str]:
    pool = ["--engine", "ray", "--actors", "2"] if engine == "ray" else []
    return slimreid("embed", manifest, "--model", model, "--out", out, "--json", *pool)


def run(manifest: Path, model: Path, out: Path, engine: str) -> dict[str, Any]:
    """Embed; what it cost."""
    shutil.rmtree(out, ignore_errors=True)
    cost = measured(embed_words(manifest, model, out, engine), {**os.environ, "OMP_NUM_THREADS": "2"})
    rows = json.loads(cost.text)["rows"]
    made = sorted(path.stat().st_mtime for path in parquet_files(out / ROWS_FOLDER))
    steady = (made[-1] - made[0]) / (len(made) - 1) * len(made)
    return {
        "rows": rows,
        "engine": engine,
        "seconds": cost.seconds,
        "rows_per_second": rows / cost.seconds,
        "rows_per_second_after_start": rows / steady,
        "processor_seconds": cost.processor_seconds,
        "peak_mb": cost.peak_mb,
    }


def killed_three_times(manifest: Path, model: Path, out: Path, files: int) -> list[str]:
    """Kill an actor, the driver and Ray's own server at a quarter, half and three quarters of the files.

    The driver is started again wherever it ended, until it went through; what was killed.
    """
    shutil.rmtree(out, ignore_errors=True)
    killed: list[str] = []
    for _ in range(2 * len(KILLS)):
        process = subprocess.Popen(
            embed_words(manifest, model, out, "ray"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None:
            time.sleep(0.05)
            share = len(parquet_files(out / ROWS_FOLDER)) / files
            if len(killed) == len(KILLS) or share < (len(killed) + 1) / 4:
                continue
            kind = KILLS[len(killed)]
            found = [process.pid] if kind == "driver" else titled(process.pid, TITLES[kind])
            if found:
                os.kill(found[0], signal.SIGKILL)
                killed.append(kind)
        if process.returncode == 0:
            return killed
    raise SystemExit(f"{manifest}: it did not end")


def difference(first: Path, second: Path) -> tuple[int, float]:
    """Rows that are not the same in both, each once, and the largest difference of a feature."""
    tables = [
        pa.concat_tables(pq.read_table(path) for path in parquet_files(each / ROWS_FOLDER)).sort_by("id")
        for each in (first, second)
    ]
    labels = [each.drop_columns(["feature"]).to_pylist() for each in tables]
    wrong = abs(len(labels[0]) - len(labels[1])) + sum(a != b for a, b in zip(*labels, strict=False))
    if wrong:
        return wrong, float("nan")
    values = [each["feature"].combine_chunks().flatten().to_numpy() for each in tables]
    return 0, float(np.abs(values[0] - values[1]).max())


def best(results: list[dict[str, Any]], key: str, **wanted: object) -> float:
    """The highest rate, or the lowest cost, of the runs that are meant."""
    found = [r[key] for r in results if all(r.get(name) == value for name, value in wanted.items())]
    return float(max(found) if key in RATES else min(found))


def verdict(results: list[dict[str, Any]], backbone: str, rows: int) -> str:
    """Ray against one process at the larger size, and what grew from the smaller one to it."""
    found = {
        (engine, size, key): best(results, key, backbone=backbone, rows=size, engine=engine)
        for engine in ("local", "ray")
        for size in (rows // 4, rows)
        for key in (*RATES, *COSTS)
    }
    whole, after = (found["ray", rows, key] / found["local", rows, key] for key in RATES)
    cost = found["local", rows, COSTS[0]] / found["ray", rows, COSTS[0]]
    each = {
        engine: 1000
        * (found[engine, rows, COSTS[0]] - found[engine, rows // 4, COSTS[0]])
        / (rows - rows // 4)
        for engine in ("local", "ray")
    }
    peaks = [
        f"{engine} {found[engine, rows // 4, COSTS[1]]:,.0f} → {found[engine, rows, COSTS[1]]:,.0f} MB"
        for engine in ("local", "ray")
    ]
    return (
        f"{backbone}, {rows:,} rows: Ray does {whole:.2f}× the rows per second of one process (goal {GOAL}), "
        f"{after:.2f}× after the start; {cost:.2f}× the rows per second of processor time, "
        f"{each['local'] / each['ray']:.2f}× after the start ({each['local']:.2f} and {each['ray']:.2f} ms "
        f"a row); peak memory from {rows // 4:,} rows: {', '.join(peaks)}"
    )


class Results:
    """What was measured so far, kept in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: list[dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else []

    def have(self, **key: object) -> bool:
        """Whether such a run is there."""
        return any(all(each.get(n) == v for n, v in key.items()) for each in self.found)

    def add(self, **values: object) -> None:
        """Keep and show the figures of a run."""
        self.found.append(values)
        write_text(self.path, json.dumps(self.found, indent=1) + "\n")
        print(", ".join(f"{n} {v:,.4g}" if isinstance(v, float) else f"{n} {v}" for n, v in values.items()))
        sys.stdout.flush()


def compare(folder: Path, backbone: str, rows: int, repeats: int, results: Results) -> None:
    """All runs of one backbone."""
    model = make_model(make_world(folder / "world", 64), folder, backbone)
    world = make_world(folder / f"images-{rows}", -(-rows // ROWS_OF_A_PERSON))
    manifests = {n: first_rows(world / "manifest.csv", n) for n in (rows // 4, rows)}
    for repeat in range(repeats):
        for size, manifest in manifests.items():
            for engine in ("local", "ray") if repeat % 2 == 0 else ("ray", "local"):
                key = {"backbone": backbone, "rows": size, "engine": engine, "repeat": repeat}
                if not results.have(**key):
                    out = folder / f"{backbone}-{size}-{engine}"
                    results.add(**{**key, **run(manifest, model, out, engine)})
    if not results.have(backbone=backbone, kills=list(KILLS)):
        out, local = folder / f"{backbone}-killed", folder / f"{backbone}-{rows}-local"
        killed = killed_three_times(manifests[rows], model, out, len(parquet_files(local / ROWS_FOLDER)))
        wrong, largest = difference(local, out)
        results.add(backbone=backbone, kills=killed, rows_wrong=wrong, features_within=largest)
    print(verdict(results.found, backbone, rows), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--backbones", nargs="+", default=["nano", "vit_tiny"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="keep images, models and figures here, and go on here")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="slimreid-scale-"))
    results = Results(folder / f"results-{args.rows}.json")
    for backbone in args.backbones:
        compare(folder, backbone, args.rows, args.repeats, results)
    if not args.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
