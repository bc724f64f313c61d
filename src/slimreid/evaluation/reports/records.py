"""Results as plain values for JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimreid.evaluation.metrics.bootstrap import Interval
from slimreid.evaluation.metrics.camera_pairs import CameraPairs
from slimreid.evaluation.metrics.result import RetrievalResult
from slimreid.evaluation.metrics.roc import RocCurve
from slimreid.evaluation.query_gallery import Side


def nullable(values: NDArray[np.floating]) -> list[Any]:
    """A list, nested as the array is, with None for NaN, which JSON does not know."""
    objects = values.astype(np.float64).astype(object)
    objects[np.isnan(values)] = None
    nested: list[Any] = objects.tolist()
    return nested


def result_to_dict(result: RetrievalResult) -> dict[str, Any]:
    """Figures of a result, and all that belongs to single queries; the ROC is kept elsewhere."""
    figures = replace(result, roc=None).to_dict()
    figures["cmc_curve"] = result.cmc.tolist()
    figures["queries"] = {
        "identity": result.query_ids.tolist(),
        "average_precision": nullable(result.average_precision),
        "inverse_penalty": nullable(result.inverse_penalty),
        "first_hit": result.first_hit.tolist(),
        "matches": result.matches.tolist(),
        "candidates": result.candidates.tolist(),
        "top_index": result.top_index.tolist(),
        "top_score": nullable(result.top_score.astype(np.float64).round(7)),
        "top_is_match": result.top_is_match.astype(int).tolist(),
    }
    return figures


def result_from_dict(values: Mapping[str, Any], roc: RocCurve | None = None) -> RetrievalResult:
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
        top_score=np.array(queries["top_score"], dtype=np.float32).reshape(shape.shape),
        top_is_match=np.array(queries["top_is_match"], dtype=np.bool_).reshape(shape.shape),
        roc=roc,
    )


def roc_to_dict(roc: RocCurve) -> dict[str, Any]:
    """Ready for JSON: the threshold that no pair reaches becomes None."""
    values: dict[str, Any] = {name: getattr(roc, name) for name in RocCurve.__dataclass_fields__}
    lists = {name: value.tolist() for name, value in values.items() if isinstance(value, np.ndarray)}
    lists["thresholds"] = [value if np.isfinite(value) else None for value in lists["thresholds"]]
    return {**values, **lists}


def roc_from_dict(values: Mapping[str, Any]) -> RocCurve:
    """The curve that `roc_to_dict` described."""
    arrays: dict[str, Any] = {
        name: np.array(values[name], dtype=np.float64) for name in ("false_rate", "true_rate", "edges")
    }
    arrays |= {name: np.array(values[name], dtype=np.int64) for name in ("true", "false")}
    arrays |= {name: int(values[name]) for name in ("true_pairs", "false_pairs")}
    thresholds = np.array([np.inf if value is None else value for value in values["thresholds"]])
    return RocCurve(thresholds=thresholds, **arrays)


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
