"""Train the model that ships, people-tiny; stop and go on at any time: what is done is not done again.

    python research/people_tiny.py MARKET1501_FOLDER VIT_TINY_WEIGHTS [--out runs/people-tiny]

Market-1501's training images but identities 601–700, rgb as it is, nir and tir simulated; ViT-Tiny with the
ImageNet weights of timm. First small images (configs/people/small.yaml), then images of full size
(full.yaml), then token reduction in the backbone, distilled from the second stage (slim.yaml), then figures
for every subset of the modalities; the last stage is exported and put into the package (research/ship.py),
unless --no-ship is given.
With --held-out 300:700 the identities 301–600 are left out as well, which shows a larger gallery.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import ship

from slimreid.cli.app import main as slimreid
from slimreid.cli.console import console, ending_in_one_line
from slimreid.errors import SlimReIDError
from slimreid.runs.folder import RunFolder

IDENTITIES = 751


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


def make_data(options: argparse.Namespace) -> Path:
    """The manifest with simulated nir and tir, made if it is not there."""
    simulated: Path = options.out / "data"
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


def train(options: argparse.Namespace, stage: str, data: Path, *words: object) -> Path:
    """A stage of the training, from where it stands; returns its run."""
    out: Path = options.out / stage
    if not RunFolder(out).result_file.exists():
        threads = () if options.threads is None else ("--train.threads", options.threads)
        common = ("--resume", "auto", "--data.manifest", data, "--data.cache", "ram", "--seed", options.seed)
        run("train", f"people/{stage}", "--out", out, *common, *threads, *words)
    return out


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    data = make_data(options)
    small = train(options, "small", data, "--model.pretrained", options.weights)
    full = train(options, "full", data, "--train.init_from", small)
    slim = train(options, "slim", data, "--train.init_from", full, "--train.teacher", full)
    for stage in (full, slim):
        run("evaluate", stage, "--missing", "all")
    return 0 if options.no_ship else ship.main([str(slim)])


if __name__ == "__main__":
    sys.exit(main())
