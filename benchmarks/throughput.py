"""Speed of whole models: a plain ViT, and ours without and with token reduction.

    python benchmarks/throughput.py                              # batches 1, 8, 32; training steps at 8
    python benchmarks/throughput.py --batches 8 --only plain in_backbone --no-training
    python benchmarks/throughput.py --quick

ViT-B/16, 256×128, float32, three modalities, all in one process. The plain model is what one writes from
ordinary torch modules (nn.MultiheadAttention, nn.Linear, nn.GELU, nn.LayerNorm), called once per modality;
ours encodes all modalities as one batch. All share the same weights, and plain and unslimmed must give the
same features before anything is timed. A training step is forward, cross-entropy of every head, backward and
AdamW. Repetitions are interleaved, so that a busy machine is busy for all; ratios are medians of the
ratios within a repetition. GFLOPs are billions of multiply-adds of one triple in test; memory is the
most that tensors take at once besides weights and inputs, not counting what a fused operation
(such as the attention of the plain model in test) holds while it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from plain_vit import PlainViT
from slimreid.backbones.vit import ViT
from slimreid.cli.console import console, table
from slimreid.config import ModelConfig
from slimreid.files import write_text
from slimreid.models.heads import BNNeckHead
from slimreid.models.reid_model import ReIDModel, build_model
from slimreid.profiling.cost import FUSED, summarise
from slimreid.profiling.latency import measure_interleaved, median_ratios, medians
from slimreid.profiling.profile import peak_tensor_bytes
from slimreid.progress import progress

MODALITIES = ("rgb", "nir", "tir")
CLASSES = 171
PLAIN = "plain"
WAYS = {
    PLAIN: "plain ViT, once per modality",
    "unslimmed": "ours, no token reduction",
    "after_backbone": "ours, reduction after the backbone",
    "in_backbone": "ours, reduction in the backbone",
}
GOALS = {("inference", 1): 1.8, ("inference", 8): 2.0, ("training step", 8): 1.6}
"""How many times as fast as the plain model reduction in the backbone shall be."""


class PlainReID(nn.Module):
    """A plain ViT called once per modality, and one head on the joint class tokens."""

    def __init__(self, vit: ViT, classes: int) -> None:
        super().__init__()
        self.vit = PlainViT(vit)
        self.head = BNNeckHead(len(MODALITIES) * vit.config.width, classes)

    def embed(self, images: Mapping[str, Tensor]) -> Tensor:
        """Images per modality -> feature (B, M·C)."""
        return torch.cat([self.vit(images[name])[:, 0] for name in MODALITIES], dim=1)

    def forward(self, images: Mapping[str, Tensor]) -> Tensor:
        """The feature; in training class scores."""
        features = self.embed(images)
        return self.head(features)[1] if self.training else features


def build(backbone: str, size: tuple[int, int]) -> dict[str, nn.Module]:
    """All ways with the weights of one backbone."""
    torch.manual_seed(0)
    options: dict[str, dict[str, object]] = {
        "unslimmed": {"reduction": "none", "fusion": "none"},
        "after_backbone": {},
        "in_backbone": {"reduction": "in_backbone"},
    }
    models: dict[str, nn.Module] = {}
    for name, changes in options.items():
        models[name] = build_model(ModelConfig(backbone=backbone, **changes), size, MODALITIES, CLASSES)
        models[name].backbone = models["unslimmed"].backbone
    return {PLAIN: PlainReID(models["unslimmed"].backbone, CLASSES), **models}


def random_images(batch: int, size: tuple[int, int]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(batch)
    return {name: torch.randn(batch, 3, *size, generator=generator) for name in MODALITIES}


def check(models: Mapping[str, nn.Module], size: tuple[int, int]) -> None:
    """Refuse to time models that do not compute the same."""
    images = random_images(2, size)
    with torch.no_grad():
        plain = models[PLAIN].eval()(images).view(2, len(MODALITIES), -1)
        ours = models["unslimmed"].eval()(images).features["original"]
    torch.testing.assert_close(ours, F.normalize(plain, dim=-1).flatten(1), atol=1e-5, rtol=1e-4)


def inference(model: nn.Module, images: Mapping[str, Tensor]) -> Callable[[], object]:
    def run() -> object:
        model.eval()
        with torch.no_grad():
            return model(images)

    return run


def training_step(
    model: nn.Module, images: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> Callable[[], object]:
    labels = torch.arange(len(images[MODALITIES[0]])) % CLASSES

    def run() -> None:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        output = model(images)
        logits = list(output.logits.values()) if isinstance(model, ReIDModel) else [output]
        sum(F.cross_entropy(scores, labels) for scores in logits).backward()
        optimizer.step()

    return run


def gflops(model: nn.Module, size: tuple[int, int]) -> float:
    """Billions of multiply-adds of one triple."""
    if isinstance(model, ReIDModel):
        return summarise(model).gflops
    # In test mode nn.MultiheadAttention takes a fused path that the counter cannot see into.
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=FUSED) as counter:
        model.train().embed(random_images(1, size))
    return counter.get_total_flops() / 2e9


def measure(
    models: Mapping[str, nn.Module],
    size: tuple[int, int],
    batches: Sequence[int],
    training: Sequence[int],
    repeats: int,
) -> list[dict[str, Any]]:
    """One row per mode, batch and way."""
    cost = {name: gflops(model, size) for name, model in models.items()}
    parameters = {id(p): p for model in models.values() for p in model.parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(list(parameters.values()), lr=1e-6)
    rows: list[dict[str, Any]] = []
    for mode, batch in [("inference", b) for b in batches] + [("training step", b) for b in training]:
        images = random_images(batch, size)
        cases = {
            name: inference(model, images) if mode == "inference" else training_step(model, images, optimizer)
            for name, model in models.items()
        }
        seconds = measure_interleaved(
            cases, repeats, rounds=lambda r, at=f"{mode}, batch {batch}": progress(r, at)
        )
        ratios, times = median_ratios(seconds, next(iter(cases))), medians(seconds)
        for name, run in cases.items():
            optimizer.zero_grad(set_to_none=True)
            known = [*models[name].parameters(), *models[name].buffers(), *images.values()]
            known += [t for s in optimizer.state.values() for t in s.values()]
            rows.append(
                {
                    "mode": mode,
                    "batch": batch,
                    "way": name,
                    "seconds": times[name],
                    "triples_per_second": batch / times[name],
                    "ratio": ratios[name],
                    "gflops": cost[name],
                    "peak_mb": peak_tensor_bytes(run, known) / 1e6,
                }
            )
    return rows


def show(rows: Sequence[dict[str, Any]], with_goals: bool) -> None:
    for mode, batch in dict.fromkeys((row["mode"], row["batch"]) for row in rows):
        group = [row for row in rows if (row["mode"], row["batch"]) == (mode, batch)]
        cells = [
            (
                WAYS[row["way"]],
                f"{row['triples_per_second']:.2f}",
                f"{row['ratio']:.2f}×",
                f"{row['gflops']:.2f}",
                f"{row['peak_mb']:.0f}",
            )
            for row in group
        ]
        title = f"{mode}, {batch} triple{'s' if batch > 1 else ''}"
        console.print(table(["way", "triples/s", "ratio", "GFLOPs", "peak MB"], cells, title))
        goal = GOALS.get((mode, batch))
        ratios = {row["way"]: row["ratio"] for row in group}
        if with_goals and goal is not None and {PLAIN, "in_backbone"} <= set(ratios):
            verdict = "reached" if ratios["in_backbone"] >= goal else "missed"
            console.print(f"in the backbone: {ratios['in_backbone']:.2f} times, goal {goal} {verdict}\n")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="vit_b16")
    parser.add_argument("--height", type=int, default=256)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32], help="triples in test")
    parser.add_argument("--training", type=int, nargs="+", default=[8], help="triples in a training step")
    parser.add_argument("--no-training", action="store_true", help="inference only")
    parser.add_argument("--no-inference", action="store_true", help="training steps only")
    parser.add_argument(
        "--only", nargs="+", choices=list(WAYS), default=list(WAYS), help="ratios are to the first"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="batch 1, a training step of 2, one repetition")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args(arguments)
    if args.quick:
        args.batches, args.training, args.repeats = [1], [2], 1
    torch.set_num_threads(args.threads)
    size = (args.height, args.width)
    models = build(args.backbone, size)
    check(models, size)
    chosen = {name: models[name] for name in WAYS if name in args.only}
    batches = [] if args.no_inference else args.batches
    training = [] if args.no_training else args.training
    rows = measure(chosen, size, batches, training, args.repeats)
    title = f"{args.backbone}, {args.height}×{args.width}, float32, {args.threads} thread(s)"
    console.print(f"{title}; ratios to '{WAYS[next(iter(chosen))]}'")
    show(rows, with_goals=(args.backbone, size) == ("vit_b16", (256, 128)))
    if args.json:
        write_text(
            args.json, json.dumps({"settings": title, "torch": torch.__version__, "rows": rows}, indent=2)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
