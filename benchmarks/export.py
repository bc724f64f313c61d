"""Speed of exported models against torch: plain, ours, exported float32 and int8, unslimmed and slim.

    python benchmarks/export.py                       # batches 1 and 8, one thread and two
    python benchmarks/export.py --batches 8 --threads 1 --repeats 3
    python benchmarks/export.py --quick --backbone nano --height 64 --width 32

ViT-B/16, 256×128, three modalities, all ways in one process with the weights of one random backbone. The
plain model is a ViT of ordinary torch modules, called once per modality. Repetitions are interleaved, so that
a busy machine is busy for all; ratios are medians of the ratios within a repetition. With one thread the time
is that of the processor spent by this process, which other programs disturb less; with more it is that of the
clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import nn

from slimreid.cli.console import console, table
from slimreid.exporting.graphs import SubsetModel, export_graph, read_graph, write_graphs
from slimreid.exporting.quantise import quantise
from slimreid.files import write_text
from slimreid.inference.onnx_engine import session_options
from slimreid.profiling.latency import median_ratios
from slimreid.progress import progress
from throughput import MODALITIES, PLAIN, build, random_images

WAYS = {
    PLAIN: "torch float32, plain ViT once per modality",
    "torch": "torch float32, ours",
    "torch slim": "torch float32, ours, slim",
    "float32": "exported float32",
    "float32 slim": "exported float32, slim",
    "int8": "exported int8",
    "int8 slim": "exported int8, slim",
}
GOALS = {1: 4.0, 8: 5.0}
"""How many times as fast as the plain model slim int8 shall be, by batch."""
FLOAT_GOAL = 0.95
"""How fast exported float32 shall be, as a share of our torch float32."""


def write_folders(models: Mapping[str, nn.Module], folder: Path) -> None:
    """Graphs of both designs in both precisions, as `slimreid export` writes them."""
    for name, key in (("", "unslimmed"), (" slim", "in_backbone")):
        proto = export_graph(models[key], MODALITIES)
        (folder / f"float32{name}").mkdir()
        write_graphs(folder / f"float32{name}", [("graph.onnx", proto)])
        (folder / f"int8{name}").mkdir()
        int8 = quantise(read_graph(folder / f"float32{name}", "graph.onnx"))
        write_graphs(folder / f"int8{name}", [("graph.onnx", int8)])


def torch_case(model: nn.Module, batch: int, size: tuple[int, int]) -> Callable[[], object]:
    images = random_images(batch, size)

    def run() -> object:
        with torch.inference_mode():
            return model(images)

    return run


def onnx_case(folder: Path, batch: int, size: tuple[int, int], threads: int) -> Callable[[], object]:
    path = str(folder / "graph.onnx")
    session = onnxruntime.InferenceSession(path, session_options(threads), providers=["CPUExecutionProvider"])
    feed = {name: image.numpy() for name, image in random_images(batch, size).items()}
    return lambda: session.run(None, feed)


def check(models: Mapping[str, nn.Module], folder: Path, size: tuple[int, int]) -> dict[str, float]:
    """Smallest cosine of each exported model to its original; refuses float32 that differs."""
    images = random_images(2, size)
    found = {}
    for way in WAYS:
        if not way.startswith(("float32", "int8")):
            continue
        model = models["in_backbone" if way.endswith("slim") else "unslimmed"]
        with torch.inference_mode():
            expected = SubsetModel(model.eval())(images, None)["both"].numpy()
        session = onnxruntime.InferenceSession(str(folder / way / "graph.onnx"), session_options(1))
        (got,) = session.run(["both"], {name: image.numpy() for name, image in images.items()})
        norms = np.linalg.norm(expected, axis=1) * np.linalg.norm(got, axis=1)
        found[way] = float(((expected * got).sum(1) / norms).min())
        if way.startswith("float32") and found[way] < 0.9999:
            raise SystemExit(f"{way}: cosine {found[way]:.6f} to the original")
    return found


def measure(
    cases: Mapping[str, Callable[[], object]], repeats: int, clock: Callable[[], float], what: str
) -> dict[str, list[float]]:
    """Seconds of every case in every repetition, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in progress(range(repeats + 1), what):
        for name, run in cases.items():
            start = clock()
            run()
            if number:
                seconds[name].append(clock() - start)
    return seconds


def measure_all(
    models: Mapping[str, nn.Module], folder: Path, size: tuple[int, int], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """One row per number of threads, batch and way."""
    originals = {PLAIN: models[PLAIN], "torch": models["unslimmed"], "torch slim": models["in_backbone"]}
    rows: list[dict[str, Any]] = []
    for threads in args.threads:
        torch.set_num_threads(threads)
        clock = time.process_time if threads == 1 else time.perf_counter
        for batch in args.batches:
            cases = {
                way: torch_case(originals[way].eval(), batch, size)
                if way in originals
                else onnx_case(folder / way, batch, size, threads)
                for way in WAYS
            }
            seconds = measure(cases, args.repeats, clock, f"{threads} thread(s), batch {batch}")
            ratios = median_ratios(seconds, PLAIN)
            ours = median_ratios(seconds, "torch")
            rows += [
                {
                    "threads": threads,
                    "batch": batch,
                    "way": way,
                    "seconds": statistics.median(values),
                    "ratio": ratios[way],
                    "to_torch": ours[way],
                }
                for way, values in seconds.items()
            ]
    return rows


def show(rows: Sequence[dict[str, Any]], cosines: Mapping[str, float], with_goals: bool) -> None:
    for threads, batch in dict.fromkeys((row["threads"], row["batch"]) for row in rows):
        group = {row["way"]: row for row in rows if (row["threads"], row["batch"]) == (threads, batch)}
        cells = [
            (
                WAYS[way],
                f"{1000 * row['seconds'] / batch:.1f}",
                f"{row['ratio']:.2f}×",
                f"{row['to_torch']:.2f}×",
                f"{cosines[way]:.5f}" if way in cosines else "",
            )
            for way, row in group.items()
        ]
        title = f"{threads} thread{'s' if threads > 1 else ''}, batch {batch}"
        console.print(table(["way", "ms/triple", "to plain", "to ours in torch", "cosine"], cells, title))
        if with_goals:
            slim, exported = group["int8 slim"]["ratio"], group["float32"]["to_torch"]
            for name, value, goal in (
                ("slim int8 to plain", slim, GOALS.get(batch)),
                ("exported float32 to ours in torch", exported, FLOAT_GOAL),
            ):
                if goal is not None:
                    verdict = "reached" if value >= goal else "missed"
                    console.print(f"{name}: {value:.2f} times, goal {goal} {verdict}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="vit_b16")
    parser.add_argument("--height", type=int, default=256)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8], help="triples")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="batch 1, one thread, one repetition")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args(arguments)
    if args.quick:
        args.batches, args.threads, args.repeats = [1], [1], 1
    size = (args.height, args.width)
    torch.set_num_threads(args.threads[0])
    models = build(args.backbone, size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_folders(models, folder)
        cosines = check(models, folder, size)
        rows = measure_all(models, folder, size, args)
    title = f"{args.backbone}, {args.height}×{args.width}, three modalities"
    console.print(f"{title}; torch {torch.__version__}, onnxruntime {onnxruntime.__version__}")
    show(rows, cosines, with_goals=(args.backbone, size) == ("vit_b16", (256, 128)))
    if args.json:
        versions = {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__}
        write_text(
            args.json, json.dumps({"settings": title, **versions, "cosines": cosines, "rows": rows}, indent=2)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
