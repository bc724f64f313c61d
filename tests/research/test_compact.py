"""One folder for float32 and int8 over weights in float16."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from compact import SMALL_WEIGHTS_NAME, compact, compact_graph, round_weights

from slimreid.errors import ModelError
from slimreid.exporting.export import export
from slimreid.exporting.graphs import WEIGHTS_NAME
from slimreid.exporting.samples import noise_samples
from slimreid.inference.exported_card import read_exported
from slimreid.inference.load import load_trained
from slimreid.inference.model_card import CARD_NAME, INT8_CARD_NAME
from slimreid.inference.onnx_engine import OnnxEngine
from slimreid.inference.trained_model import write_model
from support.models import SLIM, write_random_model


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """A run whose weights are rounded, its exports in float32 and int8, and both in one folder."""
    folder = tmp_path_factory.mktemp("compact")
    loaded = write_random_model(folder / "first", None, *SLIM, modalities=("rgb", "tir"))
    write_model(folder / "run" / "model.safetensors", round_weights(loaded.model.state_dict()), loaded.card)
    for precision in ("float32", "int8"):
        export(folder / "run", folder / precision, precision=precision)
    compact(folder / "float32", folder / "int8", folder / "both")
    return folder


@pytest.mark.parametrize(("card", "precision"), [(CARD_NAME, "float32"), (INT8_CARD_NAME, "int8")])
def test_the_features_are_those_of_the_exports(exports, card, precision):
    small, whole = OnnxEngine(exports / "both" / card, 1), OnnxEngine(exports / precision, 1)
    assert small.card.feature_fingerprint == whole.card.feature_fingerprint
    assert small.card.precision == precision
    images = noise_samples(load_trained(exports / "run")).images
    for subset in (("rgb",), ("tir",), ("rgb", "tir")):
        shown = {name: images[name][:5] for name in subset}
        for kind, features in whole.features(shown).items():
            np.testing.assert_allclose(small.features(shown)[kind], features, atol=1e-6)
        for stage, kept in whole.kept_patches(shown).items():
            np.testing.assert_array_equal(small.kept_patches(shown)[stage], kept)


def test_the_weights_are_stored_once_as_float16(exports):
    whole = (exports / "float32" / WEIGHTS_NAME).stat().st_size
    small = (exports / "both" / SMALL_WEIGHTS_NAME).stat().st_size
    assert small < 0.6 * whole
    assert OnnxEngine(exports / "both").weight_bytes == small
    for card in (CARD_NAME, INT8_CARD_NAME):
        for file in read_exported(exports / "both" / card).graphs.values():
            graph = onnx.load(exports / "both" / file, load_external_data=False).graph
            large = [t for t in graph.initializer if np.prod(t.dims) >= 1024]
            assert large
            assert {t.data_type for t in large} == {onnx.TensorProto.FLOAT16}


def test_weights_that_float16_cannot_hold_stay_as_they_are():
    weight = np.full((8, 8), 1 / 3, np.float32)
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [value("x", onnx.TensorProto.FLOAT, ["batch", 8])],
        [value("y", onnx.TensorProto.FLOAT, ["batch", 8])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    found = compact_graph(onnx.helper.make_model(graph), {"w": weight}).graph
    assert [node.op_type for node in found.node] == ["MatMul"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(found.initializer[0]), weight)


def test_exports_of_different_models_are_refused(exports, tmp_path):
    with pytest.raises(ModelError, match="are not one model in float32 and in int8"):
        compact(exports / "float32", exports / "float32", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rounding_keeps_types_and_vectors_and_refuses_what_is_too_large():
    state = {"w": torch.tensor([[0.1, 1.0]]), "b": torch.tensor([0.1]), "n": torch.tensor([[70_000]])}
    found = round_weights(state)
    assert found["w"].dtype == torch.float32
    assert found["w"].tolist() == [[float(np.float16(0.1)), 1.0]]
    norm = round_weights({"backbone.norm.weight": torch.tensor([0.1])})["backbone.norm.weight"]
    assert norm.tolist() == [float(np.float16(0.1))]
    assert torch.equal(found["b"], state["b"])
    assert found["n"].tolist() == [[70_000]]
    with pytest.raises(ModelError, match="'w' has values that float16 cannot hold"):
        round_weights({"w": torch.tensor([[1e6]])})
