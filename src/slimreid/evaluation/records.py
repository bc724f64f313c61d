"""Results as plain values for JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimreid.evaluation.bootstrap import Interval
from slimreid.evaluation.camera_pairs import CameraPairs
from slimreid.evaluation.parts import Side
from slimreid.evaluation.result import RetrievalResult
from slimreid.evaluation.roc import BINS, OperatingPoint, ScoreHistogram


def nullable(values: NDArray[np.floating]) -> list[Any]:
    """A list, nested as the array is, with None for NaN, which JSON does not know."""
    objects = values.astype(np.float64).astype(object)
    objects[np.isnan(values)] = None
    nested: list[Any] = objects.tolist()
    return nested


def result_to_dict(result: RetrievalResult) -> dict[str, Any]:
    """Figures of a result, and all that belongs to single queries; the histogram is kept elsewhere."""
    figures = replace(result, histogram=None).to_dict()
    figures["cmc_curve"] = result.cmc.tolist()
    figures["queries"] = {
        "identity": result.query_ids.tolist(),
        "average_precision": nullable(result.average_precision),
        "inverse_penalty": nullable(result.inverse_penalty),
        "first_hit": result.first_hit.tolist(),
        "matches": result.matches.tolist(),
        "candidates": result.candidates.tolist(),
        "top_index": result.top_index.tolist(),
        "top_distance": nullable(result.top_distance.astype(np.float64).round(6)),
        "top_right": result.top_right.astype(int).tolist(),
    }
    return figures


def result_from_dict(values: Mapping[str, Any], histogram: ScoreHistogram | None = None) -> RetrievalResult:
    """The result that `result_to_dict` described; raises `DataError` where it contradicts itself."""
    queries = values["queries"]
    shape = np.array(queries["top_index"], dtype=np.int64).reshape(len(queries["identity"]), -1)
    return RetrievalResult(
        protocol=values["protocol"],
        query_ids=np.array(queries["identity"]),
        average_precision=np.array(queries["average_precision"], dtype=np.float64),
        inverse_penalty=np.array(queries["inverse_penalty"], dtype=np.float64),
        first_hit=np.array(queries["first_hit"], dtype=np.int64),
        matches=np.array(queries["matches"], dtype=np.int64),
        candidates=np.array(queries["candidates"], dtype=np.int64),
        cmc=np.array(values["cmc_curve"], dtype=np.float64),
        top_index=shape,
        top_distance=np.array(queries["top_distance"], dtype=np.float32).reshape(shape.shape),
        top_right=np.array(queries["top_right"], dtype=np.bool_).reshape(shape.shape),
        histogram=histogram,
    )


def histogram_to_dict(histogram: ScoreHistogram) -> dict[str, Any]:
    """The bins that are not empty: their numbers, and the true and false pairs in them."""
    bins = np.flatnonzero(histogram.true + histogram.false)
    return {
        "bin": bins.tolist(),
        "true": histogram.true[bins].tolist(),
        "false": histogram.false[bins].tolist(),
    }


def histogram_from_dict(values: Mapping[str, Any]) -> ScoreHistogram:
    """The histogram that `histogram_to_dict` described."""
    bins = np.array(values["bin"], dtype=np.int64)
    counts = {}
    for name in ("true", "false"):
        counts[name] = np.zeros(BINS, dtype=np.int64)
        counts[name][bins] = np.array(values[name], dtype=np.int64)
    return ScoreHistogram(**counts)


def interval_to_dict(interval: Interval) -> dict[str, Any]:
    """Ready for JSON: bounds that do not exist become None."""
    return {name: None if value != value else value for name, value in interval.to_dict().items()}


def interval_from_dict(values: Mapping[str, Any]) -> Interval:
    """The interval that `interval_to_dict` described."""
    filled = {name: float("nan") if value is None else value for name, value in values.items()}
    return Interval(**filled)  # type: ignore[arg-type]


def pairs_from_dict(values: Mapping[str, Any]) -> CameraPairs:
    """The table that `CameraPairs.to_dict` described."""
    return CameraPairs(
        query_cameras=np.array(values["query_cameras"]),
        gallery_cameras=np.array(values["gallery_cameras"]),
        map=np.array(values["map"], dtype=np.float64),
        queries=np.array(values["queries"], dtype=np.int64),
    )


def points_from_list(values: list[Mapping[str, Any]]) -> list[OperatingPoint]:
    """The operating points that their `to_dict` described."""
    return [OperatingPoint(**point) for point in values]


def side_to_dict(side: Side) -> dict[str, Any]:
    """Ready for JSON; paths are one column per modality, None where a sample lacks it."""
    names = list(dict.fromkeys(name for images in side.images for name in images))
    return {
        "row": side.rows.tolist(),
        "identity": side.identities.tolist(),
        "camera": side.cameras.tolist(),
        "images": {name: [images.get(name) for images in side.images] for name in names},
    }


def side_from_dict(values: Mapping[str, Any]) -> Side:
    """The side that `side_to_dict` described."""
    columns = values["images"]
    images = [
        {name: paths[i] for name, paths in columns.items() if paths[i] is not None}
        for i in range(len(values["row"]))
    ]
    return Side(
        rows=np.array(values["row"], dtype=np.int64),
        identities=np.array(values["identity"], dtype=np.str_),
        cameras=np.array(values["camera"], dtype=np.str_),
        images=tuple(images),
    )


def dump(value: Any, indent: str = "") -> str:
    """JSON with one key per line, but long rows of numbers and texts on one line each."""
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        lines = [
            f"{inner}{json.dumps(str(k), ensure_ascii=False)}: {dump(v, inner)}" for k, v in value.items()
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (list, Mapping)) for item in value):
        return "[\n" + ",\n".join(f"{inner}{dump(item, inner)}" for item in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
