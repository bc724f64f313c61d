"""`slimreid model ...`: which backbones there are, what models cost."""

from __future__ import annotations

import json
from dataclasses import asdict

from slimreid.cli.console import console, say, table
from slimreid.cli.options.measuring import ListOptions, SummaryOptions
from slimreid.config.backbones import SIZES
from slimreid.modalities import DEFAULT_MODALITIES
from slimreid.models.build import build_model
from slimreid.profiling.cost import summarise


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
