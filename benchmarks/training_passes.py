"""What a training step costs with all tokens, with reduced ones, and with the run's own average as teacher.

The recipe `market1501/baseline` (ViT-Tiny, 12 × 4 images of one modality) at 256×128, step by step as
`slimreid train` does it: forward, losses, backward, AdamW, moving average, in one thread. The steps take
turns; each is compared with the one with all tokens in the same round, and the median is reported. It is the
time that the processor spent on a step, which other programs change little. Loading a batch whose images are
kept in memory is measured beside it: it comes on top of every step. The last column is the number of reduced
epochs, after two with all tokens, for which 0.8 of the time of 8 epochs with all tokens has room.

    python benchmarks/training_passes.py [--strides 16 12] [--rounds 9] [--precision bf16] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from data_loading import make_files
from slimreid.cli.console import console, table
from slimreid.config import Config
from slimreid.config.files import load_config
from slimreid.data.loader import train_loader
from slimreid.data.manifest import Manifest
from slimreid.profiling.latency import measure_interleaved, median_ratios, medians
from slimreid.training.distributed.processes import Processes
from slimreid.training.environment import keep_freed_memory, numeric_mode
from slimreid.training.learner import Learner

RECIPE = Path(__file__).parents[1] / "configs" / "market1501" / "baseline.yaml"
FULL, LOADING = "all tokens", "loading"
AVERAGE = ("train.teacher=average", "optim.ema=0.99", "loss.distill_weight=10")
SCHEDULES = {
    "60 %, 30 %": "[[0.333, 0.6], [0.667, 0.3]]",
    "50 %, 25 %": "[[0.25, 0.5], [0.5, 0.25]]",
    "55 %, 25 % from block 4 on": "[[0.25, 0.55], [0.583, 0.25]]",
}
EPOCHS, SHARE, FIRST = 8, 0.8, 2


def ways() -> dict[str, tuple[str, ...]]:
    """Options of every way to train."""
    found: dict[str, tuple[str, ...]] = {FULL: ()}
    for name, schedule in SCHEDULES.items():
        reduced = ("model.reduction=in_backbone", f"model.in_backbone.schedule={schedule}")
        found |= {name: reduced, f"{name}, average": (*reduced, *AVERAGE)}
    return found


def make_step(config: Config, manifest: Manifest) -> Callable[[], None]:
    """One update of the weights, on the same batch every time."""
    loader = train_loader(config, manifest)
    learner = Learner(config, loader, Processes(0, 1, torch.device("cpu")))
    learner.model.train()
    batch = next(iter(loader))

    def step() -> None:
        total, named = learner.updater.forward(batch, True)
        torch.stack(list(named.values())).tolist()
        learner.updater.backward(total, True)
        learner.updater.update()

    return step


def measure(options: Sequence[str], manifest: Manifest, rounds: int) -> list[dict[str, float | str]]:
    """Rows with the seconds of every way, and its ratio to the step with all tokens."""
    configs = {name: load_config([RECIPE], [*options, *own]) for name, own in ways().items()}
    loader = train_loader(configs[FULL], manifest)
    cases = {name: make_step(config, manifest) for name, config in configs.items()}
    with numeric_mode(configs[FULL].train, torch.device("cpu")):
        seconds = measure_interleaved(
            {**cases, LOADING: partial(list, loader)}, rounds, clock=time.process_time
        )
    seconds[LOADING] = [second / len(loader) for second in seconds[LOADING]]
    middle, faster = medians(seconds), median_ratios(seconds, FULL)
    load = middle[LOADING] / middle[FULL]
    rows: list[dict[str, float | str]] = []
    for name in seconds:
        ratio = 1 / faster[name]
        room = (SHARE * EPOCHS - FIRST) * (1 + load) / (ratio + load)
        rows.append({"way": name, "seconds": middle[name], "ratio": ratio, "epochs": room})
    return rows


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strides", type=int, nargs="+", default=[16, 12])
    parser.add_argument("--size", type=int, nargs=2, default=[256, 128], metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--backbone", default="vit_tiny")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    keep_freed_memory()
    height, width = given.size
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        made = make_files(Path(folder), 48, (height, width))
        samples = (
            replace(sample, identity=str(number // 4), images={"rgb": sample.images["rgb"]})
            for number, sample in enumerate(made.samples)
        )
        manifest = replace(made.with_samples(samples), modalities=("rgb",))
        for stride in given.strides:
            options = [f"transforms.height={height}", f"transforms.width={width}", "data.workers=0"]
            options += [
                "data.cache=ram",
                f"train.precision={given.precision}",
                "train.threads=1",
            ]
            options += [f"model.backbone={given.backbone}", f"model.stride=[{stride}, {stride}]"]
            found[stride] = measure(options, manifest, given.rounds)
    if given.json:
        print(json.dumps(found, indent=2))
        return 0
    for stride, rows in found.items():
        title = f"{given.backbone}, {height}×{width}, stride {stride}, 48 images, {given.precision}"
        shown = [
            (row["way"], f"{row['seconds']:.3f}", f"{row['ratio']:.3f}", f"{row['epochs']:.1f}")
            for row in rows
            if row["way"] != LOADING
        ]
        load = rows[-1]
        shown.append((LOADING, f"{load['seconds']:.3f}", f"{load['ratio']:.3f}", ""))
        console.print(table(["step", "s", "ratio", "epochs that fit"], shown, title))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
