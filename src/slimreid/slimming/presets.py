"""The named sets of options that reproduce earlier versions."""

from __future__ import annotations

import dataclasses
from typing import Any

from slimreid.errors import ConfigError
from slimreid.slimming.option_checks import nearest
from slimreid.slimming.options import SlimmingOptions

__all__ = ["DEFAULT", "PRESETS", "SlimmingOptions", "slimming_options"]

DEFAULT = "sdtps"

PRESETS: dict[str, SlimmingOptions] = {
    DEFAULT: SlimmingOptions(),
    "seps_paper": SlimmingOptions(
        similarity="dot",
        merge="dual",
        branch_guides="one",
        branch_scorers="shared",
        estimator="gumbel",
        ratio_loss="paper",
    ),
    "seps_released": SlimmingOptions(
        learned=False,
        normalise="none",
        combine="sum",
        own="mean",
        decision_in_merge=False,
        similarity_gradient=False,
        selection_gradient=False,
        ratio_loss="released",
        ratio_weight=2.0,
    ),
    "seps_paper_code": SlimmingOptions(
        own="mean",
        merge="dual",
        decision_in_merge=False,
        similarity_gradient=False,
        ratio_loss="paper",
        ratio_weight=2.0,
    ),
    "demo_sdtps": SlimmingOptions(similarity_gradient=False, zero_leftover=True),
}


def slimming_options(preset: str | SlimmingOptions = DEFAULT, **changes: Any) -> SlimmingOptions:
    """Options of a preset (or given ones) with some changed.

    Raises `ConfigError` for an unknown preset or option, with the nearest known name, and for
    values out of range.
    """
    if isinstance(preset, str):
        if preset not in PRESETS:
            raise ConfigError(f"slimming preset '{preset}' is unknown{nearest(preset, PRESETS)}")
        preset = PRESETS[preset]
    known = [field.name for field in dataclasses.fields(SlimmingOptions)]
    for name in changes:
        if name not in known:
            raise ConfigError(f"slimming option '{name}' is unknown{nearest(name, known)}")
    return dataclasses.replace(preset, **changes)
