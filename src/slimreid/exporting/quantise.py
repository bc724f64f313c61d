"""Linear layers in int8: weights once and for all, inputs by their range in each call (dynamic)."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

LINEAR = ("MatMul", "Gemm")


def linear_layers(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the linear layers of a graph: products with a matrix of weights."""
    weights = {tensor.name for tensor in proto.graph.initializer if len(tensor.dims) == 2}
    return tuple(n.name for n in proto.graph.node if n.op_type in LINEAR and n.input[1] in weights)


def quantise(proto: onnx.ModelProto, float_layers: Collection[str] = ()) -> onnx.ModelProto:
    """The same graph with its linear layers in int8, except those named.

    Weights are signed with one scale per output channel; the inputs of a layer are scaled by their range,
    which needs no calibration.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        logger = logging.getLogger()
        before = logger.level
        logger.setLevel(logging.ERROR)  # it recommends a preprocessing that the exporter has done already
        try:
            quantize_dynamic(
                proto,
                path,
                op_types_to_quantize=list(LINEAR),
                per_channel=True,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=sorted(float_layers),
            )
        finally:
            logger.setLevel(before)
        found: onnx.ModelProto = onnx.load(path)
    return found
