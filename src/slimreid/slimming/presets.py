"""All options of slimming, and the named sets of them that reproduce earlier versions."""

from __future__ import annotations

import dataclasses
import difflib
import math
from dataclasses import dataclass
from typing import Any

from slimreid.errors import ConfigError
from slimreid.slimming.estimators import ESTIMATORS
from slimreid.slimming.losses import RATIO_LOSSES


@dataclass(frozen=True)
class SlimmingOptions:
    """How patches are scored, kept and merged."""

    keep_ratio: float = 0.5
    """Share of patches kept per modality, in (0, 1]."""
    merge_ratio: float = 0.4
    """Merged tokens per kept patch, in (0, 1]."""
    beta: float = 0.25
    """Weight of the guides in the score, in [0, 0.5]; the learned score has 1 − 2·beta."""
    learned: bool = True
    """Whether a learned score takes part."""
    similarity: str = "cosine"
    """Likeness of a patch and a guide: `cosine`, or `dot` for v·e / C."""
    normalise: str = "minmax"
    """Whether similarities are brought to [0, 1] per image: `minmax` or `none`."""
    combine: str = "weighted"
    """Sum of the sources: `weighted` by beta (eq. 3), or the plain `sum`."""
    own: str = "global"
    """Own guide of a stream: its `global` vector, or the `mean` of its patches."""
    merge: str = "single"
    """`single` weight network, `dual` (two choices of patches, results added), or `none`."""
    branch_guides: str = "all"
    """With `merge: dual`: each choice looks at `all` guides, or at `one` each."""
    branch_scorers: str = "own"
    """With `merge: dual`: each choice has its `own` learned score, or one is `shared`."""
    estimator: str = "topk"
    """Gradient of the choice while training: `topk` (none), `gumbel` or `soft_topk`."""
    tau: float = 1.0
    """Temperature of the estimator, over 0."""
    decision_in_merge: bool = True
    """Whether the decision D masks the merge logits; only so the estimator's gradient has an effect."""
    similarity_gradient: bool = True
    """Whether gradients flow through the similarities."""
    selection_gradient: bool = True
    """Whether kept and leftover patches carry gradients."""
    zero_leftover: bool = False
    """Append a zero token when nothing is dropped, so that the number of tokens never changes."""
    ratio_loss: str = "none"
    """Loss on the share kept: `none`, `paper` or `released`."""
    ratio_weight: float = 1.0
    """Weight of the ratio loss."""
    ratio_target: float | None = None
    """Share that the ratio loss aims at; keep_ratio unless given."""
    ratio_lambdas: tuple[float, float] = (1.0, 1.0)
    """Weight of each decision in the `paper` ratio loss."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(f"{name}: '{value}' is unknown{_nearest(str(value), choices)}")
        for name in ("keep_ratio", "merge_ratio"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"{name}: {getattr(self, name)} is not in (0, 1]")
        if not 0 <= self.beta <= 0.5:
            raise ConfigError(f"beta: {self.beta} is not in [0, 0.5]")
        if not 0 < self.tau < math.inf:
            raise ConfigError(f"tau: {self.tau} is not a finite number over 0")
        if self.ratio_target is not None and not 0 <= self.ratio_target <= 2:
            raise ConfigError(f"ratio_target: {self.ratio_target} is not in [0, 2]")
        if self.merge == "none" and self.estimator != "topk":
            raise ConfigError(
                f"estimator: '{self.estimator}' has no effect with merge 'none'; use 'topk' or merge"
            )

    @property
    def branches(self) -> int:
        """Number of choices of patches made side by side."""
        return 2 if self.merge == "dual" else 1


_CHOICES: dict[str, tuple[str, ...]] = {
    "similarity": ("cosine", "dot"),
    "normalise": ("minmax", "none"),
    "combine": ("weighted", "sum"),
    "own": ("global", "mean"),
    "merge": ("single", "dual", "none"),
    "branch_guides": ("all", "one"),
    "branch_scorers": ("own", "shared"),
    "estimator": ESTIMATORS,
    "ratio_loss": RATIO_LOSSES,
}

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
            raise ConfigError(f"slimming preset '{preset}' is unknown{_nearest(preset, PRESETS)}")
        preset = PRESETS[preset]
    known = [field.name for field in dataclasses.fields(SlimmingOptions)]
    for name in changes:
        if name not in known:
            raise ConfigError(f"slimming option '{name}' is unknown{_nearest(name, known)}")
    return dataclasses.replace(preset, **changes)


def _nearest(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"{hint} (known: {', '.join(known)})"
