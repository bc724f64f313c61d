"""Average the weights of models that were trained on from the same weights, into one model file.

    python research/average.py RUN [RUN ...] --shares 0.5 0.5 --out runs/people-tiny/average

An average often holds up better on images from elsewhere than either model alone. How alike different
training identities are is counted again on training images of the last one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from slimreid.cli.console import ending_in_one_line, say
from slimreid.data.loader import eval_loader
from slimreid.data.manifest import read_manifest
from slimreid.errors import ModelError
from slimreid.inference.load import load_trained
from slimreid.inference.model_card import MODEL_NAME
from slimreid.inference.trained_model import load_state, write_model
from slimreid.training.outputs import choose_samples, training_statistics


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path, help="finished runs or model files")
    parser.add_argument("--shares", nargs="+", type=float, help="what each counts; default: all the same")
    parser.add_argument("--data", type=Path, help="manifest; default: that of the last run")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model file")
    options = parser.parse_args(arguments)
    if options.shares is not None and len(options.shares) != len(options.models):
        parser.error("give as many --shares as models")
    return options


def average(states: Sequence[Mapping[str, Tensor]], shares: Sequence[float]) -> dict[str, Tensor]:
    """The mean of tensors by name, weighted by shares over their sum; whole numbers are those of the last.

    Raises `ModelError` where names or shapes differ.
    """
    shapes = [{name: value.shape for name, value in state.items()} for state in states]
    for each in shapes[:-1]:
        differ = sorted(name for name, _ in each.items() ^ shapes[-1].items())
        if differ:
            raise ModelError(f"only models of one kind have an average; these differ in '{differ[0]}'")
    parts = [share / sum(shares) for share in shares]

    def mean(name: str, last: Tensor) -> Tensor:
        if not last.is_floating_point():
            return last
        return torch.stack([state[name] * part for state, part in zip(states, parts, strict=True)]).sum(0)

    return {name: mean(name, last) for name, last in states[-1].items()}


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    loaded = [load_trained(path) for path in options.models]
    last = loaded[-1]
    state = average([each.model.state_dict() for each in loaded], options.shares or [1.0] * len(loaded))
    load_state(last.model, state, options.out)
    data = replace(last.config.data, workers=0, cache="none")
    config = replace(last.config, data=data)
    manifest = read_manifest(options.data or data.manifest, data.modalities)
    samples = manifest.with_samples(choose_samples(manifest.select("train"), manifest.modalities))
    statistics = training_statistics(
        last.model, eval_loader(config, ("train",), samples), last.device, "fp32"
    )
    options.out.mkdir(parents=True, exist_ok=True)
    write_model(options.out / MODEL_NAME, state, last.card, statistics)
    say(f"written: {options.out / MODEL_NAME}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
