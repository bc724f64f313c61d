"""One folder for a model in float32 and in int8, its weights stored once, as float16.

onnxruntime turns the weights into float32 or int8 when it opens a graph, so nothing is unpacked on disk and
a call is as fast as with the graphs that `export` writes. Weights that float16 cannot hold exactly stay as
they are: round them before the export (`round_weights`), and both forms give the same features.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor

from slimreid.errors import ModelError
from slimreid.exporting.graphs import read_graph, write_graphs
from slimreid.files import file_digest, new_folder
from slimreid.inference.exported_card import ExportedCard, read_exported, write_exported
from slimreid.inference.model_card import CARD_NAME, INT8_CARD_NAME

LEAST_NUMBERS = 64
"""Smaller weights stay as they are."""
SMALL_WEIGHTS_NAME = "w"
"""File of the weights; its name stands in every graph some hundred times."""
_ALIGN = 64
_QUANTISED, _SCALE, _ZERO = "_quantized", "_scale", "_zero_point"
"""Ends of the names that onnxruntime gives to a weight in int8."""

Arrays = Mapping[str, NDArray[Any]]


def round_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices, and all of the backbone, rounded to what float16 can hold; raises `ModelError` beyond it.

    Vectors outside the backbone, such as the statistics of a BatchNorm, are few and keep all their digits.
    """
    rounded = {
        name: value.half().to(value.dtype)
        if value.is_floating_point() and (value.ndim > 1 or name.startswith("backbone."))
        else value
        for name, value in state.items()
    }
    for name, value in rounded.items():
        if not bool(value.isfinite().all()):
            raise ModelError(f"'{name}' has values that float16 cannot hold")
    return rounded


def compact(float32: Path, int8: Path, out: Path) -> None:
    """Join two exports of one model into the folder `out`, which must not exist.

    The folder is an exported model in float32; the int8 one is reached by the path of its second card.
    Raises `ModelError` where the two are not of one model, or an export cannot be read.
    """
    cards = {CARD_NAME: (float32, read_exported(float32)), INT8_CARD_NAME: (int8, read_exported(int8))}
    first, second = (card for _, card in cards.values())
    if first.fingerprint != second.fingerprint or (first.precision, second.precision) != ("float32", "int8"):
        raise ModelError(f"{float32} and {int8} are not one model in float32 and in int8")
    with new_folder(out) as folder:
        graphs = {
            name: {subset: f"{prefix}{file}" for subset, file in cards[name][1].graphs.items()}
            for name, prefix in ((CARD_NAME, ""), (INT8_CARD_NAME, "int8-"))
        }
        made = (
            (
                graphs[name][subset],
                compact_graph(
                    read_graph(source, file), _weights_of(read_graph(float32, first.graphs[subset]))
                ),
            )
            for name, (source, card) in cards.items()
            for subset, file in card.graphs.items()
        )
        write_graphs(folder, made, _ALIGN, SMALL_WEIGHTS_NAME)
        for name, (_, card) in cards.items():
            _write_card(folder, name, card, graphs[name])


def _write_card(folder: Path, name: str, card: ExportedCard, graphs: dict[tuple[str, ...], str]) -> None:
    files = {file: file_digest(folder / file) for file in (*graphs.values(), SMALL_WEIGHTS_NAME)}
    write_exported(folder, replace(card, graphs=graphs, files=files), name, indent=None)


def _weights_of(proto: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


def compact_graph(proto: onnx.ModelProto, floats: Arrays) -> onnx.ModelProto:
    """A graph that makes its weights from float16 when it is opened, with short names, in place.

    `floats`: the weights of the float32 graph, from which those in int8 are made again.
    """
    graph = proto.graph
    own = _weights_of(proto)
    kept: list[onnx.TensorProto] = []
    made: list[onnx.NodeProto] = []
    halves: dict[str, onnx.TensorProto] = {}

    def half(name: str, array: NDArray[Any]) -> str:
        """Name of a float32 value that is made from a float16 weight."""
        if f"{name}.half" not in halves:
            halves[f"{name}.half"] = numpy_helper.from_array(array.astype(np.float16), f"{name}.half")
            made.append(_node("Cast", [f"{name}.half"], name, to=onnx.TensorProto.FLOAT))
        return name

    for tensor in graph.initializer:
        array, base = own[tensor.name], tensor.name.removesuffix(_QUANTISED)
        if array.dtype == np.int8 and base in floats and _is_made_by(array, floats[base], own, base):
            given = [half(base, floats[base]), f"{base}{_SCALE}", f"{base}{_ZERO}"]
            made.append(_node("QuantizeLinear", given, tensor.name, axis=1))
        elif array.dtype == np.float32 and array.size >= LEAST_NUMBERS and _fits_half(array):
            half(tensor.name, array)
        else:
            kept.append(numpy_helper.from_array(array, tensor.name))  # as bytes, which are stored once
    nodes = [*made, *graph.node]
    del graph.initializer[:], graph.node[:], graph.value_info[:], graph.metadata_props[:]
    del proto.metadata_props[:]
    graph.initializer.extend([*kept, *halves.values()])
    graph.node.extend(nodes)
    _shorten_names(graph)
    return proto


def _node(kind: str, inputs: Iterable[str], output: str, **attributes: Any) -> onnx.NodeProto:
    found: onnx.NodeProto = onnx.helper.make_node(kind, list(inputs), [output], **attributes)
    return found


def _fits_half(array: NDArray[Any]) -> bool:
    with np.errstate(over="ignore"):
        return bool((array.astype(np.float16).astype(np.float32) == array).all())


def _is_made_by(array: NDArray[Any], weight: NDArray[Any], own: Arrays, base: str) -> bool:
    """Whether `QuantizeLinear` makes these int8 numbers (I, O) of a weight, one scale per column."""
    scale, zero = own.get(f"{base}{_SCALE}"), own.get(f"{base}{_ZERO}")
    if scale is None or zero is None or scale.ndim != 1 or zero.any() or not _fits_half(weight):
        return False
    return bool((np.clip(np.rint(weight / scale), -128, 127) == array).all())


def _shorten_names(graph: onnx.GraphProto) -> None:
    """Number all values but inputs and outputs, and leave nodes without names."""
    fixed = {value.name for value in (*graph.input, *graph.output)} | {""}
    short: dict[str, str] = {}

    def name(old: str) -> str:
        return old if old in fixed else short.setdefault(old, f"{len(short):x}")

    for node in graph.node:
        node.name = ""
        node.input[:] = [name(each) for each in node.input]
        node.output[:] = [name(each) for each in node.output]
    for tensor in graph.initializer:
        tensor.name = name(tensor.name)
