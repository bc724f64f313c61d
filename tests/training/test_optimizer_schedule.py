"""The learning rate over the epochs, for every option of the schedule."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slimreid.config import OptimConfig
from slimreid.training.optimizer import LRSchedule, lr_at

RECIPE = OptimConfig()  # lr 3.5e-4, backbone 5e-6, 10 warm-up epochs, start 0.1, final 0.001
EPOCHS = 50


@pytest.mark.parametrize(("group", "half"), [(3.5e-4, 1.925e-4), (7e-4, 3.675e-4), (5e-6, 2e-5)])
def test_warm_up_of_the_recipe_starts_every_group_alike(group, half):
    assert lr_at(group, 0, EPOCHS, RECIPE) == pytest.approx(3.5e-5)
    assert lr_at(group, 5, EPOCHS, RECIPE) == pytest.approx(half)
    assert lr_at(group, 10, EPOCHS, RECIPE) == pytest.approx(group)


@pytest.mark.parametrize("group", [3.5e-4, 7e-4, 5e-6])
def test_cosine_of_the_recipe_ends_every_group_alike(group):
    assert lr_at(group, 30, EPOCHS, RECIPE) == pytest.approx((group + 3.5e-7) / 2)
    assert lr_at(group, 20, EPOCHS, RECIPE) == pytest.approx(
        3.5e-7 + (group - 3.5e-7) * (1 + math.cos(math.pi / 4)) / 2
    )
    for epoch in (50, 51, 1000):
        assert lr_at(group, epoch, EPOCHS, RECIPE) == pytest.approx(3.5e-7)


@pytest.mark.parametrize(
    ("change", "epoch", "expected"),
    [
        ({"warmup_epochs": 4}, 2, (3.5e-5 + 3.5e-4) / 2),
        ({"warmup_epochs": 0}, 0, 3.5e-4),
        ({"warmup_epochs": 0}, 25, (3.5e-4 + 3.5e-7) / 2),
        ({"lr": 1e-3}, 0, 1e-4),
    ],
    ids=str,
)
def test_every_option_changes_the_curve(change, epoch, expected):
    assert lr_at(3.5e-4, epoch, EPOCHS, replace(RECIPE, **change)) == pytest.approx(expected)


@given(st.floats(0, 60), st.sampled_from([3.5e-4, 5e-6]))
def test_the_curve_has_no_jump_and_stays_between_its_ends(epoch, group):
    here, there = (lr_at(group, e, EPOCHS, RECIPE) for e in (epoch, epoch + 1e-6))
    assert abs(there - here) < 1e-9
    assert 3.5e-7 * (1 - 1e-9) <= here <= 3.5e-4


def test_schedule_sets_each_group_and_needs_no_state():
    def make():
        groups = [
            {"name": name, "params": [torch.nn.Parameter(torch.ones(1))], "lr": lr}
            for name, lr in (("backbone.weight", 5e-6), ("new.weight", 3.5e-4))
        ]
        return torch.optim.Adam(groups)

    optimizer = make()
    schedule = LRSchedule(optimizer, RECIPE, EPOCHS)
    assert schedule.rates() == pytest.approx({"backbone.weight": 3.5e-5, "new.weight": 3.5e-5})
    seen = []
    for epoch in range(EPOCHS):
        schedule.set_epoch(epoch)
        seen.append(schedule.rates())
        if epoch == 20:
            saved = optimizer.state_dict()
    assert seen[10] == pytest.approx({"backbone.weight": 5e-6, "new.weight": 3.5e-4})
    resumed = make()
    again = LRSchedule(resumed, RECIPE, EPOCHS)
    resumed.load_state_dict(saved)
    assert again.rates() == seen[20]
    again.set_epoch(33)
    assert again.rates() == seen[33], "bit for bit as without the interruption"
