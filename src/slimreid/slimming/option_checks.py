"""Which options of slimming go together; what contradicts another option or has no effect is refused."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from slimreid.errors import ConfigError
from slimreid.slimming.estimators import ESTIMATORS
from slimreid.slimming.losses import RATIO_LOSSES
from slimreid.slimming.stages import WARMUP_SHAPES, check_schedule

if TYPE_CHECKING:
    from slimreid.slimming.options import SlimmingOptions

CHOICES: dict[str, tuple[str, ...]] = {
    "similarity": ("cosine", "dot"),
    "normalise": ("minmax", "none"),
    "combine": ("weighted", "sum"),
    "own": ("global", "mean"),
    "merge": ("single", "dual", "none"),
    "branch_guides": ("all", "one"),
    "branch_scorers": ("own", "shared"),
    "estimator": ESTIMATORS,
    "selection": ("hard", "soft"),
    "ratio_loss": RATIO_LOSSES,
    "where": ("after", "inside"),
    "leftover": ("single", "regions", "nearest", "none"),
    "keep_warmup_shape": WARMUP_SHAPES,
}

KNOWN_SOURCES = ("learned", "own", "others", "attention", "contrast", "others_contrast", "random")
FROM_OTHERS = ("others", "others_contrast")
"""Sources that say nothing when no other stream is there."""

INSIDE_ONLY = (
    "schedule",
    "leftover",
    "redundancy",
    "regions",
    "soft_keys",
    "keep_warmup_epochs",
    "keep_warmup_shape",
)


def check_sources(options: SlimmingOptions) -> None:
    """Raise `ConfigError` unless the sources are known, different, and make a score."""
    for name in options.sources:
        if name not in KNOWN_SOURCES:
            raise ConfigError(f"sources: '{name}' is unknown{nearest(name, KNOWN_SOURCES)}")
    if not options.used or len(set(options.sources)) != len(options.sources):
        raise ConfigError(f"sources: {list(options.used)} are not one or more different ones")
    if "random" in options.sources and len(options.sources) > 1:
        raise ConfigError("sources: 'random' is a score of its own and goes with no other")
    if options.branches == 2:
        for name in ("others_contrast", "random"):
            if name in options.sources:
                raise ConfigError(f"sources: '{name}' does not tell two choices apart; use merge 'single'")
    if options.centre and not {"own", "others"} & set(options.used):
        raise ConfigError("centre: is for the similarities of 'own' and 'others', and neither is a source")


def check_streams(options: SlimmingOptions, streams: int) -> None:
    """Raise `ConfigError` where all sources look at other streams and there is only one."""
    if streams < 2 and set(options.used) <= set(FROM_OTHERS):
        names = " and ".join(f"'{name}'" for name in options.used)
        raise ConfigError(f"sources: {names} alone need a second modality; add 'own' or 'contrast'")


def check_estimator(options: SlimmingOptions) -> None:
    """Raise `ConfigError` where a gradient of the choice is asked for but reaches nothing."""
    estimator = options.estimator
    if estimator == "topk":
        for name, off in (("tau_final", None), ("weigh_kept", False), ("selection", "hard")):
            if getattr(options, name) != off:
                raise ConfigError(f"{name}: has no effect with estimator 'topk'; use 'soft_topk' or 'gumbel'")
    elif options.where == "after" and options.merge == "none" and not options.weigh_kept:
        raise ConfigError(
            f"estimator: '{estimator}' has no effect with merge 'none'; use 'topk', a merge or weigh_kept"
        )
    if not options.noise and estimator != "gumbel":
        raise ConfigError(f"noise: only 'gumbel' has any, and estimator is '{estimator}'")
    if options.selection == "soft":
        if options.where == "inside":
            raise ConfigError("selection: 'soft' drops nothing while training, so it is for where 'after'")
        if options.merge == "none" or not options.decision_in_merge or options.weigh_kept:
            raise ConfigError(
                "selection: 'soft' weighs patches in a merge: it needs one, decision_in_merge, no weigh_kept"
            )
        if options.ratio_loss != "none":
            raise ConfigError("ratio_loss: has no effect on soft weights, whose sum is fixed; use 'none'")


def check_inside(options: SlimmingOptions) -> None:
    """Raise `ConfigError` where options of slimming inside contradict each other or have no effect."""
    check_schedule(options.schedule)
    for name, value in (("learned", True), ("keep_ratio", 0.5), ("zero_leftover", False)):
        if getattr(options, name) != value:
            instead = {"learned": "sources", "keep_ratio": "schedule", "zero_leftover": "leftover"}[name]
            raise ConfigError(f"{name}: is for slimming after the backbone; inside, '{instead}' decides")
    if options.ratio_loss != "none":
        raise ConfigError("ratio_loss: the share kept inside is fixed, so the loss has no effect; use 'none'")
    if options.leftover == "regions" and (min(options.regions) < 1 or options.regions == (1, 1)):
        raise ConfigError(f"regions: {options.regions} are not two or more; use leftover 'single' for one")
    if not 0 <= options.redundancy < math.inf:
        raise ConfigError(f"redundancy: {options.redundancy} is not a finite number of at least 0")
    if options.redundancy and options.leftover != "nearest":
        raise ConfigError("redundancy: needs leftover 'nearest', where patches that are alike join")
    if options.keep_warmup_epochs < 0:
        raise ConfigError(f"keep_warmup_epochs: {options.keep_warmup_epochs} is negative")
    if options.soft_keys and options.estimator == "topk":
        raise ConfigError("soft_keys: has no effect with estimator 'topk'; use 'soft_topk' or 'gumbel'")
    into_merge = options.merge != "none" and options.decision_in_merge
    if options.estimator != "topk" and not (options.soft_keys or into_merge or options.weigh_kept):
        raise ConfigError(
            f"estimator: '{options.estimator}' has no effect without soft_keys, weigh_kept or a merge that D "
            "reaches"
        )
    weighed = options.leftover in ("single", "regions")  # by the scores
    trained = options.selection_gradient and (weighed or options.estimator != "topk")
    if "learned" in options.sources and not trained:
        raise ConfigError(
            "sources: 'learned' would get no gradient, neither from a leftover nor from an estimator; "
            "leave it out, or change leftover, estimator or selection_gradient"
        )


def nearest(word: str, known: Iterable[str]) -> str:
    """The nearest known name and all of them, as the end of a message."""
    near = difflib.get_close_matches(word, list(known), n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"{hint} (known: {', '.join(known)})"
