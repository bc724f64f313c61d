"""What searches found: refusing what does not fit together."""

from __future__ import annotations

import numpy as np
import pytest

from slimreid.errors import DataError
from slimreid.gallery.decisions.searches import Searches, join_searches


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError, match="subset must be"):
        Searches(np.array(["a"]), np.zeros(1), np.zeros(1), np.array(["r", "n"]))
    with pytest.raises(DataError, match="no searches"):
        join_searches([])
