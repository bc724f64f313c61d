"""What else could make token reduction in the backbone lose less: ideas that are not options, one by one.

    python benchmarks/levers.py RUN --choose-on VAL.csv --test TEST.csv
    python benchmarks/levers.py --train-patches SLIM_RUN --out runs/patches

RUN is a trained model that keeps all tokens; a copy is reduced as it is, without training, and every idea is
set against plain merging with the same schedule, on two sets of people:

- discard first, merge later (and the other way round): what becomes of dropped patches differs by stage;
- protect isolated patches: a bonus of WEIGHT · (1 − similarity to the nearest other patch) on the score;
- counts that follow the image: the last stage keeps the best patches of the whole batch, up to 1.5 times as
  many per image as the schedule says, and the same number in all.

With --train-patches the run SLIM_RUN is trained once more, and every token left also follows the mean of the
teacher's patches that it stands for (patch-level distillation).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import front
import front_points as points
from slimreid.backbones.tokens import TokenState
from slimreid.cli.console import console, ending_in_one_line, table
from slimreid.config.files import CONFIG_NAME, load_config
from slimreid.errors import ConfigError
from slimreid.evaluation.metrics.result import paired_bootstrap
from slimreid.inference.load import load
from slimreid.models.reid_model import ReIDModel
from slimreid.progress import progress
from slimreid.token_reduction import InBackboneReducer, in_backbone
from slimreid.token_reduction.merge import nearest_weights, patch_similarity, redundancy
from slimreid.token_reduction.modality_packing import Packing
from slimreid.token_reduction.score import Evidence
from slimreid.token_reduction.select import stable_top
from slimreid.token_reduction.tokens import keep_tokens, merge_tokens
from slimreid.training import learner
from slimreid.training.callbacks.display import make_display
from slimreid.training.distillation import Distillation, make_distillation
from slimreid.training.loop import train

MERGING = "merging"
BUFFER = 1.5
"""Most patches of an image whose count follows it, as a multiple of the fixed count."""
Choose = Callable[[Tensor, int], Tensor]


class Reducer(InBackboneReducer):
    """Token reduction in the backbone with one idea on top."""

    discarding: tuple[int, ...] = ()
    """Stages at which dropped patches are discarded instead of merged."""
    isolation = 0.0
    """Weight of the bonus on isolated patches."""
    following = False
    """Whether the counts of the last stage follow the image."""

    def forward(
        self,
        number: int,
        count: int,
        state: TokenState,
        packing: Packing,
        generator: torch.Generator | None = None,
        trace: bool = False,
    ) -> TokenState:
        """Reduce the tokens of R rows to `count` patches, or to as many on average."""
        guides = packing.guides(state.x[:, 0])
        score = self._score(number, state, Evidence(state.patches, guides), packing, generator).total
        similarity = patch_similarity(state.patches)
        score = score - self.options.redundancy * redundancy(similarity, score)
        if self.isolation:
            score = score + self.isolation * isolation(similarity)
        if number in self.discarding:
            index = stable_top(score, count)
            left = keep_tokens(state, index)
            if state.size is None or state.key_bias is None:
                return left
            size = state.size.gather(1, index)
            return replace(left, size=size, key_bias=F.pad(size.log(), (state.prefix, 0)))
        if self.following and number == len(self.stages) - 1:
            index, kept = best_of_batch(score, count)
            return merge_tokens(state, index, *nearest_of(similarity, index, kept, state.size))
        index = stable_top(score, count)
        return merge_tokens(state, index, *nearest_weights(similarity, index, state.size))


def isolation(similarity: Tensor) -> Tensor:
    """1 − the similarity of each patch to the nearest other one: (B, n, n) -> (B, n)."""
    itself = torch.eye(similarity.shape[-1], dtype=torch.bool, device=similarity.device)
    return 1 - similarity.masked_fill(itself, -math.inf).amax(-1)


def best_of_batch(score: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best B · count patches of a batch, at least one and at most 1.5 · count of each image.

    score (B, n) -> index (B, K), and which of those places are kept (B, K).
    """
    B, n = score.shape
    index = stable_top(score, min(n, math.ceil(BUFFER * count)))
    values = score.gather(1, index)
    first = torch.zeros_like(values, dtype=torch.bool)
    first[:, 0] = True
    best = values.masked_fill(first, math.inf).flatten().topk(min(B * count, values.numel())).indices
    return index, torch.zeros_like(first.flatten()).index_fill(0, best, True).view_as(first)


def nearest_of(similarity: Tensor, index: Tensor, kept: Tensor, size: Tensor | None) -> tuple[Tensor, Tensor]:
    """As `nearest_weights`, but places (B, K) that are not `kept` get nothing: weights 0 and size 0."""
    B, n, _ = similarity.shape
    columns = similarity.gather(2, index[:, None].expand(-1, n, -1)).masked_fill(~kept[:, None], -math.inf)
    nearest = columns.argmax(-1)
    places = torch.arange(index.shape[1], device=index.device).expand_as(index)
    own = torch.where(kept, places, nearest.gather(1, index))
    nearest = nearest.scatter(1, index, own)
    size = similarity.new_ones(B, n) if size is None else size
    weights = similarity.new_zeros(B, index.shape[1], n).scatter(1, nearest[:, None], size[:, None])
    sizes = weights.sum(-1)
    return weights / sizes.clamp_min(1)[..., None], sizes


IDEAS: dict[str, dict[str, Any]] = {
    MERGING: {},
    "discard first, merge later": {"discarding": (0,)},
    "merge first, discard later": {"discarding": (1,)},
    "discard everywhere": {"discarding": (0, 1)},
    **{f"protect isolated patches, {w:g}": {"isolation": w} for w in (0.25, 0.5, 1.0)},
    "counts that follow the image": {"following": True},
}


def way_of(idea: str, schedule: Sequence[Sequence[float]], options: Sequence[str]) -> points.Way:
    """An idea as a way of reducing the tokens of a trained model."""
    plain = points.stage_way(points.OURS, schedule, options)

    def install(model: ReIDModel) -> ReIDModel:
        plain.install(model)
        assert model.in_backbone is not None
        reducer = Reducer(model.backbone, model.modalities, model.in_backbone.options).eval()
        for name, value in IDEAS[idea].items():
            setattr(reducer, name, value)
        model.in_backbone = reducer
        return model

    return points.Way(idea, plain.strength, install)


def training_free(args: argparse.Namespace) -> front.Front:
    """Measure every idea on both sets of people."""
    loaded = load(args.run)
    if points.method_of(loaded) != points.UNSLIMMED:
        raise ConfigError(f"{args.run}: reduces tokens already; give a model that keeps all")
    settings = {
        "model": loaded.fingerprint,
        "data": [args.choose_on.name, args.test.name],
        "schedule": args.schedule,
        "ours": list(args.ours),
    }
    found = front.Front(args.json or loaded.path.parent / "levers.json", settings)
    for side, manifest in (("chosen on", args.choose_on), ("test", args.test)):
        plain = None
        for idea in progress(list(IDEAS), f"ideas, {side}"):
            if found.has(idea=idea, side=side):
                continue
            measure = partial(points.retrieve, manifest=manifest)
            result = measure(points.slimmed_by(loaded, way_of(idea, args.schedule, args.ours)))
            if idea == MERGING:
                plain = result
            elif plain is None:
                plain = measure(points.slimmed_by(loaded, way_of(MERGING, args.schedule, args.ours)))
            difference = paired_bootstrap(plain, result).to_dict()
            found.add({"idea": idea, "side": side, "map": result.map, "difference": difference})
        if not found.has(idea=points.UNSLIMMED, side=side):
            found.add({"idea": points.UNSLIMMED, "side": side, "map": points.retrieve(loaded, manifest).map})
    return found


def show(found: front.Front) -> None:
    """A row per idea, with its difference to plain merging on both sides."""
    rows = []
    for idea in (points.UNSLIMMED, *IDEAS):
        row = [idea]
        for side in ("chosen on", "test"):
            point = next(p for p in found.points if p["idea"] == idea and p["side"] == side)
            d = point.get("difference")
            row.append(f"{100 * point['map']:.1f}")
            row.append(
                f"{100 * d['value']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f})" if d else ""
            )
        rows.append(tuple(row))
    columns = ["idea", "mAP, chosen on", "Δ to merging", "mAP, test", "Δ to merging"]
    console.print(table(columns, rows, "without training"))
    console.print(f"written: {found.path}", soft_wrap=True)


class PatchDistillation:
    """A distillation whose tokens follow the teacher's patches too."""

    def __init__(self, plain: Distillation, merges: list[Tensor]) -> None:
        self.plain, self.merges = plain, merges
        self.seen: dict[str, Tensor] = {}
        for name in ("student", "teacher"):
            getattr(plain, name).backbone.register_forward_hook(partial(self._see, name))

    def _see(self, name: str, module: Any, inputs: Any, output: Any) -> None:
        self.seen[name] = output.patches

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def __call__(self, *arguments: Any) -> Tensor:
        """The distance of the features and of the tokens."""
        weights = self.merges[0]
        for later in self.merges[1:]:
            weights = later @ weights
        distance = self.plain(*arguments)
        target = weights.to(self.seen["teacher"].dtype) @ self.seen["teacher"]
        cosine = F.cosine_similarity(self.seen["student"].float(), target.float(), dim=-1)
        return distance + (1 - cosine).mean()


@contextmanager
def patch_distillation() -> Iterator[None]:
    """Within the block the trainer's models follow their teacher's patches."""
    merges: list[Tensor] = []

    def weigh(similarity: Tensor, index: Tensor, size: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if size is None:  # the first stage of a forward pass
            merges.clear()
        weights, sizes = nearest_weights(similarity, index, size)
        merges.append(weights.detach())
        return weights, sizes

    def make(*arguments: Any) -> Any:
        plain = make_distillation(*arguments)
        assert plain is not None
        return PatchDistillation(plain, merges)

    learner.make_distillation = make
    in_backbone.nearest_weights = weigh  # type: ignore[attr-defined]
    try:
        yield
    finally:
        learner.make_distillation = make_distillation
        in_backbone.nearest_weights = nearest_weights  # type: ignore[attr-defined]


def train_patches(args: argparse.Namespace) -> None:
    """Train a slim run once more with its patches distilled too."""
    run = args.train_patches
    if args.out is None or not (run / CONFIG_NAME).is_file():
        raise ConfigError(f"--train-patches needs --out, and a run with its {CONFIG_NAME}, not {run}")
    config = load_config([run / CONFIG_NAME])
    with patch_distillation():
        result = train(config, args.out, "auto", [make_display(console)])
    test = result["test"]
    console.print(f"test mAP {100 * test['map']:.1f}" if test else "no test set")


@ending_in_one_line
def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?", help="trained run or model file that keeps all tokens")
    parser.add_argument("--choose-on", type=Path, help="manifest of the people to choose on")
    parser.add_argument("--test", type=Path, help="manifest of the people to measure on")
    parser.add_argument("--schedule", type=front.schedule, default=[[0.25, 0.6], [0.583, 0.3]])
    parser.add_argument(
        "--ours", nargs="+", default=[], metavar="KEY=VALUE", help="options of model.in_backbone"
    )
    parser.add_argument("--json", type=Path, help="file of results; default: RUN/levers.json")
    parser.add_argument("--train-patches", type=Path, metavar="RUN", help="slim run to train once more")
    parser.add_argument("--out", type=Path, help="run folder of --train-patches")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    if args.train_patches:
        train_patches(args)
    elif args.run and args.choose_on and args.test:
        show(training_free(args))
    else:
        raise ConfigError("give RUN with --choose-on and --test, or --train-patches")
    return 0


if __name__ == "__main__":
    sys.exit(main())
