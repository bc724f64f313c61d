"""Time from the start of a process to its first embedding: a trained model by torch, the same one exported.

Each round starts one process of either kind, in turn; it loads the model and embeds one sample in two
modalities. The weights are random: they decide nothing here. Reported is the median of the ratios.

    python benchmarks/startup.py [--config synthetic/sdtps] [--rounds 7] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

import slimreid
from slimreid.cli.console import console, table
from slimreid.config.files import load_config
from slimreid.inference.model_card import MODEL_NAME, ModelCard
from slimreid.inference.trained_model import build_from_card, write_model
from slimreid.modalities import DEFAULT_MODALITIES
from slimreid.profiling.latency import measure_interleaved, median_ratios, medians
from slimreid.progress import progress

TORCH, EXPORTED = "torch", "exported"
CHILD = """
import sys, slimreid
slimreid.load(sys.argv[1]).embed({"rgb": sys.argv[2], "tir": sys.argv[2]})
"""


def make_models(config: str, folder: Path) -> dict[str, Path]:
    """A model with random weights as training would write it, and exported."""
    options = load_config([config])
    options = replace(options, data=replace(options.data, manifest=""))  # checked on noise
    card = ModelCard(options, DEFAULT_MODALITIES, ("a", "b"), ("1",), epoch=0, select_on="last")
    write_model(folder / "run" / MODEL_NAME, build_from_card(card).state_dict(), card)
    slimreid.export(folder / "run", folder / "exported")
    return {TORCH: folder / "run", EXPORTED: folder / "exported"}


def first_embedding(model: Path, image: Path) -> None:
    subprocess.run([sys.executable, "-c", CHILD, str(model), str(image)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="synthetic/sdtps")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        models = make_models(args.config, Path(name))
        image = Path(name) / "image.png"
        pixels = np.random.default_rng(0).integers(0, 256, (128, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(image)
        cases = {kind: partial(first_embedding, model, image) for kind, model in models.items()}
        seconds = measure_interleaved(
            cases, args.rounds, rounds=lambda rounds: progress(rounds, "starting processes")
        )
    middle, ratios = medians(seconds), median_ratios(seconds, TORCH)
    shares = {kind: 1 / ratio for kind, ratio in ratios.items()}
    if args.json:
        print(json.dumps({"config": args.config, "seconds": middle, "share": shares}, indent=2))
        return
    rows = [(kind, f"{middle[kind]:.2f}", f"{shares[kind]:.2f}×") for kind in cases]
    console.print(table(["model", "seconds", "share"], rows, f"start to first embedding, {args.config}"))


if __name__ == "__main__":
    main()
