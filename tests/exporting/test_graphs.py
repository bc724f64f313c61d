"""Graphs of every design and backbone give what the model gives, for any batch; one subset of each."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from slimreid.config.model import ReIDOptions
from slimreid.errors import SlimReIDWarning
from slimreid.exporting.graphs import SubsetModel, export_graph
from slimreid.exporting.quantise import PRODUCT_OF_ROWS, linear_layers, quantise
from slimreid.models.reid_model import ReIDModel
from slimreid.token_reduction.select import stable_top
from support.vit import random_vit, small

SIZE = (32, 16)
BATCHES = (1, 2, 3, 33)

DESIGNS = {
    "none, zeros for what is missing": (
        small("vit_b16", cameras=3),
        ReIDOptions(reduction="none", fusion="none", missing="zeros", neck_feature="after", heads="split"),
    ),
    "slim, CLIP": (small("clip_vit_b16", projection=32, cameras=3), ReIDOptions(reduction="in_backbone")),
    "sdtps, DINOv2": (small("dinov2_b14_reg"), ReIDOptions()),
    "demo, DINOv3": (small("dinov3_b16"), ReIDOptions(fusion="hdm_atmoe", global_local=True)),
}


def random_model(name: str) -> ReIDModel:
    vit, options = DESIGNS[name]
    torch.manual_seed(0)
    model = ReIDModel(random_vit(vit, SIZE), ("rgb", "tir"), 3, options).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model


def open_graph(content: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("design", DESIGNS)
def test_a_graph_gives_what_the_model_gives_for_any_batch(design):
    model = random_model(design)
    subset = ("tir",)
    proto = export_graph(model, subset)
    session = open_graph(proto.SerializeToString())
    known = model.backbone.camera_embedding is not None
    assert [i.name for i in session.get_inputs()] == ["tir", "camera"][: 1 + known]
    for B in BATCHES:
        generator = torch.Generator().manual_seed(B)
        images = torch.randn(B, 3, *SIZE, generator=generator)
        camera = torch.randint(-1, 5, (B,), generator=generator)  # 0, 1 and 2 are known
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", SlimReIDWarning)
            expected = SubsetModel(model)({"tir": images}, camera if known else None)
        feed = {"tir": images.numpy()} | ({"camera": camera.numpy()} if known else {})
        for name, found in zip(expected, session.run(list(expected), feed), strict=True):
            np.testing.assert_allclose(found, expected[name].numpy(), atol=5e-6, err_msg=f"{name}, {B}")
    assert list(expected)[: len(model.sizes)] == list(model.sizes)
    blocks = {f"backbone.blocks.{i}.{name}" for i in range(2) for name in ("attn.qkv", "mlp.fc2")}
    assert blocks <= set(linear_layers(proto)), "layers have the names of the model"


def test_ties_are_broken_like_in_torch():
    class Top(nn.Module):
        def forward(self, scores):
            return stable_top(scores, 5)

    batch = torch.export.Dim("batch")
    traced = torch.export.export(Top(), (torch.zeros(5, 9),), dynamic_shapes=({0: batch},), strict=False)
    program = torch.onnx.export(traced, dynamo=True, verbose=False)
    session = open_graph(program.model_proto.SerializeToString())
    rng = np.random.default_rng(0)
    scores = rng.integers(-2, 3, (200, 9)).astype(np.float32) / 4
    scores[rng.random(scores.shape) < 0.2] = -0.0
    (found,) = session.run(None, {session.get_inputs()[0].name: scores})
    assert (found == stable_top(torch.from_numpy(scores), 5).numpy()).all()
    order = [sorted(range(9), key=lambda i: (-row[i], i))[:5] for row in scores.tolist()]
    assert found.tolist() == order


def test_int8_layers_and_those_left_in_float32():
    proto = export_graph(random_model("none, zeros for what is missing"), ("rgb",))
    layers = linear_layers(proto)
    assert len(layers) == 2 * 4
    left = layers[3]
    found = quantise(proto, [left])
    names = {tensor.name: tensor.data_type for tensor in found.graph.initializer}
    assert names[f"{left}.weight"] == 1, "float32"
    assert sum(kind == 3 for kind in names.values()) >= 7, "int8"
    assert not any(f"{layer}.weight" in names for layer in layers if layer != left)
    assert sum(node.op_type == PRODUCT_OF_ROWS for node in found.graph.node) == 7
    feed = {"rgb": np.ones((2, 3, *SIZE), np.float32), "camera": np.array([0, -1])}
    (a,), (b,) = (open_graph(p.SerializeToString()).run(["both"], feed) for p in (proto, found))
    assert 0 < np.abs(a - b).max() < 0.1
