"""Embedding with Ray against one process: speed, memory that does not grow, and rows after three kills.

    python benchmarks/scale.py                                   # 20,000 images, nano and ViT-Tiny
    python benchmarks/scale.py --rows 4000 --backbones nano      # smaller

Images of the synthetic world, its rows repeated as often as it takes. Both engines run the same exported
model, one thread for each of two actors against two threads in one process, in turns in the same run. The
rate of Ray is given with and without its start. Memory is the sum of the proportional shares (PSS) of the
driver and all its children, processor time the sum of theirs. Other work on the machine takes from the rows
per second, unevenly; processor time per row, from the smaller size to the larger, hardly notices it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from slimreid.exporting.export import export
from slimreid.files import write_text
from slimreid.inference.embedding_sets.tables import ROWS_FOLDER, parquet_files

GOAL = 0.85
"""Rows per second of Ray as a share of one process."""
RATES = ("steady_rows_per_second", "rows_per_second")
COSTS = ("processor_seconds", "peak_mb")


def slimreid(*words: object) -> list[str]:
    return [sys.executable, "-m", "slimreid", *map(str, words)]


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


def repeat_rows(manifest: Path, rows: int) -> Path:
    header, *lines = manifest.read_text(encoding="utf-8").splitlines()
    out = manifest.with_name(f"rows-{rows}.csv")
    write_text(out, "\n".join([header, *islice(cycle(lines), rows)]) + "\n")
    return out


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(place.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def memory(pid: int) -> float:
    """Megabytes of a process and its descendants, each shared page counted once."""
    total = 0
    for each in tree(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024


def processor_times(pid: int) -> dict[int, float]:
    """Seconds of processor time of a process and each of its descendants."""
    found = {}
    for each in tree(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[each] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def run(words: list[str], out: Path) -> dict[str, Any]:
    """Embed, watching memory and processor time; the summary, with seconds since the first rows appeared."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    with tempfile.TemporaryFile("w+") as text:
        process = subprocess.Popen(words, stdout=text, stderr=subprocess.DEVNULL, env=environment)
        peak, times = 0.0, dict[int, float]()
        looks = count()
        while process.poll() is None:
            if next(looks) % 8 == 0:  # costs the machine more than the rest
                peak = max(peak, memory(process.pid))
            times |= processor_times(process.pid)
            time.sleep(0.25)
        text.seek(0)
        found: dict[str, Any] = json.loads(text.read())
    made = sorted(path.stat().st_mtime for path in parquet_files(out / ROWS_FOLDER))
    steady = (made[-1] - made[0]) / (len(made) - 1) * len(made)
    return {
        **found,
        "peak_mb": peak,
        "processor_seconds": sum(times.values()),
        "steady_rows_per_second": found["rows"] / steady,
    }


def embed_words(manifest: Path, model: Path, out: Path, engine: str) -> list[str]:
    pool = ["--engine", "ray", "--actors", "2"] if engine == "ray" else []
    return slimreid("embed", manifest, "--model", model, "--out", out, "--json", *pool)


def killed_three_times(manifest: Path, model: Path, out: Path, rows: int) -> int:
    """Kill the driver three times, at a quarter, half and three quarters of the files; then let it end."""
    kills = 0
    files = -(-rows // max(64, min(4096, rows // 40)))
    for share in (0.25, 0.5, 0.75):
        process = subprocess.Popen(
            embed_words(manifest, model, out, "ray"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and len(parquet_files(out / ROWS_FOLDER)) < share * files:
            time.sleep(0.05)
        time.sleep(random.Random(share).random() * 0.3)
        kills += process.poll() is None
        process.kill()
        process.wait()
    subprocess.run(embed_words(manifest, model, out, "ray"), check=True, capture_output=True)
    return kills


def difference(first: Path, second: Path) -> tuple[int, float]:
    """Rows that are not in both exactly once, and the largest difference of a feature."""
    tables = [
        pq.read_table([str(p) for p in parquet_files(each / ROWS_FOLDER)], columns=["id", "feature"]).sort_by(
            "id"
        )
        for each in (first, second)
    ]
    ids = [each["id"].to_numpy() for each in tables]
    if len(ids[0]) != len(ids[1]) or len(np.unique(ids[1])) != len(ids[1]) or (ids[0] != ids[1]).any():
        return abs(len(ids[0]) - len(ids[1])) or 1, float("nan")
    values = [each["feature"].combine_chunks().flatten().to_numpy() for each in tables]
    return 0, float(np.abs(values[0] - values[1]).max())


def best(results: list[dict[str, Any]], key: str, **wanted: object) -> float:
    """The highest rate, or the lowest cost, of the runs that are meant."""
    found = [r[key] for r in results if all(r[name] == value for name, value in wanted.items())]
    return float(max(found) if key in RATES else min(found))


def verdict(results: list[dict[str, Any]], backbone: str, rows: int) -> str:
    """Ray against one process at the larger size, and what grew from the smaller one to it."""
    after, whole = (
        best(results, key, backbone=backbone, rows=rows, engine="ray")
        / best(results, key, backbone=backbone, rows=rows, engine="local")
        for key in RATES
    )
    costs, peaks = {}, {}
    for engine in ("local", "ray"):
        small, large = (
            {key: best(results, key, backbone=backbone, rows=n, engine=engine) for key in COSTS}
            for n in (rows // 4, rows)
        )
        costs[engine] = (large[COSTS[0]] - small[COSTS[0]]) / (rows - rows // 4)
        peaks[engine] = f"{engine} {small[COSTS[1]]:,.0f} → {large[COSTS[1]]:,.0f} MB"
    return (
        f"{backbone}: Ray {after:.2f}× one process after its start (goal {GOAL}), {whole:.2f}× with it; "
        f"processor time per row {1000 * costs['local']:.2f} ms in one process, {1000 * costs['ray']:.2f} ms "
        f"with Ray: {costs['local'] / costs['ray']:.2f}×; memory: {', '.join(peaks.values())}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--backbones", nargs="+", default=["nano", "vit_tiny"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument(
        "--folder", type=Path, help="keep world and models here, and use those that are there"
    )
    parser.add_argument("--out", type=Path, help="JSON to write")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="slimreid-scale-"))
    if not (folder / "world").is_dir():
        subprocess.run(slimreid("data", "synth", folder / "world"), check=True, capture_output=True)
    results: list[dict[str, Any]] = []
    for backbone in args.backbones:
        model = make_model(folder / "world", folder, backbone)
        for rows in (args.rows // 4, args.rows):
            manifest = repeat_rows(folder / "world" / "manifest.csv", rows)
            for repeat in range(args.repeats):
                for engine in ("local", "ray"):
                    out = folder / f"{backbone}-{rows}-{engine}"
                    shutil.rmtree(out, ignore_errors=True)
                    found = run(embed_words(manifest, model, out, engine), out)
                    results.append({"backbone": backbone, "repeat": repeat, **found})
                    figures = ", ".join(f"{name} {found[name]:,.1f}" for name in (*RATES, *COSTS))
                    print(f"{backbone}, {rows:,} rows, {engine}: {figures}", flush=True)
                    if args.out:
                        write_text(args.out, json.dumps(results, indent=1) + "\n")
        print(verdict(results, backbone, args.rows), flush=True)
        killed = folder / f"{backbone}-killed"
        shutil.rmtree(killed, ignore_errors=True)
        kills = killed_three_times(manifest, model, killed, args.rows)
        wrong, largest = difference(folder / f"{backbone}-{args.rows}-local", killed)
        print(f"{backbone}: {kills} kills, {wrong} rows wrong, features within {largest:.1e}", flush=True)
    if not args.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
