"""`slimreid profile`: what a model weighs, computes and takes."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING

from slimreid.console import console, progress, table
from slimreid.errors import ConfigError

if TYPE_CHECKING:
    from slimreid.models.reid_model import ReIDModel
    from slimreid.profiling import Profile

MB = 2**20


def profile(
    source: Path,
    batch: str = "1,8,32",
    repeats: int = 20,
    device: str = "cpu",
    threads: int | None = None,
    set: list[str] = [],  # noqa: B006 - the command line copies it
    classes: int = 100,
    cameras: int = 4,
    json: Path | None = None,
) -> None:
    """Measure parameters, GFLOPs, tokens per block, latency, throughput and memory of a model.

    Args:
        source: Config (.yaml), run folder or model file.
        batch: Samples in a batch, several with commas; a sample has one image per modality.
        repeats: Forward passes at each batch size; their median and 95th percentile are shown.
        device: cpu, cuda, mps.
        threads: CPU threads; default: torch's choice.
        set: Options to change in a config, e.g. model.slimming.keep_ratio=0.3.
        classes: Training identities, for a config; they decide the size of the heads.
        cameras: Training cameras, for a config.
        json: File to write everything to.
    """
    import torch

    from slimreid.files import check_writable, write_text
    from slimreid.loading import choose_device
    from slimreid.profiling import profile_model

    sizes = _batch_sizes(batch)
    if threads is not None and threads < 1:
        raise ConfigError(f"threads must be at least 1, not {threads}")
    if json is not None:
        check_writable(json)
    model = _open(source, set, classes, cameras).to(choose_device(device))
    before = torch.get_num_threads()
    try:
        if threads is not None:
            torch.set_num_threads(threads)
        result = profile_model(model, sizes, repeats, lambda rounds: progress(rounds, "measuring"))
    finally:
        torch.set_num_threads(before)
    _print(result, source)
    if json is not None:
        write_text(json, json_module.dumps({"source": source.name, **result.to_dict()}, indent=2) + "\n")
        console.print(f"written to {json}", soft_wrap=True)


def _batch_sizes(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ConfigError(f"batch must be numbers over 0 such as 1,8,32, not '{text}'")
    return list(dict.fromkeys(map(int, words)))


def _open(source: Path, changes: list[str], classes: int, cameras: int) -> ReIDModel:
    """The model of a config (with random weights) or of a run."""
    from slimreid.config_io import load_config
    from slimreid.loading import load
    from slimreid.modalities import DEFAULT_MODALITIES
    from slimreid.models.build import build_model

    if source.suffix not in (".yaml", ".yml"):
        if changes:
            raise ConfigError(f"--set changes a config, but {source} is a trained model; leave it out")
        return load(source).model
    config = load_config([source], changes)
    names = config.data.modalities or DEFAULT_MODALITIES
    return build_model(config.model, config.transforms.size, names, classes, cameras, load_weights=False)


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
    rows = [
        (
            row.batch,
            f"{1e3 * row.p50:,.1f}",
            f"{1e3 * row.p95:,.1f}",
            f"{row.samples_per_second:,.1f}",
            f"{row.images_per_second:,.1f}",
            f"{row.peak_bytes / MB:,.1f}",
        )
        for row in result.batches
    ]
    console.print(
        table(
            ["batch", "p50 ms", "p95 ms", "samples/s", "images/s", "peak MB"],
            rows,
            f"forward pass, {result.device}, {result.threads} thread(s), {result.repeats} repetitions",
        )
    )
    console.print(
        f"Weights take {result.weight_bytes / MB:,.1f} MB; peak MB is what tensors take at most besides "
        "weights and inputs. GFLOPs are multiply-adds of one sample with all modalities.",
        soft_wrap=True,
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
