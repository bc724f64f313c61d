"""From a model to ONNX graphs: one per subset of its modalities, all over one file of weights."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data
from torch import Tensor, nn

from slimreid.errors import ModelError
from slimreid.inference.onnx_engine import CAMERA
from slimreid.inference.similarity import Subset
from slimreid.models.reid_model import ReIDModel

OPSET = 18
"""Of the ONNX standard: old enough for the onnxruntime of a machine that is not updated every month."""
_EXAMPLES = 5
"""Samples that a model is traced with; more than two, and no size of anything else."""
_LARGE = 4
"""Numbers from which a constant is worth a name."""
KEPT = "kept_"
"""Outputs that tell which patches a stage of token reduction keeps: this and its number, from 1."""
WEIGHTS_NAME = "weights.bin"
_LEAST_BYTES = 256
"""Smaller constants stay in the graphs."""
_PAGE = 4096
"""Bytes at a multiple of which weights begin, so that they can be mapped into memory."""


class SubsetModel(nn.Module):
    """A model that is shown exactly the modalities of one subset, with plain tensors in and out."""

    def __init__(self, model: ReIDModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: dict[str, Tensor], camera: Tensor | None) -> dict[str, Tensor]:
        """images {modality: (B, 3, H, W)}, camera (B,) -> features (B, D) by kind, kept patches by stage."""
        output = self.model(images, camera, with_reduced=True)
        selections = output.reduced.selections if output.reduced is not None else ()
        return {**output.features, **{f"{KEPT}{i}": s.index for i, s in enumerate(selections, 1)}}


def export_graph(model: ReIDModel, subset: Subset) -> onnx.ModelProto:
    """The graph of a model in test mode for samples that have exactly these modalities.

    Inputs are named after the modalities, and `camera` where the model knows cameras; outputs after the
    kinds of features, and `kept_1`, ... for the patches that each stage of token reduction keeps. Only the
    batch is left open. Weights are named after the parameters they come from, linear layers after theirs.
    """
    wrapper = SubsetModel(model.eval())
    height, width = model.backbone.image_size
    images = {name: torch.randn(_EXAMPLES, 3, height, width) for name in subset}
    camera = None
    if model.backbone.camera_embedding is not None:
        camera = torch.zeros(_EXAMPLES, dtype=torch.int64)
    batch = torch.export.Dim("batch")
    shapes = ({name: {0: batch} for name in subset}, None if camera is None else {0: batch})
    with torch.no_grad(), _quiet():
        outputs = list(wrapper(images, camera))
        traced = torch.export.export(wrapper, (images, camera), dynamic_shapes=shapes, strict=False)
        program: Any = torch.onnx.export(
            traced,
            dynamo=True,
            opset_version=OPSET,
            input_names=[*subset, *([] if camera is None else [CAMERA])],
            output_names=outputs,
            verbose=False,
        )
    proto: onnx.ModelProto = program.model_proto
    _name_batch(proto)
    name_weights(proto, model.state_dict())
    return proto


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter from telling what is of no use to a user; errors are raised all the same."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _name_batch(proto: onnx.ModelProto) -> None:
    """Call the open dimension `batch`; drop what the tracer remembered of the source code."""
    for value in (*proto.graph.input, *proto.graph.output):
        dimension = value.type.tensor_type.shape.dim[0]
        dimension.Clear()
        dimension.dim_param = "batch"
    del proto.graph.value_info[:]
    for node in proto.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    for tensor in proto.graph.initializer:
        del tensor.metadata_props[:]


def name_weights(proto: onnx.ModelProto, state: Mapping[str, Tensor]) -> None:
    """Name constants after the parameters that they hold, as they are or transposed, in place.

    Constants that hold none are named after their content, so that they have the same name in all graphs.
    Linear layers (`MatMul` or `Gemm` by a parameter) get the name of their layer.
    """
    known: dict[str, str] = {}
    for name, parameter in state.items():
        array = parameter.detach().cpu().numpy()
        for each in (array, array.T):
            known.setdefault(_digest(each), name)
    renamed: dict[str, str] = {}
    taken: set[str] = set()
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.size < _LARGE:
            continue
        digest = _digest(array)
        name = known.get(digest, f"constant.{digest[:12]}")
        if name not in taken:  # the same constant twice: both stay, one of them under its old name
            taken.add(name)
            renamed[tensor.name] = name
            tensor.name = name
    for node in proto.graph.node:
        for at, name in enumerate(node.input):
            node.input[at] = renamed.get(name, name)
        if node.op_type in ("MatMul", "Gemm") and node.input[1].endswith("weight"):
            node.name = node.input[1].removesuffix(".weight")


def _digest(array: np.ndarray[Any, Any]) -> str:
    """SHA-256 over type, shape and values."""
    digest = hashlib.sha256(f"{array.dtype}\0{array.shape}\0".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write_graphs(
    folder: Path,
    graphs: Iterable[tuple[str, onnx.ModelProto]],
    align: int = _PAGE,
    weights: str = WEIGHTS_NAME,
) -> None:
    """Write graphs, one after the other; constants of the same content are written once for all of them.

    The constants are taken out of the graphs. `align`: weights begin at a multiple of this. `weights`: the
    name of their file, which every constant of every graph repeats.
    """
    places: dict[bytes, int] = {}
    with (folder / weights).open("wb") as file:
        for name, proto in graphs:
            for tensor in proto.graph.initializer:
                content = tensor.raw_data
                if len(content) < _LEAST_BYTES:
                    continue
                digest = hashlib.sha256(content).digest()
                if digest not in places:
                    file.write(b"\0" * (-file.tell() % align))
                    places[digest] = file.tell()
                    file.write(content)
                set_external_data(tensor, weights, places[digest], len(content))
                tensor.ClearField("raw_data")
                tensor.data_location = onnx.TensorProto.EXTERNAL
            (folder / name).write_bytes(proto.SerializeToString(deterministic=True))


def read_graph(folder: Path, name: str) -> onnx.ModelProto:
    """A graph with its weights; raises `ModelError` where it cannot be read."""
    try:
        proto: onnx.ModelProto = onnx.load(folder / name)
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / name}: not a readable graph ({error})") from None
    return proto
