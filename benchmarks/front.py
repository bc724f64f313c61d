"""The front: how well slimmed models retrieve against how fast they are, for ours and three baselines.

    python benchmarks/front.py runs/unslimmed                     # training-free, every method and strength
    python benchmarks/front.py runs/unslimmed --methods ours "token merging" --schedules "[[0.5, 0.5]]"
    python benchmarks/front.py --trained runs/slim-seed? --unslimmed runs/base-seed?
    python benchmarks/front.py --train-tome runs/base-seed0 --r 8 --epochs 5 --out runs/tome-seed0
    python benchmarks/front.py --plot front.png runs/unslimmed/front.json trained.json

Training-free, a copy of the trained model is slimmed as it is:

- ours: patches that are like a patch that matters more join it; what matters is said by class attention and
  contrast, in the other modalities too (`--ours redundancy=0` sets options of model.in_backbone);
- random dropping: the same stages, patches chosen at random;
- class attention: the same stages, patches kept by the class token's attention, leftovers fused (EViT);
- token merging: r tokens per block joined by bipartite matching, attention weighted by size (ToMe).

mAP is that of all features of the run on its test set. Speed is forward passes of noise, the unslimmed model
and the slimmed one taking turns; ratios are medians. The file is written after every point, and a second
start goes on where the first one ended. Trained runs that differ by their seed alone are one point, and each
is set against the unslimmed run of its seed.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import front_points as points
import tome
from front_plot import front_plot
from slimreid.cli.console import console, ending_in_one_line, table
from slimreid.config.files import CONFIG_NAME, load_config
from slimreid.errors import ConfigError, DataError
from slimreid.files import write_text
from slimreid.inference.features.data import open_data
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.progress import progress
from slimreid.runs.identity import deciding_options
from slimreid.training import learner
from slimreid.training.callbacks.display import make_display
from slimreid.training.loop import train
from slimreid.visual.style import save_picture

SCHEDULES = (
    [[0.5, 0.5], [0.75, 0.25]],
    [[0.25, 0.75], [0.5, 0.5]],
    [[0.25, 0.6], [0.5, 0.3]],
    [[0.25, 0.5], [0.5, 0.2]],
)
"""From gentle to the strongest, which keeps half before the 4th of 12 blocks and a fifth before the 7th."""
MERGED = (0.4, 0.6, 0.8, 0.95)
"""Shares of the patches that token merging has merged in the end."""


class Front:
    """The points measured so far, in a file that is written after each."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self.settings = path, dict(settings)
        self.points: list[dict[str, Any]] = []
        if path.is_file():
            before = read_front(path)
            changed = [
                k for k in {*settings, *before["settings"]} if before["settings"].get(k) != settings.get(k)
            ]
            if changed:
                raise ConfigError(
                    f"{path}: was measured with other {', '.join(sorted(changed))}; give another --json, or "
                    "remove it"
                )
            self.points = before["points"]

    def has(self, **wanted: Any) -> bool:
        """Whether a point with these values is there."""
        return any(all(p.get(key) == value for key, value in wanted.items()) for p in self.points)

    def add(self, found: dict[str, Any]) -> None:
        """Keep a point, on disk too."""
        self.points.append(found)
        content = {"settings": self.settings, "points": self.points}
        write_text(self.path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_front(path: Path) -> dict[str, Any]:
    """What a file of points holds; raises `DataError` naming it when it is none."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not {"settings", "points"} <= content.keys():
            raise ValueError("no settings and points")
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: not a file of this benchmark ({error})") from None
    return content


def ways(loaded: LoadedModel, args: argparse.Namespace) -> list[points.Way]:
    """Every method at every strength, as the arguments say."""
    found = []
    for method in args.methods:
        if method == points.TOME:
            counts = args.r or points.tome_counts(loaded.model, MERGED)
            found += [points.tome_way(r, metric) for metric in args.metric for r in counts]
        else:
            options = args.ours if method == points.OURS else ()
            found += [points.stage_way(method, s, options) for s in args.schedules]
    return found


def training_free(args: argparse.Namespace) -> Front:
    """Slim one trained model in all ways."""
    loaded = load(args.run)
    if points.method_of(loaded) != points.UNSLIMMED:
        raise ConfigError(
            f"{args.run}: its tokens are reduced in the backbone already; give another run, or use --trained"
        )
    settings = {
        "data": open_data(loaded, args.manifest).name,
        "models": {loaded.path.parent.name: loaded.fingerprint},
        "ours": list(args.ours),
        **points.environment(args.batch, args.repeats),
    }
    front = Front(args.json or loaded.path.parent / "front.json", settings)
    todo = [w for w in ways(loaded, args) if not front.has(method=w.method, strength=w.strength)]
    reference = points.retrieve(loaded, args.manifest) if todo else None
    for way in progress(todo, f"front of {args.run}"):
        slimmed = points.slimmed_by(loaded, way)
        speed = points.measure_speed(loaded.model, slimmed.model, args.batch, args.repeats)
        found = points.Measured(points.retrieve(slimmed, args.manifest), reference, speed)
        front.add(points.point(points.FREE, way.method, way.strength, [found], seeds=[loaded.config.seed]))
    return front


def grouped(models: Sequence[LoadedModel]) -> dict[str, list[LoadedModel]]:
    """Runs that differ by their seed alone, under the name of their folders without it."""
    groups: dict[str, list[LoadedModel]] = {}
    for loaded in models:
        beside = loaded.path.parent / points.TOME_NAME
        merging = beside.read_text(encoding="utf-8") if beside.is_file() else ""
        key = json.dumps([deciding_options(loaded.config), merging], sort_keys=True)
        groups.setdefault(key, []).append(loaded)
    named: dict[str, list[LoadedModel]] = {}
    for group in groups.values():
        name = re.sub(r"[-_.]?(seed|s)?\d+$", "", group[0].path.parent.name) or group[0].path.parent.name
        named[name if name not in named else group[0].path.parent.name] = group
    return named


def trained(args: argparse.Namespace) -> Front:
    """Measure trained slimmed runs, seeds of one as one point."""
    if not args.unslimmed:
        raise ConfigError("--trained needs --unslimmed: the runs to compare with, best one per seed")
    references = {loaded.config.seed: loaded for loaded in map(load, args.unslimmed)}
    first = next(iter(references.values()))
    settings = {
        "data": open_data(first, args.manifest).name,
        "models": {m.path.parent.name: m.fingerprint for m in references.values()},
        **points.environment(args.batch, args.repeats),
    }
    front = Front(args.json or Path("front-trained.json"), settings)
    groups = grouped([points.load_trained(path) for path in args.trained])
    todo = {
        name: group
        for name, group in groups.items()
        if not front.has(strength=name, fingerprints=[m.fingerprint for m in group])
    }
    searched = {seed: points.retrieve(loaded, args.manifest) for seed, loaded in references.items() if todo}
    for name, group in progress(list(todo.items()), "trained runs"):
        found = []
        for loaded in group:
            seed = loaded.config.seed if loaded.config.seed in references else first.config.seed
            speed = points.measure_speed(references[seed].model, loaded.model, args.batch, args.repeats)
            found.append(points.Measured(points.retrieve(loaded, args.manifest), searched[seed], speed))
        more = {
            "seeds": [m.config.seed for m in group],
            "fingerprints": [m.fingerprint for m in group],
            "schedule": [list(pair) for pair in group[0].config.model.in_backbone.schedule],
        }
        front.add(points.point(points.TRAINED, points.method_of(group[0]), name, found, **more))
    return front


@contextmanager
def merging_models(r: int, metric: tome.Metric) -> Iterator[None]:
    """Within the block the trainer's models merge tokens."""
    build = learner.build_model

    def build_merging(*arguments: Any, **options: Any) -> Any:
        return tome.install(build(*arguments, **options), r, metric)

    learner.build_model = build_merging  # type: ignore[assignment]
    try:
        yield
    finally:
        learner.build_model = build


def train_tome(args: argparse.Namespace) -> None:
    """Train token merging from a trained model, with that model as teacher; the ordinary trainer does it."""
    run = args.train_tome
    if args.out is None or not args.epochs or len(args.r) != 1 or len(args.metric) != 1:
        raise ConfigError("--train-tome needs --out, --epochs, one --r and one --metric")
    if not (run / CONFIG_NAME).is_file():
        raise ConfigError(f"{run}: give the folder of a finished run, with its {CONFIG_NAME}")
    before = load_config([run / CONFIG_NAME])
    changes = [
        f"train.init_from={run.as_posix()}",
        f"train.teacher={run.as_posix()}",
        f"train.epochs={args.epochs}",
        f"optim.warmup_epochs={min(before.optim.warmup_epochs, max(0, args.epochs // 5))}",
        f"loss.distill_weight={args.distill_weight}",
        f"loss.distill={args.distill}",
        "train.compile=false",
        "model.grad_checkpointing=false",
        *([f"data.manifest={args.manifest}"] if args.manifest else []),
        *args.set,
    ]
    config = load_config([run / CONFIG_NAME], changes)
    options = {"r": args.r[0], "metric": args.metric[0]}
    beside = args.out / points.TOME_NAME
    if beside.is_file() and json.loads(beside.read_text(encoding="utf-8")) != options:
        raise ConfigError(f"{args.out}: was begun with other --r or --metric; choose another --out")
    args.out.mkdir(parents=True, exist_ok=True)
    write_text(beside, json.dumps(options) + "\n")
    with merging_models(**options):
        result = train(config, args.out, "auto", [make_display(console)])
    test = result["test"]
    console.print(f"test mAP {100 * test['map']:.1f}" if test else "no test set")


def show(front: Front) -> None:
    """All points as a table."""
    rows = []
    for p in sorted(front.points, key=lambda p: (p["kind"], p["method"], p["ratio"])):
        d = p["difference"]
        interval = f"{100 * d['low']:+.1f} … {100 * d['high']:+.1f}" if d else "–"
        rows.append(
            (
                p["method"],
                p["strength"],
                f"{100 * p['map']:.1f}",
                f"{100 * (p['map'] - p['unslimmed_map']):+.1f}",
                interval,
                f"{p['ratio']:.2f}×",
                f"{p['gflops']:.2f}",
            )
        )
    title = (
        f"{front.settings['data']}, batch {front.settings['batch']}, {front.settings['threads']} thread(s)"
    )
    columns = ["method", "strength", "mAP", "Δ", "95 % interval of Δ", "speed", "GFLOPs"]
    console.print(table(columns, rows, title))
    console.print(f"points: {front.path}", soft_wrap=True)


def schedule(text: str) -> list[list[float]]:
    """A schedule from JSON such as [[0.25, 0.5], [0.5, 0.2]]."""
    try:
        return [[float(position), float(share)] for position, share in json.loads(text)]
    except (ValueError, TypeError):
        raise argparse.ArgumentTypeError(f"'{text}' is not like [[0.25, 0.5], [0.5, 0.2]]") from None


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?", help="trained unslimmed run to slim without training")
    parser.add_argument("--trained", type=Path, nargs="+", default=[], help="trained slimmed runs to measure")
    parser.add_argument("--unslimmed", type=Path, nargs="+", default=[], help="what --trained is set against")
    parser.add_argument("--train-tome", type=Path, help="run to train token merging from")
    parser.add_argument("--plot", type=Path, nargs="+", help="picture to write, then files of points")
    parser.add_argument("--manifest", type=Path, help="data to test on; default: that of the run")
    parser.add_argument("--json", type=Path, help="where points are kept; default: RUN/front.json")
    parser.add_argument("--methods", nargs="+", choices=points.METHODS, default=list(points.METHODS))
    parser.add_argument("--schedules", type=schedule, nargs="+", default=list(SCHEDULES))
    parser.add_argument(
        "--ours", nargs="+", default=[], metavar="KEY=VALUE", help="options of model.in_backbone"
    )
    parser.add_argument("--r", type=int, nargs="+", default=[], help="tokens that merging joins per block")
    parser.add_argument("--metric", nargs="+", choices=["keys", "tokens"], default=["keys"])
    parser.add_argument("--batch", type=int, default=32, help="samples per forward pass")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="of --train-tome")
    parser.add_argument("--out", type=Path, help="run folder of --train-tome")
    parser.add_argument("--distill-weight", type=float, default=1.0, help="of --train-tome")
    parser.add_argument("--distill", choices=["feature", "relation"], default="feature")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="options of --train-tome")
    return parser


def run(args: argparse.Namespace) -> None:
    """Do what the arguments ask."""
    if args.plot:
        picture, *files = args.plot
        save_picture(front_plot([read_front(path) for path in files]), picture)
        console.print(f"picture: {picture}", soft_wrap=True)
    elif args.train_tome:
        train_tome(args)
    elif args.trained:
        show(trained(args))
    else:
        show(training_free(args))


@ending_in_one_line
def main(arguments: list[str] | None = None) -> int:
    parser = make_parser()
    args = parser.parse_args(arguments)
    if not (args.run or args.trained or args.train_tome or args.plot):
        parser.print_help()
        return 0
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    torch.set_num_threads(args.threads)
    run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
