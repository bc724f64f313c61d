"""`slimreid profile` and `model ...`: which backbones there are, what models compute and take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from slimreid.cli.console import MB, console, say, table
from slimreid.cli.options.measuring import ListOptions, ProfileOptions, SummaryOptions
from slimreid.config import Config
from slimreid.config.backbones import SIZES
from slimreid.config.files import load_config
from slimreid.config.recipes import is_config
from slimreid.devices import choose_device, torch_threads
from slimreid.errors import ConfigError
from slimreid.files import check_writable, refuse_existing, write_text
from slimreid.inference.exported_model import load_exported
from slimreid.inference.load import load_trained, resolve_model
from slimreid.inference.model_card import is_exported
from slimreid.modalities import DEFAULT_MODALITIES
from slimreid.models.reid_model import ReIDModel, build_model
from slimreid.profiling.cost import ModelSummary, summarise
from slimreid.profiling.profile import Profile, profile_exported, profile_model
from slimreid.progress import progress


def profile(options: ProfileOptions) -> None:
    """Measure parameters, GFLOPs, tokens per block, latency, throughput and memory of a model."""
    if options.out is not None:
        refuse_existing(options.out, options.overwrite)
        check_writable(options.out)
    untrained = is_config(options.model)
    found = options.model if untrained else resolve_model(options.model)
    if options.set and not untrained:
        raise ConfigError(f"--set changes a config, but {options.model} is a trained model; leave it out")
    sizes = list(dict.fromkeys(options.batch_sizes))
    how = (sizes, options.repeats, lambda rounds: progress(rounds, "measuring"))
    if is_exported(found):
        result = profile_exported(load_exported(found, options.device, options.threads), *how)
    else:
        config = load_config([options.model], options.set) if untrained else None
        model = _random_model(config, options) if config else load_trained(options.model).model
        with torch_threads(options.threads):
            result = profile_model(model.to(choose_device(options.device)), *how)
    _print(result, options.model)
    if options.out is not None:
        written = {"source": options.model.name, **result.to_dict()}
        write_text(options.out, json.dumps(written, indent=2) + "\n")
        say(f"written to {options.out}")


def _random_model(config: Config, options: ProfileOptions | SummaryOptions) -> ReIDModel:
    """The model of a config, with random weights."""
    names, size = config.data.modalities or DEFAULT_MODALITIES, config.transforms.size
    return build_model(config.model, size, names, options.classes, options.cameras, load_weights=False)


def _print_parts(summary: ModelSummary, what: str, size: tuple[int, int], modalities: Sequence[str]) -> None:
    rows = [(part.name, part.parameters, f"{part.gflops:.3f}") for part in summary.parts]
    rows.append(("all", summary.parameters, f"{summary.gflops:.3f}"))
    title = f"{what}, {size[0]}×{size[1]}, {'+'.join(modalities)}"
    console.print(table(["part", "parameters", "GFLOPs"], rows, title))


def _print(result: Profile, source: Path) -> None:
    _print_parts(result.summary, source.name, result.image_size, result.modalities)
    console.print(table(["where", "tokens per modality"], _token_rows(result)))
    is_torch = result.engine == "torch"
    runs = result.device if is_torch else f"{result.engine} {result.precision}"
    rows = []
    for row in result.batches:
        figures = (1e3 * row.p50, 1e3 * row.p95, row.samples_per_second, row.images_per_second)
        peak = "–" if row.peak_bytes is None else f"{row.peak_bytes / MB:,.1f}"
        rows.append((row.batch, *(f"{figure:,.1f}" for figure in figures), peak))
    columns = ["batch", "p50 ms", "p95 ms", "samples/s", "images/s", "peak MB"]
    title = f"forward pass, {runs}, {result.threads} thread(s), {result.repeats} repetitions"
    console.print(table(columns, rows, title))
    what = "what tensors take at most besides weights and inputs" if is_torch else "not measured here"
    say(
        f"Weights take {result.weight_bytes / MB:,.1f} MB; peak MB is {what}. "
        "GFLOPs are multiply-adds of one sample with all modalities."
    )


def _token_rows(result: Profile) -> list[tuple[str, int]]:
    """Blocks that get the same number of tokens in one row."""
    rows: list[tuple[str, int]] = []
    last = 0
    for tokens, blocks in groupby(result.summary.block_tokens):
        first, last = last + 1, last + len(list(blocks))
        rows.append((f"into block {first}" if first == last else f"into blocks {first} to {last}", tokens))
    return rows + [(f"after the backbone: {name}", count) for name, count in result.summary.tokens[1:]]


def summary(options: SummaryOptions) -> None:
    """Show parameters, GFLOPs, tokens after each stage and the size of the features."""
    config = options.config
    model = _random_model(config, options)
    result = summarise(model)
    if options.json:
        print(json.dumps(result.to_dict(), indent=2))
        return
    what = f"{config.model.backbone}, reduction {config.model.reduction}, fusion {config.model.fusion}"
    _print_parts(result, what, config.transforms.size, model.modalities)
    console.print(table(["stage", "tokens per modality"], result.tokens))
    console.print(table(["feature", "size"], result.features.items()))
    say("GFLOPs are multiply-adds of one sample with all modalities; heads work in training only.")


def list_(options: ListOptions) -> None:
    """List the named backbones."""
    if options.json:
        print(json.dumps({name: asdict(size) for name, size in SIZES.items()}, indent=2))
        return
    rows = [
        (name, s.patch_size, s.depth, s.width, s.heads, s.out_width, s.positions) for name, s in SIZES.items()
    ]
    console.print(table(["backbone", "patch", "blocks", "width", "heads", "output", "positions"], rows))
