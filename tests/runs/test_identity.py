"""What makes two runs the same."""

from dataclasses import replace

from slimreid.config import Config, OptimConfig
from slimreid.runs.identity import changed_keys, deciding_options


def test_an_option_that_an_earlier_version_did_not_have_counts_as_its_default():
    new = deciding_options(Config())
    old = {key: value for key, value in new.items() if key != "transforms.degrade.occlusion"}
    assert len(old) == len(new) - 1
    assert not changed_keys(old, new)
    other = {**new, "transforms.degrade.occlusion": 0.5}
    assert changed_keys(old, other) == {
        "transforms.degrade.occlusion": "transforms.degrade.occlusion: 0.0 before, 0.5 now"
    }


def test_options_that_differ_are_named_with_both_values():
    old, new = Config(), Config(optim=OptimConfig(lr=0.5))
    changed = changed_keys(deciding_options(old), deciding_options(new))
    assert changed == {"optim.lr": f"optim.lr: {old.optim.lr!r} before, 0.5 now"}
    assert not changed_keys(deciding_options(old), deciding_options(replace(old, seed=7)))


def test_an_option_that_is_no_more_is_a_difference():
    options = deciding_options(Config())
    assert list(changed_keys({**options, "optim.gone": 3}, options)) == ["optim.gone"]
