"""Train the built-in model, people-tiny. It can be stopped and continued at any time.

    python research/people_tiny.py MARKET1501_FOLDER VIT_TINY_WEIGHTS [--out runs/people-tiny]

Market-1501's training images but identities 601–700, rgb as it is, nir and tir simulated; ViT-Tiny with the
ImageNet weights of timm. First all tokens (configs/people/full.yaml), then token reduction in the backbone,
distilled from the first stage (slim.yaml), then images that are harder: grey batches, people behind things,
more compression (looks.yaml). This last stage is trained with two seeds, and once with erasing instead of
people behind things; the weights of the three are averaged (research/average.py), exported and put into the
package (research/ship.py), unless --no-ship is given.
With --held-out 300:700 the identities 301–600 are left out as well, which shows a larger gallery.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import average
import ship

from slimreid.cli.app import main as slimreid
from slimreid.cli.console import console, ending_in_one_line
from slimreid.errors import SlimReIDError
from slimreid.inference.model_card import MODEL_NAME
from slimreid.runs.folder import RunFolder

IDENTITIES = 751
ERASED = (
    "--transforms.erase 0.4 --transforms.degrade.occlusion 0 --transforms.degrade.compression 0.2 "
    "--train.epochs 6"
)
"""Options of the run with erasing instead of people behind things."""
LAST = {"looks": (0, ""), "looks-1": (1, ""), "looks-erased": (0, ERASED)}
"""Runs of the last stage: what is added to the seed, and options."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("market", type=Path, help="folder of Market-1501's training images")
    parser.add_argument("weights", type=Path, help="ImageNet weights of timm's vit_tiny_patch16_224")
    parser.add_argument("--out", type=Path, default=Path("runs/people-tiny"))
    parser.add_argument(
        "--held-out", default="600:700", metavar="A:B", help="sorted identities not trained on"
    )
    parser.add_argument("--no-ship", action="store_true", help="leave the model in the package as it is")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def trained_ranges(held_out: str) -> str:
    """The identities that are trained on: all but the range `held_out`."""
    first, _, last = held_out.partition(":")
    return f"0:{first},{last}:{IDENTITIES}"


def run(*words: object) -> None:
    """A command of slimreid; raises `SlimReIDError` where it fails, after its own message."""
    console.print(f"$ slimreid {' '.join(map(str, words))}", highlight=False, soft_wrap=True)
    if slimreid([str(word) for word in words]):
        raise SlimReIDError(f"'slimreid {words[0]}' failed; the same command goes on from here")


def run_script(main: Callable[[Sequence[str]], int], *words: object) -> None:
    """A script of this folder; raises `SlimReIDError` where it fails, after its own message."""
    if main([str(word) for word in words]):
        raise SlimReIDError("stopped; the same command goes on from here")


def make_data(options: argparse.Namespace) -> Path:
    """The manifest with simulated nir and tir, made if it is not there."""
    simulated: Path = options.out / "market1501_sim"
    if not (simulated / "manifest.csv").exists():
        rgb = options.out / "rgb.csv"
        ranges = (
            "--train-identities",
            trained_ranges(options.held_out),
            "--test-identities",
            options.held_out,
        )
        fixed = ("--layout", "market1501", "--val-identities", 0, "--overwrite", "--out", rgb)
        run("data", "import", options.market, *ranges, *fixed)
        run("data", "simulate", rgb, "--out", simulated)
    return simulated


def train(options: argparse.Namespace, name: str, data: Path, *words: object, seed: int = 0) -> Path:
    """A run, from where it stands, by the recipe that its name begins with; `seed` is added to that given."""
    out: Path = options.out / name
    if not RunFolder(out).result_file.exists():
        threads = () if options.threads is None else ("--train.threads", options.threads)
        common = ("--resume", "auto", "--data.manifest", data, "--data.cache", "ram")
        seeded = ("--seed", options.seed + seed)
        run("train", f"people/{name.partition('-')[0]}", "--out", out, *common, *seeded, *threads, *words)
    return out


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    data = make_data(options)
    full = train(options, "full", data, "--model.pretrained", options.weights)
    slim = train(options, "slim", data, "--train.init_from", full, "--train.teacher", full)
    looks = [
        train(options, name, data, "--train.init_from", slim, *more.split(), seed=seed)
        for name, (seed, more) in LAST.items()
    ]
    mean = options.out / "average"
    if not (mean / MODEL_NAME).exists():
        run_script(average.main, *looks, "--out", mean)
    if not options.no_ship:
        run_script(ship.main, mean)
    return 0


if __name__ == "__main__":
    sys.exit(main())
