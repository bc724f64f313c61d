"""Exported models made by hand: graphs so simple that numpy tells what must come out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from slimreid.config import Config
from slimreid.files import file_digest
from slimreid.inference.exported_card import ExportedCard, write_exported
from slimreid.inference.model_card import ModelCard
from slimreid.inference.similarity import Similarity
from slimreid.modalities import all_subsets, subset_name
from support.runs import NAMES, make_config

Floats = NDArray[np.float32]

ORIGINAL, SLIMMED, BOTH = "original", "slimmed", "both"
SIZES = {ORIGINAL: 9, SLIMMED: 9, BOTH: 18}


def write_exported_model(
    folder: Path, manifest: Path | None = None, *overrides: str, cameras: tuple[str, ...] = ("1", "2")
) -> Path:
    """Write an exported model whose features are those of `expected_branches`."""
    folder.mkdir(parents=True, exist_ok=True)
    config: Config = make_config(manifest or Path(), *overrides)
    graphs = {subset: f"model-{subset_name(subset)}.onnx" for subset in all_subsets(NAMES)}
    for subset, file in graphs.items():
        onnx.save(_graph(subset, config.transforms.size), str(folder / file))
    single = tuple((name,) for name in NAMES)
    card = ExportedCard(
        model=ModelCard(config, NAMES, ("id0", "id1"), cameras, epoch=3, select_on="val"),
        fingerprint="0" * 64,
        precision="float32",
        float_layers=(),
        sizes=SIZES,
        similarities={
            ORIGINAL: Similarity(NAMES, single),
            SLIMMED: Similarity(NAMES, single),
            BOTH: Similarity(NAMES, single * 2),
        },
        stages=(),
        camera_input=True,
        graphs=graphs,
        files={file: file_digest(folder / file) for file in graphs.values()},
    )
    write_exported(folder, card)
    return folder


def expected_branches(images: dict[str, Floats], camera: int) -> dict[str, Floats]:
    """Features of one sample {modality: (3, H, W)}: means of the channels, 0 where absent, and the camera."""
    blocks = [images[n].mean(axis=(1, 2)) if n in images else np.zeros(3, np.float32) for n in NAMES]
    original = np.concatenate(blocks) + np.float32(0.125 * camera)
    return {ORIGINAL: original, SLIMMED: original * original}


def _graph(subset: tuple[str, ...], size: tuple[int, int]) -> onnx.ModelProto:
    nodes, blocks = [], []
    for name in NAMES:
        source = name if name in subset else subset[0]
        nodes.append(helper.make_node("GlobalAveragePool", [source], [f"pool_{name}"]))
        nodes.append(helper.make_node("Flatten", [f"pool_{name}"], [f"flat_{name}"]))
        nodes.append(
            helper.make_node("Mul", [f"flat_{name}", "one" if name in subset else "zero"], [f"block_{name}"])
        )
        blocks.append(f"block_{name}")
    nodes += [
        helper.make_node("Concat", blocks, ["blocks"], axis=1),
        helper.make_node("Cast", ["camera"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["number", "axis"], ["column"]),
        helper.make_node("Mul", ["column", "eighth"], ["shift"]),
        helper.make_node("Add", ["blocks", "shift"], [ORIGINAL]),
        helper.make_node("Mul", [ORIGINAL, ORIGINAL], [SLIMMED]),
        helper.make_node("Concat", [ORIGINAL, SLIMMED], [BOTH], axis=1),
    ]
    numbers = {"one": 1.0, "eighth": 0.125} | ({"zero": 0.0} if subset != NAMES else {})
    constants = [helper.make_tensor(name, TensorProto.FLOAT, [], [x]) for name, x in numbers.items()]
    constants.append(helper.make_tensor("axis", TensorProto.INT64, [1], [1]))
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 3, *size]) for n in subset]
    inputs.append(helper.make_tensor_value_info("camera", TensorProto.INT64, ["batch"]))
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", D]) for n, D in SIZES.items()]
    graph = helper.make_graph(nodes, subset_name(subset), inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
