"""The picture of a plan: a row per model."""

import pytest
from models_plot import models_plot

from slimreid.errors import ConfigError


def test_models_stand_one_below_the_other():
    (axes,) = models_plot(dict.fromkeys(("baseline", "sdtps", "demo"), (0.5, 0.6))).axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["baseline", "sdtps", "demo"]
    assert [text.get_text() for text in axes.texts] == ["55.0"] * 3
    assert axes.get_ylim()[0] > axes.get_ylim()[1]


def test_nothing_cannot_be_drawn():
    with pytest.raises(ConfigError, match="at least one finished run"):
        models_plot({})
