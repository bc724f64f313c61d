"""Speed when modalities are missing: what is absent must cost nothing.

    python benchmarks/missing.py                          # ViT-B/16, 256×128, batch 8
    python benchmarks/missing.py --backbone nano --size 128 64 --batch 32
    python benchmarks/missing.py --reduction in_backbone --repeats 15 --out missing.json

One process, float32, `missing: skip`, three modalities. Cases: all three present; two of three; one of three;
a batch in which samples have different subsets (every non-empty one in turn); and, for comparison, one of
three with `missing: zeros`, which computes the absent ones from zero images. Repetitions are interleaved and
ratios are medians of the ratios within a repetition. Goal: with one of three present at least 2.5 times the
samples per second of three.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimreid.cli.console import console, table
from slimreid.config import ModelConfig
from slimreid.files import write_text
from slimreid.modalities import all_subsets
from slimreid.models.reid_model import ReIDModel, build_model
from slimreid.profiling.latency import measure_interleaved, median_ratios, medians
from slimreid.progress import progress

MODALITIES = ("rgb", "nir", "tir")
GOAL = 2.5
ALL, ONE, TWO, MIXED, ZEROS = (
    "all three",
    "one of three",
    "two of three",
    "mixed subsets",
    "one of three, zeros",
)


def presence(batch: int) -> dict[str, Tensor]:
    """Which of the modalities each sample has, per case: (B, 3) bool."""
    order = list(all_subsets(MODALITIES))
    mixed = torch.tensor([[m in order[i % len(order)] for m in MODALITIES] for i in range(batch)])
    return {
        ALL: torch.ones(batch, 3, dtype=torch.bool),
        TWO: torch.tensor([[True, True, False]]).repeat(batch, 1),
        ONE: torch.tensor([[True, False, False]]).repeat(batch, 1),
        MIXED: mixed,
    }


def build(backbone: str, size: tuple[int, int], reduction: str, missing: str) -> ReIDModel:
    """A model in test mode, the same weights whatever `missing` is."""
    torch.manual_seed(0)
    config = ModelConfig(backbone=backbone, reduction=reduction, missing=missing)  # type: ignore[arg-type]
    return build_model(config, size, MODALITIES, num_classes=171).eval()


def measure(
    skip: ReIDModel, zeros: ReIDModel, size: tuple[int, int], batch: int, repeats: int
) -> dict[str, dict[str, float]]:
    """Per case samples per second, modalities per sample, and how many times as fast as all three."""
    images = {name: torch.randn(batch, 3, *size) for name in MODALITIES}
    present = presence(batch)

    def case(model: ReIDModel, there: Tensor) -> Callable[[], object]:
        def run() -> object:
            with torch.inference_mode():
                return model(images, present=there)

        return run

    cases = {name: case(skip, there) for name, there in present.items()}
    cases[ZEROS] = case(zeros, present[ONE])
    seconds = measure_interleaved(cases, repeats, rounds=lambda r: progress(r, "measuring"))
    middle, ratios = medians(seconds), median_ratios(seconds, ALL)
    modalities = {name: float(there.sum()) / batch for name, there in present.items()} | {ZEROS: 1.0}
    return {
        name: {
            "samples_per_second": batch / middle[name],
            "modalities": modalities[name],
            "ratio": ratios[name],
        }
        for name in cases
    }


def show(found: Mapping[str, Mapping[str, float]], title: str) -> None:
    """The table, and whether the goal is reached."""
    rows = [
        (name, f"{f['modalities']:.2f}", f"{f['samples_per_second']:.2f}", f"{f['ratio']:.2f} ×")
        for name, f in found.items()
    ]
    console.print(table(["present", "modalities per sample", "samples/s", "against all three"], rows, title))
    ratio = found[ONE]["ratio"]
    reached = "reached" if ratio >= GOAL else "missed"
    console.print(f"one of three against three: {ratio:.2f} ×, goal {GOAL} ×: {reached}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="vit_b16")
    parser.add_argument("--size", type=int, nargs=2, default=(256, 128), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--reduction", choices=("after_backbone", "in_backbone"), default="after_backbone")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None, help="also write the figures as JSON")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    size = (options.size[0], options.size[1])
    skip, zeros = (build(options.backbone, size, options.reduction, kind) for kind in ("skip", "zeros"))
    found = measure(skip, zeros, size, options.batch, options.repeats)
    title = f"{options.backbone}, {size[0]}×{size[1]}, batch {options.batch}, reduction {options.reduction}"
    show(found, title)
    if options.out:
        facts: dict[str, Any] = {"backbone": options.backbone, "size": size, "batch": options.batch}
        facts |= {
            "reduction": options.reduction,
            "threads": torch.get_num_threads(),
            "repeats": options.repeats,
        }
        write_text(options.out, json.dumps({**facts, "cases": found}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
