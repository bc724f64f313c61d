"""Which linear layers cost the most accuracy in int8, so that these stay float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

Feed = dict[str, NDArray[Any]]


def rank_layers(proto: onnx.ModelProto, feed: Feed, output: str, threads: int) -> list[str]:
    """The linear layers of a graph, those first whose int8 alone changes an output most.

    `feed`: inputs of a few samples; the change is 1 − the mean cosine to the output in float32.
    """
    layers = linear_layers(proto)
    expected = _run(proto, feed, output, threads)
    errors = []
    for layer in progress(layers, "measuring layers in int8"):
        found = _run(quantise(proto, set(layers) - {layer}), feed, output, threads)
        errors.append(1 - float(cosines(expected, found).mean()))
    return [layers[at] for at in np.argsort(-np.array(errors), kind="stable").tolist()]


def choose_layers(
    ranked: Callable[[], Sequence[str]], is_good: Callable[[tuple[str, ...]], bool]
) -> tuple[str, ...]:
    """The layers to leave in float32: none if that is good already, else the first 1, 2, 4, ... of `ranked`.

    `is_good` says whether a choice is accurate enough; all layers are left where nothing else is.
    """
    if is_good(()):
        return ()
    order, count = tuple(ranked()), 1
    while not is_good(order[:count]) and count < len(order):
        count *= 2
    return order[:count]


def _run(proto: onnx.ModelProto, feed: Feed, output: str, threads: int) -> NDArray[Any]:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), session_options(threads), providers=["CPUExecutionProvider"]
    )
    found: NDArray[Any] = session.run([output], feed)[0]
    return found
