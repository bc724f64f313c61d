"""Embeddings by the million, of random numbers: imported into a gallery, searched there, evaluated.

    python benchmarks/bulk_gallery.py                            # evaluate 50,000 and 200,000, import 10⁶
    python benchmarks/bulk_gallery.py --rows 100000 --evaluate   # smaller

Every command runs in a process of its own; processor time and peak memory (resident, files that are mapped
included) are those of that process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from slimreid.data.manifest import ImageRef, images_to_json
from slimreid.inference.embedding_sets.card import SetCard, write_card
from slimreid.inference.embedding_sets.tables import ROWS_FOLDER, embedding_rows, write_table
from slimreid.inference.similarity import Similarity

D, PART, QUERIES = 576, 4096, 300
NAMES = ("rgb", "nir", "tir")
SIMILARITY = Similarity(NAMES, tuple((name,) for name in NAMES))
SEARCH = """
import sys, time, resource, numpy as np
from slimreid.gallery.gallery import Gallery
with Gallery(sys.argv[1]) as gallery:
    info, store = gallery.info, gallery.store
    queries = np.random.default_rng(1).standard_normal((21, info.dimension), dtype=np.float32)
    prepared = info.similarity.prepare(queries / np.linalg.norm(queries, axis=1, keepdims=True))
    began = time.perf_counter()
    store.search(prepared[:1], 10)
    first, times = time.perf_counter() - began, []
    for number in range(1, 21):
        before = time.process_time()
        store.search(prepared[number : number + 1], 10)
        times.append(1000 * (time.process_time() - before))
    print(f"{len(gallery):,} rows: first answer after {first:.1f} s, then p50 {np.median(times):.1f} ms, "
          f"p95 {np.quantile(times, 0.95):.1f} ms of processor time")
"""


def _images(number: int) -> str:
    return images_to_json({name: ImageRef(f"/images/{number:08d}_{name}.jpg") for name in NAMES})


def write_folder(folder: Path, rows: int) -> None:
    """A folder as `slimreid embed` writes it: some queries, the rest gallery, one row in 1,000 unreadable."""
    rng = np.random.default_rng(0)
    schema = embedding_rows(D)
    vector = schema.field("feature").type
    for start in range(0, rows, PART):
        numbers = np.arange(start, min(start + PART, rows))
        features = rng.standard_normal((len(numbers), D), dtype=np.float32)
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        broken = numbers % 1000 == 999
        flat = pa.array(features.reshape(-1))
        columns = {
            "id": numbers + 2,
            "split": ["query" if n < QUERIES else "gallery" for n in numbers],
            "identity": [f"identity {n % (rows // 10)}" for n in numbers],
            "camera": [f"camera {n % 7}" for n in numbers],
            "scene": [""] * len(numbers),
            "group": [""] * len(numbers),
            "time": numbers.astype(np.float64),
            "images": [_images(n) for n in numbers],
            "modalities": [list(NAMES)] * len(numbers),
            "hash": ["" if bad else f"{n:064x}" for n, bad in zip(numbers, broken, strict=True)],
            "feature": pa.FixedSizeListArray.from_arrays(flat, type=vector, mask=pa.array(broken)),
            "status": ["unreadable" if bad else "ok" for bad in broken],
            "error": ["gone" if bad else "" for bad in broken],
        }
        path = folder / ROWS_FOLDER / f"part-{start // PART:06d}.parquet"
        write_table(path, pa.table(columns, schema=schema))
    card = SetCard(
        manifest="random", manifest_digest="", rows=rows, model="random", fingerprint="random",
        feature_fingerprint="random", feature="both", dimension=D, modalities=NAMES, similarity=SIMILARITY,
        cameras=False, split="", protocol="camera",
    )  # fmt: skip
    write_card(folder, card)


def run(words: list[str]) -> str:
    """Run a command; what it says, seconds, processor seconds and peak memory."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as text:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen([sys.executable, *words], stdout=text, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        text.seek(0)
        said = text.read()
    if status:
        raise SystemExit(f"{' '.join(words[:4])} failed")
    cost, seconds = used.ru_utime + used.ru_stime, time.monotonic() - began
    said = " ".join(said.split())
    return f"{said}: {seconds:.1f} s, {cost:.1f} s of processor time, peak {used.ru_maxrss / 1024:,.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to import; 0 = none")
    parser.add_argument("--evaluate", type=int, nargs="*", default=[50_000, 200_000], help="rows to evaluate")
    parser.add_argument("--memory", default="256", help="megabytes of scores in an evaluation")
    parser.add_argument("--folder", type=Path, default=None, help="where files are written meanwhile")
    args = parser.parse_args()
    for rows in args.evaluate:
        folder = Path(tempfile.mkdtemp(dir=args.folder))
        write_folder(folder / "embeddings", rows)
        words = ["-m", "slimreid", "evaluate", str(folder / "embeddings"), "--memory", args.memory]
        said = run([*words, "--out", str(folder / "evaluation")])
        print(f"evaluate {rows:,} rows:{said.rpartition(':')[2]}", flush=True)
        shutil.rmtree(folder)
    if not args.rows:
        return
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    write_folder(folder / "embeddings", args.rows)
    place = folder / "random.gallery"
    for turn in ("import", "import again"):
        words = ["-m", "slimreid", "gallery", "import", str(place), str(folder / "embeddings")]
        print(f"{turn}: {run(words)}", flush=True)
    for turn in ("search (makes the index)", "search"):
        print(f"{turn}: {run(['-c', SEARCH, str(place)])}", flush=True)
    size = sum(path.stat().st_size for path in folder.glob("random.gallery*"))
    vectors = 4 * D * args.rows
    print(f"on disk: {size / 1e9:.2f} GB, {size / vectors:.2f}× the vectors")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
