"""Which linear layers cost the most accuracy in int8, so that these stay float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

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
        errors.append(1 - _mean_cosine(expected, found))
    return [layers[at] for at in np.argsort(-np.array(errors), kind="stable").tolist()]


def choose_layers(
    ranked: Callable[[], Sequence[str]], is_good: Callable[[tuple[str, ...]], bool]
) -> tuple[str, ...]:
    """The layers to leave in float32: none if that is good already, else the first 1, 2, 4, ... of `ranked`.

    `is_good` says whether a choice is accurate enough; all layers are left where nothing else is.
    """
    if is_good(()):
        return ()
    order = tuple(ranked())
    for count in _counts(len(order)):
        if is_good(order[:count]) or count == len(order):
            return order[:count]
    return order


def _counts(most: int) -> Iterator[int]:
    """1, 2, 4, ... and `most` itself."""
    count = 1
    while count < most:
        yield count
        count *= 2
    yield most


def _run(proto: onnx.ModelProto, feed: Feed, output: str, threads: int) -> NDArray[Any]:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), session_options(threads), providers=["CPUExecutionProvider"]
    )
    found: NDArray[Any] = session.run([output], feed)[0]
    return found


def _mean_cosine(first: NDArray[Any], second: NDArray[Any]) -> float:
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(((first * second).sum(1) / norms).mean())
