"""Linear layers in int8: weights once and for all, inputs by the range of each row in each call (dynamic)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from slimreid.errors import ModelError

LINEAR = ("MatMul", "Gemm")
ONNXRUNTIME = "com.microsoft"
"""Domain of the product of int8 matrices that onnxruntime scales in passing; the standard has none."""
MIDDLE, MOST = 128, 127
"""An input is stored as a whole number without sign: this for 0, and at most that far from it."""
SCALES = "per row"
"""What inputs are scaled by, for those who keep figures of int8."""
_LEAST = 1e-30
"""Range of a row of zeros."""


def linear_layers(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the linear layers of a graph: products with a matrix of weights."""
    weights = {tensor.name for tensor in proto.graph.initializer if len(tensor.dims) == 2}
    return tuple(n.name for n in proto.graph.node if n.op_type in LINEAR and n.input[1] in weights)


def quantise(proto: onnx.ModelProto, float_layers: Collection[str] = ()) -> onnx.ModelProto:
    """The same graph with its linear layers in int8, except those named.

    Weights are signed with one scale per output channel. Every row of the inputs of a layer, which is a
    token of an image, has a scale of its own by its largest number: no calibration is needed, and the result
    does not depend on the other images of a batch. Raises `ModelError` for a layer that scales its product.
    """
    found = onnx.ModelProto()
    found.CopyFrom(proto)
    graph, layers = found.graph, set(linear_layers(proto)) - set(float_layers)
    if not layers:
        return found
    writer = _Writer(graph.initializer)
    for node in graph.node:
        if node.name in layers:
            writer.add_layer(node)
        else:
            writer.nodes.append(node)
    used = {name for node in writer.nodes for name in node.input}
    stay = [tensor for tensor in graph.initializer if tensor.name in used]
    made = [numpy_helper.from_array(array, name) for name, array in writer.constants.items()]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(writer.nodes)
    graph.initializer.extend([*stay, *made])
    if all(each.domain != ONNXRUNTIME for each in found.opset_import):
        found.opset_import.append(helper.make_opsetid(ONNXRUNTIME, 1))
    return found


class _Writer:
    """The nodes of the new graph, and the constants that they need."""

    def __init__(self, weights: Iterable[onnx.TensorProto]) -> None:
        self.weights = {tensor.name: tensor for tensor in weights}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, NDArray[Any]] = {
            "int8.last_axis": np.array([-1], np.int64),
            "int8.least": np.array(_LEAST, np.float32),
            "int8.step": np.array(1 / MOST, np.float32),
            "int8.one": np.array(1, np.float32),
            "int8.middle": np.array(MIDDLE, np.uint8),
            "int8.middles": np.array([MIDDLE], np.uint8),
        }
        self._rows: dict[str, tuple[str, str]] = {}

    def add_layer(self, node: onnx.NodeProto) -> None:
        """Product of int8 matrices in place of a linear layer."""
        options = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        if options.get("transA") or options.get("alpha", 1) != 1 or options.get("beta", 1) != 1:
            raise ModelError(f"linear layer '{node.name}' is scaled or transposed; name it to stay float32")
        weight = numpy_helper.to_array(self.weights[node.input[1]])
        if options.get("transB"):
            weight = weight.T
        inputs, outputs = weight.shape
        name, out = node.input[1], node.output[0]
        scales = np.maximum(np.abs(weight).max(axis=0), np.float32(_LEAST)) / np.float32(MOST)
        self.constants |= {
            f"{name}_quantized": np.rint(weight / scales).astype(np.int8),
            f"{name}_scale": scales,
            f"{name}_zero_point": np.zeros(outputs, np.int8),
            f"int8.outputs_{outputs}": np.array([outputs], np.int64),
        }
        rows, scale = self._quantised_rows(node.input[0], inputs)
        product = [
            rows,
            f"{name}_quantized",
            "int8.one",
            f"{name}_scale",
            "int8.middle",
            f"{name}_zero_point",
        ]
        self._add("MatMulIntegerToFloat", product, f"{out}.product", domain=ONNXRUNTIME)
        self._add("Mul", [f"{out}.product", scale], f"{out}.rows")
        self._add("Shape", [node.input[0]], f"{out}.axes", end=-1)
        self._add("Concat", [f"{out}.axes", f"int8.outputs_{outputs}"], f"{out}.shape", axis=0)
        biased = node.op_type == "Gemm" and len(node.input) > 2
        shaped = f"{out}.shaped" if biased else out
        self._add("Reshape", [f"{out}.rows", f"{out}.shape"], shaped)
        if biased:
            self._add("Add", [shaped, node.input[2]], out)

    def _quantised_rows(self, values: str, width: int) -> tuple[str, str]:
        """Names of the rows of an input as whole numbers, and of their scales."""
        if values not in self._rows:
            self.constants[f"int8.rows_of_{width}"] = np.array([-1, width], np.int64)
            name = f"{values}.int8"
            self._add("Reshape", [values, f"int8.rows_of_{width}"], f"{name}.float")
            self._add("ReduceMax", [f"{name}.float", "int8.last_axis"], f"{name}.high", keepdims=1)
            self._add("ReduceMin", [f"{name}.float", "int8.last_axis"], f"{name}.low", keepdims=1)
            self._add("Neg", [f"{name}.low"], f"{name}.minus_low")
            self._add("Max", [f"{name}.high", f"{name}.minus_low", "int8.least"], f"{name}.range")
            self._add("Mul", [f"{name}.range", "int8.step"], f"{name}.scale")
            self._add("Reshape", [f"{name}.scale", "int8.last_axis"], f"{name}.scales")
            self._add("Shape", [f"{name}.scales"], f"{name}.count")
            self._add("Expand", ["int8.middles", f"{name}.count"], f"{name}.middles")
            rows = [f"{name}.float", f"{name}.scales", f"{name}.middles"]
            self._add("QuantizeLinear", rows, f"{name}.whole", axis=0)
            self._rows[values] = (f"{name}.whole", f"{name}.scale")
        return self._rows[values]

    def _add(self, kind: str, inputs: list[str], output: str, domain: str = "", **options: Any) -> None:
        self.nodes.append(helper.make_node(kind, inputs, [output], domain=domain, **options))
