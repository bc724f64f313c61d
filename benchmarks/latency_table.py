"""Patches to keep per stage, chosen from a measured latency table of this machine instead of fixed shares.

    python benchmarks/latency_table.py RUN --choose-on VAL.csv --test TEST.csv \\
        --against "[[0.25, 0.7], [0.417, 0.4], [0.667, 0.2]]" --json latency_table.json

One block and one stage of token reduction are timed at every --step patches, in processor time, which
other programs change little. From these times follows how long the backbone takes with any blocks and
counts. Of those predicted to be as fast as --against, and at most 3 % faster, --tries are drawn at random and
tried on VAL without training; then --rounds times those most like the best so far. The best on VAL is
measured on TEST beside --against, in speed too. RUN is a trained model that keeps all tokens. The file is
written after every trial, and a second start goes on.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import front
import front_points as points
from slimreid.backbones.layers import patch_coordinates
from slimreid.backbones.tokens import TokenState
from slimreid.cli.console import console, ending_in_one_line, table
from slimreid.config.token_reduction import InBackboneConfig
from slimreid.errors import ConfigError
from slimreid.evaluation.metrics.result import paired_bootstrap
from slimreid.inference.load import load
from slimreid.models.reid_model import ReIDModel
from slimreid.profiling.latency import embedder, measure_interleaved, medians, random_batch
from slimreid.progress import progress
from slimreid.token_reduction import InBackboneReducer
from slimreid.token_reduction.in_backbone import stages_of
from slimreid.token_reduction.modality_packing import pack_images
from slimreid.token_reduction.select import kept_count

Stages = tuple[tuple[int, int], ...]
"""(blocks done before, patches kept), in order."""
SLACK = 0.97
"""Candidates take at least this share of the time allowed."""


@dataclass(frozen=True)
class LatencyTable:
    """Seconds of the parts of a backbone, by patches; linear between those measured."""

    counts: tuple[int, ...]
    """Patches, rising; the last one is all of them."""
    block: tuple[float, ...]
    """One block."""
    stage: tuple[float, ...]
    """One stage of token reduction that keeps half, and the class attention it needs."""
    rest: float
    """All but the blocks."""
    depth: int
    """Number of blocks."""

    def seconds(self, stages: Stages) -> float:
        """The whole model with these stages; () for all tokens."""
        total, patches, at = self.rest, self.counts[-1], 0
        for block, kept in (*stages, (self.depth, 0)):
            total += (block - at) * float(np.interp(patches, self.counts, self.block))
            if block < self.depth:
                total += float(np.interp(patches, self.counts, self.stage))
            patches, at = kept, block
        return total


def measure_table(model: ReIDModel, batch: int, repeats: int, step: int) -> LatencyTable:
    """Time one block and one stage at every `step` patches, and the whole model, in turn."""
    backbone = model.backbone
    total = backbone.grid[0] * backbone.grid[1]
    counts = (*range(step, total, step), total)
    images, cameras = random_batch(model, batch)
    _, packing = pack_images(images, None, model.modalities)
    reducer = InBackboneReducer(backbone, model.modalities, InBackboneConfig()).eval()
    prefix, width = backbone.config.prefix, backbone.config.width
    places = patch_coordinates(backbone.grid, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)

    def tokens_of(patches: int) -> tuple[Tensor, Tensor | None]:
        """Tokens, and how many patches each stands for in the attention, where some are gone."""
        x = torch.randn(packing.sample.shape[0], prefix + patches, width, generator=generator)
        return x, None if patches == total else x.new_zeros(x.shape[:2])

    def block_of(patches: int) -> Callable[[], object]:
        x, bias = tokens_of(patches)
        return lambda: backbone.blocks[0](x, None, bias, False)

    def stage_of(patches: int) -> Callable[[], object]:
        x, bias = tokens_of(patches)

        def run() -> None:
            after, attention = backbone.blocks[0](x, None, bias, bool(reducer.attention_blocks))
            state = TokenState(
                after, prefix, places[:, :patches], grid=backbone.grid, key_bias=bias, attention=attention
            )
            reducer(0, max(1, patches // 2), state, packing)

        return run

    with torch.inference_mode():
        cases = {f"block {n}": block_of(n) for n in counts} | {f"stage {n}": stage_of(n) for n in counts}
        seconds = medians(
            measure_interleaved(
                {"model": embedder(model, images, cameras), **cases},
                repeats,
                rounds=lambda r: progress(list(r), "latency table"),
                clock=time.process_time,
            )
        )
    block = tuple(seconds[f"block {n}"] for n in counts)
    stage = tuple(max(0.0, seconds[f"stage {n}"] - seconds[f"block {n}"]) for n in counts)
    depth = len(backbone.blocks)
    return LatencyTable(counts, block, stage, seconds["model"] - depth * block[-1], depth)


def stages_from(schedule: Sequence[Sequence[float]], patches: int, depth: int) -> Stages:
    """A schedule of shares as blocks and counts."""
    pairs = [(float(position), float(share)) for position, share in schedule]
    return tuple((s.block, kept_count(patches, s.share)) for s in stages_of(pairs, depth))


def schedule_of(stages: Stages, patches: int, depth: int) -> list[list[float]]:
    """Blocks and counts as a schedule of shares."""
    return [[block / depth, kept / patches] for block, kept in stages]


def candidates(latency: LatencyTable, allowed: float, step: int) -> list[Stages]:
    """All two and three stages, counts in multiples of `step`, that take `allowed` seconds or little less."""
    kept = range(step, latency.counts[-1], step)
    found = [
        tuple(zip(blocks, reversed(counts), strict=True))
        for number in (2, 3)
        for blocks in itertools.combinations(range(1, latency.depth), number)
        for counts in itertools.combinations(kept, number)
    ]
    return [stages for stages in found if SLACK * allowed <= latency.seconds(stages) <= allowed]


def nearest(stages: Stages, among: Sequence[Stages], number: int, step: int) -> list[Stages]:
    """Those with as many stages whose blocks and counts differ least, itself left out."""

    def distance(other: Stages) -> float:
        pairs = zip(stages, other, strict=True)
        return sum(abs(a - b) + abs(kept - left) / step for (a, kept), (b, left) in pairs)

    alike = [other for other in among if len(other) == len(stages) and other != stages]
    return sorted(alike, key=lambda other: (distance(other), other))[:number]


def choose(args: argparse.Namespace) -> front.Front:
    """Try schedules of one predicted time on one set of people, and measure the best on another."""
    loaded = load(args.run)
    if points.method_of(loaded) != points.UNSLIMMED:
        raise ConfigError(f"{args.run}: reduces tokens already; give a model that keeps all")
    model = loaded.model
    patches, depth = model.backbone.grid[0] * model.backbone.grid[1], len(model.backbone.blocks)
    settings = {
        "model": loaded.fingerprint,
        "data": [args.choose_on.name, args.test.name],
        "against": args.against,
        "ours": list(args.ours),
        "step": args.step,
        "seed": args.seed,
        **points.environment(args.batch, args.repeats),
    }
    found = front.Front(args.json, settings)
    if not found.has(kind="table"):
        latency = measure_table(model, args.batch, args.repeats, args.step)
        found.add({"kind": "table", **asdict(latency)})
    values = next(p for p in found.points if p["kind"] == "table")
    latency = LatencyTable(
        tuple(values["counts"]), tuple(values["block"]), tuple(values["stage"]), values["rest"], depth
    )
    against = stages_from(args.against, patches, depth)
    pool = candidates(latency, latency.seconds(against), args.step)
    if not pool:
        raise ConfigError(f"no schedule takes as long as {args.against}; give a smaller --step")

    def attempt(stages: Stages) -> None:
        kept = [list(pair) for pair in stages]
        if found.has(kind="trial", stages=kept):
            return
        way = points.stage_way(points.OURS, schedule_of(stages, patches, depth), args.ours)
        result = points.retrieve(points.slimmed_by(loaded, way), args.choose_on)
        predicted = latency.seconds(()) / latency.seconds(stages)
        found.add({"kind": "trial", "stages": kept, "map": result.map, "predicted": predicted})

    order = np.random.default_rng(args.seed).permutation(len(pool))
    for stages in progress([against, *(pool[i] for i in order[: args.tries])], "trials"):
        attempt(stages)
    for _ in range(args.rounds):
        for stages in progress(nearest(best_of(found), pool, args.near, args.step), "trials like the best"):
            attempt(stages)
    compare(args, found, loaded, {"against": against, "best": best_of(found)})
    return found


def best_of(found: front.Front) -> Stages:
    """The stages with the highest mAP of all trials."""
    best = max((p for p in found.points if p["kind"] == "trial"), key=lambda p: p["map"])
    return tuple((block, kept) for block, kept in best["stages"])


def compare(args: argparse.Namespace, found: front.Front, loaded: Any, chosen: dict[str, Stages]) -> None:
    """Measure fixed shares and the best trial on the test people, against all tokens and each other."""
    if found.has(kind="test"):
        return
    backbone = loaded.model.backbone
    patches, depth = backbone.grid[0] * backbone.grid[1], len(backbone.blocks)
    reference = points.retrieve(loaded, args.test)
    results = {}
    for name, stages in chosen.items():
        slimmed = points.slimmed_by(
            loaded, points.stage_way(points.OURS, schedule_of(stages, patches, depth), args.ours)
        )
        results[name] = points.Measured(
            points.retrieve(slimmed, args.test),
            reference,
            points.measure_speed(loaded.model, slimmed.model, args.batch, args.repeats),
        )
    more = paired_bootstrap(results["against"].result, results["best"].result).to_dict()
    for name, measured in results.items():
        kept = [list(pair) for pair in chosen[name]]
        strength = ", ".join(f"{left} before block {block + 1}" for block, left in chosen[name])
        point = points.point("test", points.OURS, strength, [measured], stages=kept, name=name)
        found.add({**point, "best_to_against": more})


def show(found: front.Front) -> None:
    """The table of latencies, the best trials, and what was measured on the test people."""
    (latency,) = (p for p in found.points if p["kind"] == "table")
    rows = zip(latency["counts"], latency["block"], latency["stage"], strict=True)
    cells = [(n, f"{1e3 * b:.2f}", f"{1e3 * s:.2f}") for n, b, s in rows]
    console.print(table(["patches", "block (ms)", "stage (ms)"], cells, "latency table"))
    trials = sorted((p for p in found.points if p["kind"] == "trial"), key=lambda p: -p["map"])
    cells = [(str(p["stages"]), f"{p['predicted']:.2f}×", f"{100 * p['map']:.1f}") for p in trials[:10]]
    console.print(table(["(block, patches)", "predicted speed", "mAP"], cells, "best trials"))
    tests = [p for p in found.points if p["kind"] == "test"]
    cells = [
        (
            p["name"],
            p["strength"],
            f"{100 * p['map']:.1f}",
            f"{100 * (p['map'] - p['unslimmed_map']):+.1f}",
            f"{p['ratio']:.2f}×",
        )
        for p in tests
    ]
    console.print(table(["", "kept", "mAP", "Δ", "speed"], cells, "on the test people"))
    more = tests[0]["best_to_against"]
    low, value, high = (100 * more[key] for key in ("low", "value", "high"))
    console.print(f"best to against: {value:+.1f} ({low:+.1f} to {high:+.1f}); written: {found.path}")


@ending_in_one_line
def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="trained run or model file that keeps all tokens")
    parser.add_argument("--choose-on", type=Path, required=True, help="manifest of the people to choose on")
    parser.add_argument("--test", type=Path, required=True, help="manifest of the people to measure on")
    parser.add_argument("--against", type=front.schedule, required=True, help="fixed shares to compare with")
    parser.add_argument(
        "--ours", nargs="+", default=[], metavar="KEY=VALUE", help="options of model.in_backbone"
    )
    parser.add_argument("--json", type=Path, required=True, help="file of results")
    parser.add_argument("--step", type=int, default=8, help="patches between the counts that are timed")
    parser.add_argument("--tries", type=int, default=24, help="schedules drawn at random")
    parser.add_argument("--rounds", type=int, default=2, help="how often those like the best are tried")
    parser.add_argument("--near", type=int, default=6, help="how many of them each time")
    parser.add_argument("--batch", type=int, default=32, help="samples per forward pass")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    show(choose(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
