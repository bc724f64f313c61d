"""Linear layers in int8, against plain loops."""

import math

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from slimreid.errors import ModelError
from slimreid.exporting.quantise import PRODUCT_OF_ROWS, QUANTISED_ROWS, linear_layers, quantise


def graph_of(nodes, weights, shape):
    """A graph from `x` to `y`; its first axis is open."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "layers",
        [value("x", TensorProto.FLOAT, ["batch", *shape])],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def run(proto, x):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": x})[0]


def row_by_row(x, weight):
    """The product in int8: a scale per row of `x` and per column of `weight`."""
    out = np.zeros((*x.shape[:-1], weight.shape[1]))
    for at in np.ndindex(x.shape[:-1]):
        step = max(abs(float(v)) for v in x[at]) / 127 or 1.0
        whole = [round(float(v) / step) for v in x[at]]
        for column in range(weight.shape[1]):
            scale = max(abs(float(v)) for v in weight[:, column]) / 127 or 1.0
            numbers = [round(float(v) / scale) for v in weight[:, column]]
            out[(*at, column)] = step * scale * sum(a * b for a, b in zip(whole, numbers, strict=True))
    return out


@pytest.mark.parametrize("shape", [(6,), (3, 6), (2, 3, 6)])
def test_a_product_is_that_of_plain_loops(shape):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((6, 4)).astype(np.float32)
    weight[:, 2] = 0
    x = rng.standard_normal((5, *shape)).astype(np.float32)
    x[1] *= 1000
    x[2] = 0
    proto = graph_of([helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")], {"w": weight}, shape)
    found = run(quantise(proto), x)
    expected = row_by_row(x, weight)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    assert np.abs(found - x @ weight).max() > 0, "int8"
    assert np.all(found[2] == 0)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_layer_with_a_bias_keeps_it(transposed):
    rng = np.random.default_rng(1)
    weight, bias = rng.standard_normal((6, 4)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    x = rng.standard_normal((5, 6)).astype(np.float32)
    stored = np.ascontiguousarray(weight.T) if transposed else weight
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="layer", transB=int(transposed))
    found = run(quantise(graph_of([node], {"w": stored, "b": bias}, (6,))), x)
    np.testing.assert_allclose(found, row_by_row(x, weight) + bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("option", [{"alpha": 0.5}, {"beta": 2.0}, {"transA": 1}])
def test_a_layer_that_is_more_than_a_product_is_refused(option):
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="layer", **option)
    weights = {"w": np.ones((6, 4), np.float32), "b": np.ones(4, np.float32)}
    proto = graph_of([node], weights, (6,))
    with pytest.raises(ModelError, match="'layer' is scaled or transposed"):
        quantise(proto)
    assert quantise(proto, ["layer"]) == proto


def test_a_row_does_not_depend_on_its_batch():
    rng = np.random.default_rng(2)
    weights = {name: rng.standard_normal((16, 16)).astype(np.float32) for name in ("a", "b")}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
        helper.make_node("MatMul", ["h", "b"], ["y"], name="second"),
    ]
    proto = quantise(graph_of(nodes, weights, (16,)))
    x = (
        rng.standard_normal((33, 16)).astype(np.float32)
        * np.geomspace(1e-3, 1e3, 33, dtype=np.float32)[:, None]
    )
    whole = run(proto, x)
    for at in range(len(x)):
        np.testing.assert_array_equal(run(proto, x[at : at + 1])[0], whole[at])


def test_layers_that_are_named_stay_float32_and_share_their_input():
    rng = np.random.default_rng(3)
    weights = {name: rng.standard_normal((8, 8)).astype(np.float32) for name in ("a", "b", "c")}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["q"], name="query"),
        helper.make_node("MatMul", ["x", "b"], ["k"], name="key"),
        helper.make_node("Add", ["q", "k"], ["h"], name="sum"),
        helper.make_node("MatMul", ["h", "c"], ["y"], name="out"),
    ]
    proto = graph_of(nodes, weights, (8,))
    assert linear_layers(proto) == ("query", "key", "out")
    x = rng.standard_normal((4, 8)).astype(np.float32)
    found = quantise(proto, ["out"])
    kinds = [node.op_type for node in found.graph.node]
    assert kinds.count(QUANTISED_ROWS) == 1, "query and key have one input"
    assert kinds.count(PRODUCT_OF_ROWS) == 2
    assert kinds.count("MatMul") == 1
    stored = {tensor.name: tensor.data_type for tensor in found.graph.initializer}
    assert stored["a_quantized"] == stored["b_quantized"] == TensorProto.INT8
    assert stored["c"] == TensorProto.FLOAT
    assert "a" not in stored
    expected = (row_by_row(x, weights["a"]) + row_by_row(x, weights["b"])) @ weights["c"]
    np.testing.assert_allclose(run(found, x), expected, rtol=1e-4, atol=1e-4)
    assert quantise(proto, linear_layers(proto)) == proto
    assert math.isfinite(float(run(found, np.zeros((1, 8), np.float32)).sum()))
