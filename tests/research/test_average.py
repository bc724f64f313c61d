"""research/average.py: the mean of the weights of models of one kind."""

from __future__ import annotations

import average
import numpy as np
import pytest
import torch

from slimreid.errors import ModelError
from slimreid.inference.load import load_trained
from slimreid.inference.trained_model import write_model
from support.models import SLIM, write_random_model
from support.runs import write_set


def test_the_mean_is_that_of_plain_loops():
    rng = np.random.default_rng(0)
    states = [
        {"w": torch.from_numpy(rng.standard_normal((2, 3)).astype(np.float32)), "n": torch.tensor(k)}
        for k in (4, 5)
    ]
    found = average.average(states, [1.0, 3.0])
    for i in range(2):
        for j in range(3):
            expected = 0.25 * float(states[0]["w"][i, j]) + 0.75 * float(states[1]["w"][i, j])
            assert float(found["w"][i, j]) == pytest.approx(expected, abs=1e-6)
    assert int(found["n"]) == 5, "whole numbers are those of the last"


@pytest.mark.parametrize("other", [{"w": torch.zeros(3)}, {"w": torch.zeros(2), "v": torch.zeros(1)}, {}])
def test_models_that_differ_are_refused(other):
    with pytest.raises(ModelError, match=r"these differ in '[wv]'"):
        average.average([{"w": torch.zeros(2)}, other], [1, 1])


def test_a_model_file_is_written_with_its_statistics(tmp_path):
    manifest = write_set(tmp_path / "set")
    first = write_random_model(tmp_path / "a", manifest, *SLIM, modalities=("rgb", "tir"))
    state = {n: 3 * v if v.is_floating_point() else v for n, v in first.model.state_dict().items()}
    write_model(tmp_path / "b" / "model.safetensors", state, first.card)
    words = [str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "mean")]
    assert average.main(words) == 0
    found = load_trained(tmp_path / "mean")
    for name, value in found.model.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, 2 * first.model.state_dict()[name])
    assert found.impostors
    assert found.identities == first.identities
