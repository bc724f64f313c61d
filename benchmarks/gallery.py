"""How fast galleries of 10,000 to 1,000,000 rows are, against numpy's exact search and faiss HNSW.

    python benchmarks/gallery.py --rows 10000 100000 1000000 --out gallery.md

Random unit vectors of 576 numbers, a tenth of them in clusters of ten around common centres. Our search,
numpy's (one product and a partition) and faiss's HNSW are timed in turn, in processor time, so that other
work on the machine weighs on all of them alike. faiss is left out above --hnsw rows: building its graph
takes long.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np

from slimreid.evaluation.reports.formatting import markdown_table
from slimreid.gallery.store.rows import Change, Filter, ModelInfo, NewRow
from slimreid.gallery.store.sqlite.store import SqliteStore
from slimreid.inference.similarity import Similarity

D, K, CAMERAS = 576, 10, 4
NAMES = ("rgb", "nir", "tir")
SIMILARITY = Similarity(NAMES, tuple((name,) for name in NAMES))
COLUMNS = (
    "queries, filter, numpy p50 / p95 ms, gallery p50 / p95 ms, ratio, recall@10, HNSW p50 ms, its recall"
)
FILTERS = {
    "none": Filter(),
    "half": Filter(cameras=["camera 0", "camera 1"]),
    "one identity": Filter(identities=["identity 7"]),
}


def make_vectors(rows: int, seed: int = 0) -> np.ndarray:
    """(rows, D) unit vectors, every tenth of a cluster."""
    rng = np.random.default_rng(seed)
    vectors = np.empty((rows, D), dtype=np.float32)
    for start in range(0, rows, 50_000):
        part = vectors[start : start + 50_000]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
        few = len(part) // 10
        centres = rng.standard_normal((max(1, few // 10), D), dtype=np.float32)
        part[:few] = centres[rng.integers(0, len(centres), few)] + 0.5 * part[:few]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def fill(store: SqliteStore, vectors: np.ndarray) -> float:
    """Enrol all vectors, a thousand at a time; seconds of processor time."""
    entry, before = None, time.process_time()
    for start in range(0, len(vectors), 1000):
        rows = [
            NewRow(
                vector,
                NAMES,
                identity=f"identity {number // 10}",
                camera=f"camera {number % CAMERAS}",
                time=float(number),
                hash=f"{number:064d}",
            )
            for number, vector in enumerate(vectors[start : start + 1000], start=start)
        ]
        entry = store.commit(Change("enrol", "benchmark", rows=rows, continues=entry))
    return time.process_time() - before


def numpy_search(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Places (Q, K) of the best rows by one product."""
    scores = queries @ vectors.T
    return np.argpartition(scores, len(vectors) - K, axis=1)[:, -K:]


def timed(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of processor time of each call, in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            before = time.process_time()
            call()
            times[name].append(1000 * (time.process_time() - before))
    return times


def p(values: list[float], share: float) -> float:
    return float(np.quantile(values, share))


def memory_of_search(place: Path) -> float:
    """Bytes that a new process needs more for its first search, as far as they are its own or mapped."""
    code = (
        "import sys, numpy as np, resource\n"
        "from pathlib import Path\n"
        "from slimreid.gallery.store.sqlite.store import SqliteStore\n"
        "def size():\n"
        "    return next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmRSS'))\n"
        "before = size()\n"
        "store = SqliteStore(Path(sys.argv[1]))\n"
        "info = store.model\n"
        "q = info.similarity.prepare(np.random.default_rng(1).normal(size=(32, info.dimension)))\n"
        "for _ in range(3): store.search(q, 10)\n"
        "print(size() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=True
    )
    return 1024.0 * int(done.stdout)


def measure(rows: int, folder: Path, repeats: int, hnsw: bool) -> list[str]:
    """Lines of the table for a gallery of so many rows."""
    vectors = make_vectors(rows)
    place = folder / "benchmark.gallery"
    store = SqliteStore.create(place, ModelInfo("benchmark", "both", D, SIMILARITY))
    seconds = fill(store, vectors)
    queries = make_vectors(3200, seed=1)[::100][:32]
    store.search(SIMILARITY.prepare(queries), K)
    store.close()
    before = time.perf_counter()
    store = SqliteStore(place)
    store.search(SIMILARITY.prepare(queries[:1]), K)
    opening = time.perf_counter() - before
    disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    lines = [
        f"\n{rows:,} rows: {rows / seconds:,.0f} rows/s in (processor time), opened and first answer after "
        f"{opening:.2f} s, {disk / vectors.nbytes:.2f}× the vectors on disk, "
        f"{memory_of_search(place) / vectors.nbytes:.2f}× in memory\n",
    ]
    table: list[list[str]] = []
    graph = None
    if hnsw:
        graph = faiss.IndexHNSWFlat(D, 32, faiss.METRIC_INNER_PRODUCT)
        graph.add(vectors)
        graph.hnsw.efSearch = 128
    for count in (1, 32):
        some, prepared = queries[:count], SIMILARITY.prepare(queries[:count])
        exact = numpy_search(some, vectors)
        for name, which in FILTERS.items():
            calls: dict[str, Callable[[], object]] = {
                "numpy": lambda some=some: numpy_search(some, vectors),
                "gallery": lambda prepared=prepared, which=which: store.search(prepared, K, which),
            }
            if graph is not None and name == "none":
                calls["hnsw"] = lambda some=some: graph.search(some, K)
            times = timed(calls, repeats)
            found = store.search(prepared, K, which)
            recall = (
                _recall(exact, [each.ids - 1 for each in found])
                if name == "none"
                else _filtered(some, vectors, name, found)
            )
            cells = [
                str(count),
                name,
                f"{p(times['numpy'], 0.5):.1f} / {p(times['numpy'], 0.95):.1f}",
                f"{p(times['gallery'], 0.5):.1f} / {p(times['gallery'], 0.95):.1f}",
                f"{p(times['gallery'], 0.5) / p(times['numpy'], 0.5):.2f}",
                f"{recall:.3f}",
                f"{p(times['hnsw'], 0.5):.1f}" if "hnsw" in times else "",
                f"{_recall(exact, graph.search(some, K)[1]):.3f}"
                if "hnsw" in times and graph is not None
                else "",
            ]
            table.append(cells)
    store.close()
    return [*lines, markdown_table(COLUMNS.split(", "), table)]


def _recall(exact: np.ndarray, found: list[np.ndarray] | np.ndarray) -> float:
    return statistics.mean(
        len(set(a.tolist()) & set(b.tolist())) / len(a) for a, b in zip(exact, found, strict=True)
    )


def _filtered(queries: np.ndarray, vectors: np.ndarray, name: str, found: list) -> float:
    """Recall among the rows of a filter, against numpy."""
    places = np.arange(len(vectors))
    chosen = places[places % CAMERAS < 2] if name == "half" else places[places // 10 == 7]
    k = min(K, len(chosen))
    scores = queries @ vectors[chosen].T
    exact = chosen[np.argpartition(scores, len(chosen) - k, axis=1)[:, -k:]]
    return _recall(exact, [each.ids - 1 for each in found])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--hnsw", type=int, default=100_000, help="most rows for which faiss's graph is built"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where the galleries are written meanwhile")
    parser.add_argument("--out", type=Path, default=None, help="Markdown file to write")
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    lines = [
        f"numpy {np.__version__}, faiss {faiss.__version__}; one thread; p50, p95 of {options.repeats} runs"
    ]
    for rows in options.rows:
        folder = Path(tempfile.mkdtemp(dir=options.folder))
        try:
            lines += measure(rows, folder, options.repeats, rows <= options.hnsw)
        finally:
            shutil.rmtree(folder)
        print("\n".join(lines), flush=True)
        if options.out is not None:
            options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(
        f"largest memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB"
    )


if __name__ == "__main__":
    main()
