"""Evaluation against the bare matrix product and the usual numpy version; re-ranking against the dense one.

    python benchmarks/evaluation.py                         # 4,000 x 40,000 x 1,536 and 2,000 + 10,000
    python benchmarks/evaluation.py --queries 500 --gallery 5000 --skip-rerank

Memory is measured first, in a process of its own: the peak during evaluation minus the peak once the features
are there. Exits with 1 when figures differ from the usual version, or when a target is missed at full size
on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slimreid.evaluation import KReciprocal, Labels, RetrievalResult, evaluate_retrieval

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from reference.retrieval import dense_k_reciprocal

FULL = {
    "queries": 4000,
    "gallery": 40_000,
    "rerank_queries": 2000,
    "rerank_gallery": 10_000,
    "channels": 1536,
}


def make_case(
    queries: int, gallery: int, channels: int, identities: int, noise: float = 3.0, seed: int = 0
) -> dict[str, Any]:
    """Noisy clusters, made in place so that making them takes no more memory than they do."""
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(identities, channels, generator=generator)
    case: dict[str, Any] = {}
    for side, rows in (("query", queries), ("gallery", gallery)):
        ids = rng.integers(0, identities, rows)
        features = torch.empty(rows, channels).normal_(generator=generator).mul_(noise)
        for start in range(0, rows, 1024):
            features[start : start + 1024] += centres[ids[start : start + 1024]]
        case |= {
            f"{side}_features": features,
            f"{side}_ids": ids,
            f"{side}_cameras": rng.integers(0, 6, rows),
        }
    return case


def evaluate(case: dict[str, Any], **options: Any) -> RetrievalResult:
    labels = Labels(**{name: value for name, value in case.items() if not name.endswith("features")})
    return evaluate_retrieval(case["query_features"], case["gallery_features"], labels, **options)


@dataclass
class Timing:
    """The best of some runs: seconds on the clock, seconds of processor, and what the work returned."""

    wall: float
    cpu: float
    result: Any

    @property
    def shared(self) -> bool:
        """Whether something else had the processor for part of the time; then no ratio means much."""
        return self.cpu < 0.95 * self.wall


def measure(work: Callable[[], Any], repeats: int) -> Timing:
    runs = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        runs.append(Timing(time.perf_counter() - wall, time.process_time() - cpu, result))
    return min(runs, key=lambda run: run.wall)


def bare_product(case: dict[str, Any], rows: int) -> None:
    for part in torch.split(case["query_features"], rows):
        part @ case["gallery_features"].T


def usual_evaluation(case: dict[str, Any], number: int) -> float:
    """mAP of the first queries as it is usually computed: whole matrix, argsort, loop over queries."""
    query, gallery = case["query_features"][:number].numpy(), case["gallery_features"].numpy()
    query = query / np.linalg.norm(query, axis=1, keepdims=True)
    gallery = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    distance = 2 - 2 * query @ gallery.T
    return usual_figures(distance, case, number)


def usual_figures(distance: np.ndarray, case: dict[str, Any], number: int) -> float:
    order = np.argsort(distance, axis=1)
    matches = (case["gallery_ids"][order] == case["query_ids"][:number, None]).astype(np.int32)
    precisions = []
    for q in range(number):
        same = case["gallery_ids"][order[q]] == case["query_ids"][q]
        keep = ~(same & (case["gallery_cameras"][order[q]] == case["query_cameras"][q]))
        hits = matches[q][keep]
        if not hits.any():
            continue
        found = hits.cumsum()
        precisions.append((found / np.arange(1, len(hits) + 1) * hits).sum() / hits.sum())
    return float(np.mean(precisions))


def peak_megabytes() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def extra_memory(arguments: dict[str, Any]) -> tuple[float, float]:
    """Peak beyond the features in MB, without and with ROC (the second on top of the first's peak)."""
    torch.set_num_threads(arguments.pop("threads"))
    case = make_case(**arguments)
    before = peak_megabytes()
    evaluate(case)
    plain = peak_megabytes() - before
    evaluate(case, roc=True, top_k=50)
    return plain, peak_megabytes() - before


def verdict(value: float, target: float, decides: bool, at_most: bool) -> tuple[str, bool]:
    """What to print about a target, and whether it may stand; only a fair run at full size decides."""
    met = value <= target if at_most else value >= target
    word = ("met" if met else "MISSED") if decides else "undecided, smaller size or shared processor"
    return f"target {'at most' if at_most else 'at least'} {target:g}: {word}", met or not decides


def show(name: str, timing: Timing, text: str = "", scale: float = 1.0) -> None:
    print(f"  {name:34s}{timing.wall * scale:8.2f} s  (processor {timing.cpu * scale:.2f} s)  {text}")


def run_evaluation(options: argparse.Namespace) -> bool:
    arguments = {k: getattr(options, k) for k in ("queries", "gallery", "channels", "identities")}
    full = all(arguments[k] >= FULL[k] for k in ("queries", "gallery", "channels"))
    size = f"{options.queries} x {options.gallery} x {options.channels}"
    print(f"evaluation: {size}, {options.threads} threads")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        extra, extra_histogram = pool.submit(extra_memory, arguments | {"threads": options.threads}).result()
    case = make_case(**arguments)
    product = measure(lambda: bare_product(case, 200), options.repeats)
    ours = measure(lambda: evaluate(case), options.repeats)
    with_all = measure(lambda: evaluate(case, roc=True, top_k=50), options.repeats)
    number = min(options.usual_queries, options.queries)
    usual = measure(lambda: usual_evaluation(case, number), 1)

    fair = full and not (product.shared or ours.shared)
    ratio_text, ratio_met = verdict(ours.wall / product.wall, 2.0, fair, at_most=True)
    memory_text, memory_met = verdict(extra, 300, full, at_most=True)
    show("bare product, 200 queries a time", product)
    show("evaluate_retrieval", ours, f"{ours.wall / product.wall:.2f} x product, {ratio_text}")
    show("... with ROC and top 50", with_all, f"{with_all.wall / product.wall:.2f} x product")
    scale = options.queries / number
    text = f"{usual.wall * scale / product.wall:.2f} x product, measured on {number} queries"
    show("usual numpy version", usual, text, scale)
    print(f"  {'memory beyond the features':34s}{extra:8.0f} MB  {memory_text}")
    print(f"  {'... with ROC and top 50':34s}{extra_histogram:8.0f} MB")
    matrix = options.queries * options.gallery * 12 / 2**20
    print(f"  {'usual version, matrix and order':34s}{matrix:8.0f} MB  (computed)")
    on_those = float(np.nanmean(ours.result.average_precision[:number]))
    agree = abs(on_those - usual.result) < 1e-6
    print(
        f"  mAP {on_those:.6f} and {usual.result:.6f} on those {number}: {'equal' if agree else 'DIFFERENT'}"
    )
    return ratio_met and memory_met and agree


def run_rerank(options: argparse.Namespace) -> bool:
    Q, G = options.rerank_queries, options.rerank_gallery
    full = all(getattr(options, k) >= FULL[k] for k in ("rerank_queries", "rerank_gallery"))
    print(f"re-ranking: {Q} + {G}, {options.channels} channels, {options.threads} threads")
    case = make_case(Q, G, options.channels, max(2, G // 20), noise=4.0, seed=1)
    plain = evaluate(case).map
    ours = measure(lambda: evaluate(case, rerank=KReciprocal()), options.repeats)
    features = case["query_features"].numpy(), case["gallery_features"].numpy()
    dense = measure(lambda: usual_figures(dense_k_reciprocal(*features), case, Q), 1)
    text, met = verdict(dense.wall / ours.wall, 10, full and not (ours.shared or dense.shared), at_most=False)
    show("sparse, with evaluation", ours)
    show("dense, with evaluation", dense, f"{dense.wall / ours.wall:.1f} times, {text}")
    agree = abs(dense.result - ours.result.map) < 1e-3
    print(
        f"  mAP {ours.result.map:.5f} and {dense.result:.5f}: {'equal' if agree else 'DIFFERENT'} to 1e-3",
        end="",
    )
    print(f" (without re-ranking {plain:.5f})")
    return met and agree


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in FULL.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--identities", type=int, default=1000)
    parser.add_argument("--usual-queries", type=int, default=400, help="queries for the usual numpy version")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many runs counts")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--skip-rerank", action="store_true")
    parser.add_argument("--skip-evaluation", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    met = [options.skip_evaluation or run_evaluation(options), options.skip_rerank or run_rerank(options)]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
