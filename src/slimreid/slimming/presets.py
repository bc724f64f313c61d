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
from slimreid.slimming.stages import WARMUP_SHAPES, check_schedule


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
    where: str = "after"
    """Slim `after` the backbone (all blocks see all patches), or `inside`, where it saves computation."""
    schedule: tuple[tuple[float, float], ...] = ((0.25, 0.5), (0.5, 0.2))
    """Inside: pairs of (position as a share of the depth, share of the original patches kept from there)."""
    sources: tuple[str, ...] = ("learned", "own", "others")
    """Inside: what a score is made of; `learned`, `own`, `others`, `attention`, or `random` alone."""
    leftover: str = "single"
    """Inside: dropped patches go on as a `single` token, as one per region (`regions`), or not (`none`)."""
    regions: tuple[int, int] = (2, 2)
    """Inside: regions (down, across) with a leftover token each, for `leftover: regions`."""
    soft_keys: bool = False
    """Inside: log D is added to the attention logits of later blocks, so that the estimator has an effect."""
    keep_warmup_epochs: int = 0
    """Inside: epochs in which the shares kept shrink from 1 to their values while training."""
    keep_warmup_shape: str = "linear"
    """Inside: how they shrink, `linear` or `cosine`."""

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
        if self.where == "inside":
            _check_inside(self)
            return
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in _INSIDE:
            if getattr(self, name) != defaults[name]:
                raise ConfigError(f"{name}: is for slimming inside the backbone; set where to 'inside'")
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
    "where": ("after", "inside"),
    "leftover": ("single", "regions", "none"),
    "keep_warmup_shape": WARMUP_SHAPES,
}

INSIDE_SOURCES = ("learned", "own", "others", "attention", "random")

_INSIDE = (
    "schedule",
    "sources",
    "leftover",
    "regions",
    "soft_keys",
    "keep_warmup_epochs",
    "keep_warmup_shape",
)


def _check_inside(options: SlimmingOptions) -> None:
    """Raise `ConfigError` where options of slimming inside contradict each other or have no effect."""
    check_schedule(options.schedule)
    sources = options.sources
    for name in sources:
        if name not in INSIDE_SOURCES:
            raise ConfigError(f"sources: '{name}' is unknown{_nearest(name, INSIDE_SOURCES)}")
    if not sources or len(set(sources)) != len(sources):
        raise ConfigError(f"sources: {list(sources)} are not one or more different ones")
    if "random" in sources and len(sources) > 1:
        raise ConfigError("sources: 'random' is a score of its own and goes with no other")
    for name, value in (("learned", True), ("keep_ratio", 0.5), ("zero_leftover", False)):
        if getattr(options, name) != value:
            instead = {"learned": "sources", "keep_ratio": "schedule", "zero_leftover": "leftover"}[name]
            raise ConfigError(f"{name}: is for slimming after the backbone; inside, '{instead}' decides")
    if options.ratio_loss != "none":
        raise ConfigError("ratio_loss: the share kept inside is fixed, so the loss has no effect; use 'none'")
    if options.leftover == "regions" and (min(options.regions) < 1 or options.regions == (1, 1)):
        raise ConfigError(f"regions: {options.regions} are not two or more; use leftover 'single' for one")
    if options.keep_warmup_epochs < 0:
        raise ConfigError(f"keep_warmup_epochs: {options.keep_warmup_epochs} is negative")
    into_merge = options.merge != "none" and options.decision_in_merge
    if options.soft_keys and options.estimator == "topk":
        raise ConfigError("soft_keys: has no effect with estimator 'topk'; use 'soft_topk' or 'gumbel'")
    if options.estimator != "topk" and not (options.soft_keys or into_merge):
        raise ConfigError(
            f"estimator: '{options.estimator}' has no effect without soft_keys or a merge that D reaches"
        )
    trained = options.selection_gradient and (options.leftover != "none" or options.estimator != "topk")
    if "learned" in sources and not trained:
        raise ConfigError(
            "sources: 'learned' would get no gradient, neither from a leftover nor from an estimator; "
            "leave it out, or change leftover, estimator or selection_gradient"
        )


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
