"""`slimreid model ...`: what models there are, what they weigh and cost."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING

from slimreid.console import console, table

if TYPE_CHECKING:
    from slimreid.config import Config


def summary(config: Config, classes: int = 100, cameras: int = 4, json: bool = False) -> None:
    """Show parameters, GFLOPs, tokens after each stage and the size of the embedding.

    Args:
        config: Options of the run.
        classes: Training identities, which decide the size of the heads.
        cameras: Training cameras.
        json: Print everything as JSON.
    """
    from slimreid.modalities import DEFAULT_MODALITIES
    from slimreid.models.build import build_model
    from slimreid.models.summary import summarise

    names = config.data.modalities or DEFAULT_MODALITIES
    size = config.transforms.size
    model = build_model(config.model, size, names, classes, cameras, load_weights=False)
    result = summarise(model)
    if json:
        print(json_module.dumps(result.to_dict(), indent=2))
        return
    rows = [(part.name, part.parameters, f"{part.gflops:.3f}") for part in result.parts]
    rows.append(("all", result.parameters, f"{result.gflops:.3f}"))
    title = f"{config.model.backbone}, {config.model.fusion}, {size[0]}×{size[1]}, {'+'.join(names)}"
    console.print(table(["part", "parameters", "GFLOPs"], rows, title))
    console.print(table(["stage", "tokens per modality"], result.tokens))
    console.print(table(["feature", "size"], result.features.items()))
    console.print("GFLOPs are multiply-adds of one sample with all modalities; heads work in training only.")


def list_(json: bool = False) -> None:
    """List the named backbones.

    Args:
        json: Print everything as JSON.
    """
    from dataclasses import asdict

    from slimreid.models.sizes import SIZES

    if json:
        print(json_module.dumps({name: asdict(size) for name, size in SIZES.items()}, indent=2))
        return
    rows = [
        (name, s.patch_size, s.depth, s.width, s.heads, s.out_width, s.positions) for name, s in SIZES.items()
    ]
    console.print(table(["backbone", "patch", "blocks", "width", "heads", "output", "positions"], rows))
