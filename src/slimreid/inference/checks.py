"""What can go wrong while images are embedded, said so that a person can mend it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from slimreid.errors import DataError, ModelError
from slimreid.inference.kinds import Floats
from slimreid.memory import is_out_of_memory


@contextmanager
def memory_explained(samples: int) -> Iterator[None]:
    """Raise `ModelError` with a cure where a batch of so many samples does not fit into memory."""
    try:
        yield
    except Exception as error:  # torch and onnxruntime raise errors of their own
        if not is_out_of_memory(error):
            raise
        raise ModelError(
            f"not enough memory to embed {samples} samples at once; take fewer with --batch"
        ) from None


def check_finite(features: Floats, names: Sequence[object]) -> None:
    """Raise `DataError` naming the first of the samples whose feature, a row of (B, D), is not finite."""
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(wrong):
        raise DataError(
            f"{names[wrong[0]]}: its feature has NaN or infinity ({len(wrong)} of {len(features)} samples); "
            "are the weights whole, and was the model trained in this precision?"
        )
