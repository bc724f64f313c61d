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
OWN = "slimreid"
"""Domain of the functions that an int8 graph defines and calls; onnxruntime inlines them."""
QUANTISED_ROWS, PRODUCT_OF_ROWS = "QuantisedRows", "ProductOfRows"
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
    opsets = {each.domain: each for each in found.opset_import}
    for domain in (ONNXRUNTIME, OWN):
        if domain not in opsets:
            found.opset_import.append(helper.make_opsetid(domain, 1))
    found.functions.extend([_quantised_rows(opsets[""]), _product_of_rows(opsets[""])])
    return found


def _quantised_rows(opset: onnx.OperatorSetIdProto) -> onnx.FunctionProto:
    """values (..., D), shape [−1, D] -> rows (R, D) as whole numbers, and their scales (R, 1)."""
    nodes = [
        _constant("last", np.array([-1], np.int64)),
        _constant("least", np.array(_LEAST, np.float32)),
        _constant("step", np.array(1 / MOST, np.float32)),
        _constant("middle", np.array([MIDDLE], np.uint8)),
        _node("Reshape", ["values", "shape"], "float"),
        _node("ReduceMax", ["float", "last"], "high", keepdims=1),
        _node("ReduceMin", ["float", "last"], "low", keepdims=1),
        _node("Neg", ["low"], "minus_low"),
        _node("Max", ["high", "minus_low", "least"], "range"),
        _node("Mul", ["range", "step"], "scale"),
        _node("Reshape", ["scale", "last"], "scales"),
        _node("Shape", ["scales"], "count"),
        _node("Expand", ["middle", "count"], "middles"),
        _node("QuantizeLinear", ["float", "scales", "middles"], "rows", axis=0),
    ]
    function: onnx.FunctionProto = helper.make_function(
        OWN, QUANTISED_ROWS, ["values", "shape"], ["rows", "scale"], nodes, [opset]
    )
    return function


def _product_of_rows(opset: onnx.OperatorSetIdProto) -> onnx.FunctionProto:
    """Rows and scales of `values` (..., D), a weight (D, E) with its scales and zeros, [E] -> (..., E)."""
    inputs = ["values", "rows", "scale", "weight", "weight_scale", "weight_zero", "width"]
    product = ["rows", "weight", "one", "weight_scale", "middle", "weight_zero"]
    nodes = [
        _constant("one", np.array(1, np.float32)),
        _constant("middle", np.array(MIDDLE, np.uint8)),
        _node("MatMulIntegerToFloat", product, "product", domain=ONNXRUNTIME),
        _node("Mul", ["product", "scale"], "scaled"),
        _node("Shape", ["values"], "axes", end=-1),
        _node("Concat", ["axes", "width"], "shape", axis=0),
        _node("Reshape", ["scaled", "shape"], "out"),
    ]
    opsets = [opset, helper.make_opsetid(ONNXRUNTIME, 1)]
    function: onnx.FunctionProto = helper.make_function(OWN, PRODUCT_OF_ROWS, inputs, ["out"], nodes, opsets)
    return function


def _constant(name: str, value: NDArray[Any]) -> onnx.NodeProto:
    return _node("Constant", [], name, value=numpy_helper.from_array(value))


def _node(kind: str, inputs: list[str], *outputs: str, domain: str = "", **options: Any) -> onnx.NodeProto:
    found: onnx.NodeProto = helper.make_node(kind, inputs, outputs, domain=domain, **options)
    return found


class _Writer:
    """The nodes of the new graph, and the constants that they need."""

    def __init__(self, weights: Iterable[onnx.TensorProto]) -> None:
        self.weights = {tensor.name: tensor for tensor in weights}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, NDArray[Any]] = {}
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
        values = node.input[0]
        biased = node.op_type == "Gemm" and len(node.input) > 2
        given = [
            values,
            *self._quantised_rows(values, inputs),
            f"{name}_quantized",
            f"{name}_scale",
            f"{name}_zero_point",
            f"int8.outputs_{outputs}",
        ]
        product = f"{out}.product" if biased else out
        self.nodes.append(_node(PRODUCT_OF_ROWS, given, product, domain=OWN))
        if biased:
            self.nodes.append(_node("Add", [product, node.input[2]], out))

    def _quantised_rows(self, values: str, width: int) -> tuple[str, str]:
        """Names of the rows of an input as whole numbers, and of their scales."""
        if values not in self._rows:
            shape, found = f"int8.rows_of_{width}", (f"{values}.int8", f"{values}.int8_scale")
            self.constants[shape] = np.array([-1, width], np.int64)
            self.nodes.append(_node(QUANTISED_ROWS, [values, shape], *found, domain=OWN))
            self._rows[values] = found
        return self._rows[values]
