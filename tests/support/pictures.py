"""Small results to draw."""

from __future__ import annotations

import numpy as np
from PIL import Image

from slimreid.evaluation import RetrievalResult
from support.retrieval import retrieve


def solid(colour: tuple[int, int, int], size: tuple[int, int] = (40, 80)) -> Image.Image:
    return Image.new("RGB", size, colour)


def retrieval_case(seed: int = 0) -> dict[str, np.ndarray]:
    """Six identities, three cameras; the last query has no correct match."""
    rng = np.random.default_rng(seed)
    ids, cameras = np.repeat(np.arange(6), 9), np.tile(np.arange(3), 18)
    features = rng.normal(size=(6, 8))[ids] + 1.2 * rng.normal(size=(54, 8))
    query = np.append(np.arange(0, 54, 4), 53)
    case = {
        "query_features": features[query],
        "gallery_features": features,
        "query_ids": ids[query].copy(),
        "gallery_ids": ids,
        "query_cameras": cameras[query],
        "gallery_cameras": cameras,
    }
    case["query_ids"][-1] = 77
    return case


def retrieval_result(seed: int = 0, **options: object) -> RetrievalResult:
    return retrieve(**retrieval_case(seed), roc=True, **options)
