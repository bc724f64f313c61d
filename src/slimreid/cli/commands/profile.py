"""`slimreid profile` and `model ...`: which backbones there are, what models compute and take."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import torch

from slimreid.cli.console import console, say, table
from slimreid.cli.options.measuring import ListOptions, ProfileOptions, SummaryOptions
from slimreid.config.backbones import SIZES
from slimreid.config.files import load_config
from slimreid.config.recipes import is_config
from slimreid.devices import choose_device
from slimreid.errors import ConfigError
from slimreid.files import check_writable, refuse_existing, write_text
from slimreid.inference.exported_model import load_exported
from slimreid.inference.load import load_trained, resolve_model
from slimreid.inference.model_card import is_exported
from slimreid.modalities import DEFAULT_MODALITIES
from slimreid.models.reid_model import ReIDModel, build_model
from slimreid.profiling.cost import summarise
from slimreid.profiling.profile import Profile, profile_exported, profile_model
from slimreid.progress import progress

MB = 2**20


def profile(options: ProfileOptions) -> None:
    """Measure parameters, GFLOPs, tokens per block, latency, throughput and memory of a model."""
    if options.json is not None:
        refuse_existing(options.json, options.overwrite)
        check_writable(options.json)
    found = options.model if is_config(options.model) else resolve_model(options.model)
    result = _measure_exported(options, found) if is_exported(found) else _measure(options)
    _print(result, options.model)
    if options.json is not None:
        written = {"source": options.model.name, **result.to_dict()}
        write_text(options.json, json.dumps(written, indent=2) + "\n")
        say(f"written to {options.json}")


def _measure(options: ProfileOptions) -> Profile:
    """What torch takes for a model."""
    model = _open(options).to(choose_device(options.device))
    before = torch.get_num_threads()
    try:
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        return profile_model(model, _sizes(options), options.repeats, _rounds)
    finally:
        torch.set_num_threads(before)


def _measure_exported(options: ProfileOptions, model: Path) -> Profile:
    """What onnxruntime takes for an exported model."""
    _refuse_set(options)
    loaded = load_exported(model, options.device, options.threads)
    return profile_exported(loaded, _sizes(options), options.repeats, _rounds)


def _sizes(options: ProfileOptions) -> list[int]:
    return list(dict.fromkeys(options.batch))


def _rounds(rounds: range) -> Iterable[int]:
    return progress(rounds, "measuring")


def _refuse_set(options: ProfileOptions) -> None:
    if options.set:
        raise ConfigError(f"--set changes a config, but {options.model} is a trained model; leave it out")


def _open(options: ProfileOptions) -> ReIDModel:
    """The model of a config (with random weights) or of a run."""
    if not is_config(options.model):
        _refuse_set(options)
        return load_trained(options.model).model
    config = load_config([options.model], options.set)
    names = config.data.modalities or DEFAULT_MODALITIES
    size = config.transforms.size
    return build_model(config.model, size, names, options.classes, options.cameras, load_weights=False)


def _print(result: Profile, source: Path) -> None:
    height, width = result.image_size
    summary = result.summary
    parts = [(part.name, part.parameters, f"{part.gflops:.3f}") for part in summary.parts]
    parts.append(("all", summary.parameters, f"{summary.gflops:.3f}"))
    console.print(
        table(
            ["part", "parameters", "GFLOPs"],
            parts,
            f"{source.name}, {height}×{width}, {'+'.join(result.modalities)}",
        )
    )
    console.print(table(["where", "tokens per modality"], _token_rows(result)))
    is_torch = result.engine == "torch"
    runs = result.device if is_torch else f"{result.engine} {result.precision}"
    rows = [
        (
            row.batch,
            f"{1e3 * row.p50:,.1f}",
            f"{1e3 * row.p95:,.1f}",
            f"{row.samples_per_second:,.1f}",
            f"{row.images_per_second:,.1f}",
            "–" if row.peak_bytes is None else f"{row.peak_bytes / MB:,.1f}",
        )
        for row in result.batches
    ]
    console.print(
        table(
            ["batch", "p50 ms", "p95 ms", "samples/s", "images/s", "peak MB"],
            rows,
            f"forward pass, {runs}, {result.threads} thread(s), {result.repeats} repetitions",
        )
    )
    peak = "what tensors take at most besides weights and inputs" if is_torch else "not measured here"
    say(
        f"Weights take {result.weight_bytes / MB:,.1f} MB; peak MB is {peak}. "
        "GFLOPs are multiply-adds of one sample with all modalities."
    )


def _token_rows(result: Profile) -> list[tuple[str, int]]:
    """Blocks that get the same number of tokens in one row."""
    rows: list[tuple[str, int]] = []
    first = 0
    blocks = result.summary.block_tokens
    for i, tokens in enumerate(blocks):
        if i + 1 == len(blocks) or blocks[i + 1] != tokens:
            name = f"into block {first + 1}" if first == i else f"into blocks {first + 1} to {i + 1}"
            rows.append((name, tokens))
            first = i + 1
    return rows + [(f"after the backbone: {name}", count) for name, count in result.summary.tokens[1:]]


def summary(options: SummaryOptions) -> None:
    """Show parameters, GFLOPs, tokens after each stage and the size of the features."""
    config = options.config
    names = config.data.modalities or DEFAULT_MODALITIES
    size = config.transforms.size
    model = build_model(config.model, size, names, options.classes, options.cameras, load_weights=False)
    result = summarise(model)
    if options.json:
        print(json.dumps(result.to_dict(), indent=2))
        return
    rows = [(part.name, part.parameters, f"{part.gflops:.3f}") for part in result.parts]
    rows.append(("all", result.parameters, f"{result.gflops:.3f}"))
    what = f"{config.model.backbone}, reduction {config.model.reduction}, fusion {config.model.fusion}"
    title = f"{what}, {size[0]}×{size[1]}, {'+'.join(names)}"
    console.print(table(["part", "parameters", "GFLOPs"], rows, title))
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
