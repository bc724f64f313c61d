"""Reproduce why the choice of patches was once not learned: the mask logits − (1 − D)·1e10.

    python research/old_mask.py [--epochs 3] [--runs FOLDER] [--results FOLDER] [--world FOLDER]

Trains `sdtps` with the Gumbel estimator on the synthetic world: with the old mask at τ 1, τ 5 and noise
clipped to ±1, and τ 10, and with the mask log D at the same settings. The old mask exists here alone. It is
written as it was, D = hard + soft − stop_gradient(soft) without brackets, so that D is 1 up to rounding only,
which 1e10 turns into noise on the logits. Results go to research/results/old_mask/, one JSON per run;
finished ones are skipped. Ends in a table and a picture, old_mask.md and old_mask.png beside the results.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from matplotlib.figure import Figure
from torch import Tensor

from slimreid.cli.app import main as slimreid
from slimreid.cli.console import console, ending_in_one_line
from slimreid.config.files import load_config
from slimreid.errors import TrainingError
from slimreid.evaluation.reports.formatting import markdown_table
from slimreid.files import write_text
from slimreid.runs.folder import RunFolder
from slimreid.token_reduction import after_backbone as multimodal
from slimreid.token_reduction import estimators
from slimreid.token_reduction import select as selection
from slimreid.training.loop import train
from slimreid.visual.style import LIGHT, WIDTH, line_style, new_axes, save_picture

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs/synthetic/sdtps.yaml"
MASK = 1e10


@dataclass(frozen=True)
class Arm:
    """One setting of the experiment."""

    name: str
    label: str
    tau: float
    old: bool
    clip: float | None = None
    """Largest absolute value of the noise."""


SETTINGS = (
    ("tau1", "τ 1", 1.0, None),
    ("tau5-clipped", "τ 5, clipped noise", 5.0, 1.0),
    ("tau10", "τ 10", 10.0, None),
)
ARMS = tuple(
    Arm(f"{kind}-{name}", f"{text}, {label}", tau, kind == "old", clip)
    for kind, text in (("old", "1e10 mask"), ("log", "log D"))
    for name, label, tau, clip in SETTINGS
)


def old_merge(kept: Tensor, logits: Tensor, *, decision: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`merge_patches` with the mask of the earlier code."""
    decision = kept.new_ones(kept.shape[:2]) if decision is None else decision
    masked = logits.transpose(1, 2) - (1 - decision)[:, None] * MASK
    weights = masked.softmax(-1)
    return torch.bmm(weights, kept), weights


def old_decide(
    scores: Tensor,
    index: Tensor,
    estimator: estimators.Estimator | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """`decide` as it was for Gumbel: the sum is taken from left to right."""
    hard = torch.zeros_like(scores, requires_grad=False).scatter(1, index, 1.0)
    if estimator is None:
        return hard
    soft = estimators.gumbel_softmax(scores, estimator.tau, generator)
    return hard + soft - soft.detach()


@contextmanager
def as_it_was(arm: Arm) -> Iterator[None]:
    """Within the block, token reduction after the backbone works as the arm says."""
    plain: Callable[..., Tensor] = estimators.gumbel_noise

    def clipped(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
        noise = plain(like, generator)
        return noise if arm.clip is None else noise.clamp(-arm.clip, arm.clip)

    with patch.object(estimators, "gumbel_noise", clipped):
        if not arm.old:
            yield
            return
        with (
            patch.object(multimodal, "merge_patches", old_merge),
            patch.object(selection, "decide", old_decide),
        ):
            yield


def run_arm(arm: Arm, run: Path, world: Path, epochs: int, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Train one arm; what is kept of it: losses per update, gradient of the score, mAP, and why it ended."""
    changes = (
        f"data.manifest={world}", f"train.epochs={epochs}", f"optim.warmup_epochs={min(2, epochs - 1)}",
        "model.after_backbone.estimator=gumbel", f"model.after_backbone.tau={arm.tau}",
        "train.watch_selection=true", *overrides,
    )  # fmt: skip
    config = load_config([CONFIG], changes)
    if run.exists():
        shutil.rmtree(run)
    ended, result = "finished", {}
    with as_it_was(arm):
        try:
            result = train(config, run)
        except TrainingError as error:
            ended = str(error).splitlines()[0]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [row["train"]["total"] for row in rows if row["kind"] == "step"]
    return {
        "arm": arm.name,
        "label": arm.label,
        "tau": arm.tau,
        "clip": arm.clip,
        "seed": config.seed,
        "epochs": epochs,
        "ended": ended,
        "loss": [float(f"{loss:.6g}") for loss in losses],
        "gradient": [norm for row in RunFolder(run).selection() for norm in row["gradient"]],
        "val_map": [row["val"]["map"] for row in rows if row["kind"] == "epoch" and "val" in row],
        "test_map": (result.get("test") or {}).get("map"),
    }


def report(results: Sequence[dict[str, Any]]) -> str:
    """The table of all arms."""
    columns = [
        "arm",
        "first loss",
        "largest loss",
        "last loss",
        "gradient, median",
        "gradient, largest",
        "mAP",
    ]
    rows = []
    for found in results:
        norms = sorted(norm for norm in found["gradient"] if norm is not None)
        losses = found["loss"] or [math.nan]
        finite = len(norms) == len(found["gradient"])
        rows.append([
            found["label"], *(f"{loss:.2f}" for loss in (losses[0], max(losses), losses[-1])),
            f"{norms[len(norms) // 2]:.1e}" if norms else "–",
            (f"{norms[-1]:.1e}" if norms else "–") + ("" if finite else " (some not finite)"),
            f"{100 * found['test_map']:.1f}" if found["test_map"] is not None else found["ended"],
        ])  # fmt: skip
    about = (
        "The choice of patches learned through the old mask logits − (1 − D)·1e10 and through log D: "
        "Gumbel–softmax, the same seed. Gradient: norm over the parameters of the score at every update."
    )
    epochs = results[0]["epochs"]
    command = f"```bash\npython research/old_mask.py --epochs {epochs}\n```"
    plot = "![Loss and gradient](old_mask.png)"
    return f"## old_mask\n\n{about}\n\n{plot}\n\n{markdown_table(columns, rows)}\n{command}\n"


def picture(results: Sequence[dict[str, Any]]) -> Figure:
    """Loss and gradient of the score over updates, one line per arm."""
    with LIGHT.drawing():
        figure, axes = new_axes(LIGHT, 2, 1, width=WIDTH + 0.6, height=6.4)
        panels = (("loss", "total loss"), ("gradient", "gradient norm of the score"))
        for panel, (name, title) in zip(axes, panels, strict=True):
            for number, found in enumerate(results):
                points = [(i + 1, v) for i, v in enumerate(found[name]) if v is not None and v > 0]
                if points:
                    panel.plot(*zip(*points, strict=True), label=found["label"], **line_style(LIGHT, number))
            panel.set_title(title)
            if name == "gradient":
                panel.set_yscale("log")
            else:
                panel.set_ylim(bottom=0)
        axes[-1].set_xlabel("update")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs/experiments/old_mask")
    parser.add_argument("--results", type=Path, default=ROOT / "research/results")
    parser.add_argument("--world", type=Path, default=ROOT / "runs/experiments/world")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="other options")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    if not options.world.exists():
        slimreid(["data", "synth", str(options.world), "--identities", "64", "--seed", "0"])
    results = []
    for number, arm in enumerate(ARMS, start=1):
        path = options.results / "old_mask" / f"{arm.name}.json"
        if not path.is_file():
            console.print(f"[{number}/{len(ARMS)}] {arm.label}", markup=False)
            found = run_arm(arm, options.runs / arm.name, options.world, options.epochs, options.set)
            write_text(path, json.dumps(found) + "\n")
        results.append(json.loads(path.read_text(encoding="utf-8")))
    write_text(options.results / "old_mask.md", report(results))
    save_picture(picture(results), options.results / "old_mask.png")
    console.print(f"{len(results)} results in {options.results / 'old_mask.md'}, .png", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
