"""Which linear layers cost the most accuracy in int8, so that these stay float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from slimreid.exporting.agreement import cosines
from slimreid.exporting.quantise import linear_layers, quantise
from slimreid.inference.onnx_engine import session_options
from slimreid.progress import progress

MOST_SAMPLES = 16
"""Samples that the error of each layer is measured on."""
MOST_ERROR = 0.005
"""What the layers in int8 may change together, as the sum of 1 − cosine of each alone."""
MOST_LAYERS = 1 / 8
"""Share of the layers that may stay float32 for the sake of `MOST_ERROR`; accuracy may need more."""

Feed = dict[str, NDArray[Any]]
Errors = Mapping[str, float]
"""By layer: what its int8 alone changes, as 1 − the mean cosine of a feature to that in float32."""


def layer_errors(proto: onnx.ModelProto, feed: Feed, output: str, threads: int) -> dict[str, float]:
    """The error of every linear layer of a graph.

    `feed`: inputs of a few samples; `output`: the feature that is looked at.
    """
    layers = linear_layers(proto)
    expected = _run(proto, feed, output, threads)
    errors = {}
    for layer in progress(layers, "measuring layers in int8"):
        found = _run(quantise(proto, set(layers) - {layer}), feed, output, threads)
        errors[layer] = 1 - float(cosines(expected, found).mean())
    return errors


def outlier_layers(errors: Errors) -> int:
    """Number of layers, the worst first, without which the errors of all others are within `MOST_ERROR`.

    The errors of layers add up nearly, and few layers cause most of them: those whose inputs have a channel
    far beyond the others, which takes up the whole range of int8. At most `MOST_LAYERS` of all.
    """
    left = np.cumsum(sorted(errors.values()))  # of a layer and all that are better
    return min(int((left > MOST_ERROR).sum()), int(MOST_LAYERS * len(errors)))


def choose_layers(errors: Errors, is_good: Callable[[tuple[str, ...]], bool]) -> tuple[str, ...]:
    """The layers to leave in float32: the outliers, and twice as many until `is_good`, the worst first.

    `is_good` says whether a choice is accurate enough; all layers are left where nothing else is.
    """
    order = tuple(sorted(errors, key=lambda name: -errors[name]))
    count = outlier_layers(errors)
    while not is_good(order[:count]) and count < len(order):
        count = max(1, 2 * count)
    return order[:count]


def _run(proto: onnx.ModelProto, feed: Feed, output: str, threads: int) -> NDArray[Any]:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), session_options(threads), providers=["CPUExecutionProvider"]
    )
    found: NDArray[Any] = session.run([output], feed)[0]
    return found
