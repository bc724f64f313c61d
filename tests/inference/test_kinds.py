"""Kinds of features: joined and normalised as torch does it."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from slimreid.inference.kinds import join_branches


def test_branches_are_joined_and_normalised():
    rng = np.random.default_rng(0)
    branches = {"original": rng.normal(size=(5, 6)), "slimmed": rng.normal(size=(5, 4))}
    branches = {name: x.astype(np.float32) for name, x in branches.items()}
    branches["slimmed"][2] = 0
    whole = torch.from_numpy(np.concatenate(list(branches.values()), axis=1))
    np.testing.assert_allclose(join_branches(branches, "both"), F.normalize(whole).numpy(), atol=1e-7)
    slimmed = join_branches(branches, "slimmed")
    np.testing.assert_allclose(slimmed, F.normalize(torch.from_numpy(branches["slimmed"])), atol=1e-7)
    assert slimmed.dtype == np.float32
    assert not slimmed[2].any(), "a feature of zeros stays what it is"
