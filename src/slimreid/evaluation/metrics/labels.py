"""What evaluation takes in: features and labels, from torch or numpy, checked once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimreid.arrays import Ints
from slimreid.data.manifest import PROTOCOLS, Protocol
from slimreid.errors import ConfigError, DataError

Features = Tensor | NDArray[np.floating]
LabelArray = Tensor | NDArray[np.generic] | Sequence[int] | Sequence[str]
LabelPair = tuple[LabelArray | None, LabelArray | None]
"""Labels of (query, gallery), both or neither."""

_NORM_ROWS = 4096
"""Rows whose norms are taken at once: float64 copies of more would show in the memory."""


@dataclass(frozen=True, eq=False)
class Labels:
    """Who and where Q queries and G gallery items are: whole numbers or text, (Q,) and (G,) each.

    Raises `ConfigError` for an unknown protocol, `DataError` naming the label that is missing or wrong.
    """

    query_ids: LabelArray
    gallery_ids: LabelArray
    query_cameras: LabelArray | None = None
    gallery_cameras: LabelArray | None = None
    query_scenes: LabelArray | None = None
    gallery_scenes: LabelArray | None = None
    query_index: LabelArray | None = None
    """Under protocol `none`: which sample each row is, so that a query does not find itself."""
    gallery_index: LabelArray | None = None
    protocol: Protocol = "camera"
    """Which gallery items a query ignores, see `ranking`."""

    def __post_init__(self) -> None:
        self.encoded  # noqa: B018 - labels are checked when they are made

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return len(self.query_ids), len(self.gallery_ids)

    @cached_property
    def encoded(self) -> EncodedLabels:
        """The labels as numbers, as far as the protocol needs them."""
        return _encode(self)

    def cameras(self) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Cameras of queries (Q,) and gallery (G,); raises `DataError` where there are none."""
        if self.query_cameras is None or self.gallery_cameras is None:
            raise DataError("camera pairs need query_cameras and gallery_cameras")
        Q, G = self.shape
        query = as_labels(self.query_cameras, "query_cameras", Q)
        return query, as_labels(self.gallery_cameras, "gallery_cameras", G)


@dataclass(frozen=True)
class EncodedLabels:
    """Who is who in Q queries and G gallery items, as whole numbers, under one protocol.

    `query_names`: (Q,) identities as given. `query_ids`, `gallery_ids`: (Q,), (G,), numbered together.
    `query_places`, `gallery_places`: what the protocol compares (camera, scene, or the sample itself under
    `none`); None where nothing is to be ignored.
    """

    protocol: Protocol
    query_names: NDArray[np.generic]
    query_ids: Ints
    gallery_ids: Ints
    query_places: Ints | None
    gallery_places: Ints | None


def check_sizes(labels: Labels, sizes: tuple[int, int]) -> None:
    """Raise `DataError` unless there is a label for each of (Q, G) rows of features."""
    for side, found, wanted in zip(("query", "gallery"), labels.shape, sizes, strict=True):
        if found != wanted:
            raise DataError(f"{side}_ids must have one entry per row, ({wanted},), not ({found},)")


def as_features(features: Features, name: str) -> tuple[Tensor, Tensor]:
    """Features (R, D) as a float32 (or float64) tensor, not copied if they are that already; norms (R,).

    Half precision becomes float32. Raises `DataError` for another shape or type, for no rows, and for a
    row with NaN or infinity.
    """
    tensor = features if isinstance(features, Tensor) else _from_numpy(np.asarray(features), name)
    tensor = tensor.detach()
    if tensor.ndim != 2 or not tensor.is_floating_point():
        raise DataError(
            f"{name} must be floating point (rows, channels), not {tensor.dtype} {tuple(tensor.shape)}"
        )
    R, D = tensor.shape
    if R == 0 or D == 0:
        raise DataError(f"{name} is empty, shape {(R, D)}; evaluation needs at least one row of each side")
    if tensor.dtype != torch.float64:
        tensor = tensor.float()
    parts = torch.split(tensor, _NORM_ROWS)
    norms = torch.cat([torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in parts])
    if not bool(norms.isfinite().all()):
        row = int((~norms.isfinite()).nonzero()[0])
        what = "NaN" if bool(tensor[row].isnan().any()) else "infinity"
        raise DataError(
            f"{name}: row {row} has {what}; look at that sample, or at a model or precision that overflows"
        )
    return tensor, norms


def as_feature_pair(query: Features, gallery: Features) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both sides (Q, D) and (G, D) in one precision, and their norms; raises `DataError` as `as_features`."""
    query_tensor, query_norms = as_features(query, "query_features")
    gallery_tensor, gallery_norms = as_features(gallery, "gallery_features")
    if query_tensor.shape[1] != gallery_tensor.shape[1]:
        raise DataError(
            f"query_features have {query_tensor.shape[1]} channels, gallery_features "
            f"{gallery_tensor.shape[1]}; both must come from the same model and the same kind of embedding"
        )
    if query_tensor.device != gallery_tensor.device:
        raise DataError(
            f"query_features are on {query_tensor.device}, gallery_features on {gallery_tensor.device}; "
            "move both to one device"
        )
    dtype = torch.promote_types(query_tensor.dtype, gallery_tensor.dtype)
    return query_tensor.to(dtype), gallery_tensor.to(dtype), query_norms, gallery_norms


def as_labels(labels: LabelArray, name: str, rows: int) -> NDArray[np.generic]:
    """Labels as a numpy array (rows,) of whole numbers or text; raises `DataError` for anything else."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.shape != (rows,):
        raise DataError(f"{name} must have one entry per row, ({rows},), not {array.shape}")
    if array.dtype.kind not in "iuU":
        raise DataError(f"{name} must be whole numbers or text, not {array.dtype}")
    return array


def _encode(labels: Labels) -> EncodedLabels:
    """Check all labels and keep what the protocol needs."""
    protocol, sizes = labels.protocol, labels.shape
    if protocol not in PROTOCOLS:
        raise ConfigError(f"unknown protocol '{protocol}'; use one of: {', '.join(PROTOCOLS)}")
    if min(sizes) == 0:
        raise DataError(
            f"{sizes[0]} queries and {sizes[1]} gallery items; evaluation needs at least one of each"
        )
    ids = _encode_pair((labels.query_ids, labels.gallery_ids), "ids", sizes)
    assert ids is not None
    scenes = labels.query_scenes, labels.gallery_scenes
    places = {
        "camera": _encode_pair((labels.query_cameras, labels.gallery_cameras), "cameras", sizes),
        "scene": _encode_pair(scenes, "scenes", sizes),
        "none": _encode_pair((labels.query_index, labels.gallery_index), "index", sizes),
    }[protocol]
    if places is None and protocol != "none":
        raise DataError(f"protocol '{protocol}' needs query_{protocol}s and gallery_{protocol}s")
    if places is not None and protocol == "scene":
        _refuse_unknown_scenes(scenes, sizes)
    if places is not None and protocol == "none":
        _check_samples(ids, places)
    names = as_labels(labels.query_ids, "query_ids", sizes[0])
    return EncodedLabels(protocol, names, *ids, *(places or (None, None)))


def _encode_pair(pair: LabelPair, name: str, sizes: tuple[int, int]) -> tuple[Ints, Ints] | None:
    """Both sides numbered together, so that equal labels and only those get equal numbers."""
    query, gallery = pair
    if query is None and gallery is None:
        return None
    if query is None or gallery is None:
        there, missing = ("gallery", "query") if query is None else ("query", "gallery")
        raise DataError(f"{there}_{name} is given but {missing}_{name} is not; give both or neither")
    q = as_labels(query, f"query_{name}", sizes[0])
    g = as_labels(gallery, f"gallery_{name}", sizes[1])
    if (q.dtype.kind == "U") != (g.dtype.kind == "U"):
        raise DataError(f"query_{name} are {q.dtype} but gallery_{name} {g.dtype}; use one kind for both")
    codes = np.unique(np.concatenate([q, g]), return_inverse=True)[1].astype(np.int64).reshape(-1)
    return codes[: len(q)], codes[len(q) :]


def _refuse_unknown_scenes(scenes: LabelPair, sizes: tuple[int, int]) -> None:
    for side, labels, rows in zip(("query", "gallery"), scenes, sizes, strict=True):
        if labels is None:
            continue
        array = as_labels(labels, f"{side}_scenes", rows)
        unknown = array == "" if array.dtype.kind == "U" else array.astype(np.int64) < 0
        if unknown.any():
            raise DataError(
                f"{side}_scenes: row {int(unknown.argmax())} has no scene; protocol 'scene' needs "
                "one for every row, use protocol 'camera' where the data has none"
            )


def _check_samples(ids: tuple[Ints, Ints], index: tuple[Ints, Ints]) -> None:
    """The same sample on both sides must be there once and have one identity."""
    order = np.argsort(index[1], kind="stable")
    in_order = index[1][order]
    if (in_order[1:] == in_order[:-1]).any():
        row = int(order[1:][in_order[1:] == in_order[:-1]][0])
        raise DataError(f"gallery_index: row {row} names a sample that an earlier row names too")
    at = np.searchsorted(in_order, index[0]).clip(max=len(order) - 1)
    wrong = (in_order[at] == index[0]) & (ids[1][order[at]] != ids[0])
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"query row {row} and gallery row {int(order[at[row]])} are the same sample by index, but have "
            "different identities; correct the ids or the index"
        )


def _from_numpy(array: NDArray[np.generic], name: str) -> Tensor:
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise DataError(f"{name} must be floating point (rows, channels), not {array.dtype} {array.shape}")
    with warnings.catch_warnings():
        # Read-only arrays (a memory map) are fine: nothing here writes into the features.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        return torch.from_numpy(native)
