"""Options of token reduction: one type for reduction after the backbone, one for reduction in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from slimreid.config.values import check_range, check_word, check_words
from slimreid.errors import ConfigError

IN_BACKBONE_TERMS = ("self", "cross", "contrast", "cross_contrast", "attention", "random")
AFTER_BACKBONE_TERMS = ("learned", *IN_BACKBONE_TERMS)
TERM_NAMES = (*AFTER_BACKBONE_TERMS, "redundancy")
"""Names under which a selection has its scores, beside those of the modalities for `cross`."""
CROSS_TERMS = ("cross", "cross_contrast")
"""Score terms that compare with the other modalities; they fall away where there is none."""

Schedule = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class AfterBackboneConfig:
    """Token reduction after the backbone: score the patches, keep the best, merge them into few tokens."""

    keep_ratio: float = 0.5
    """Share of patches kept per modality, in (0, 1]."""
    score_terms: tuple[str, ...] = ("learned", "contrast", "cross_contrast")
    """Terms of the patch score: learned, self, cross, contrast, cross_contrast, attention; or only random."""
    beta: float = 0.25
    """Every score term has weight 2·beta, the learned one 1 − 2·beta; in [0, 0.5]."""
    score_gradient: bool = True
    """Let gradients flow through the score terms that have no parameters."""
    estimator: Literal["topk", "gumbel", "soft_topk", "binary_concrete"] = "topk"
    """Gradient of the selection while training: topk has none; binary_concrete decides patch by patch."""
    tau: float = 1.0
    """Temperature of the estimator, over 0."""
    tau_final: float | None = None
    """Temperature in the last epoch, reached from tau in equal ratios; none = constant."""
    noise: bool = True
    """Add noise to the scores while training (gumbel, binary_concrete)."""
    selection: Literal["hard", "soft"] = "hard"
    """While training keep the best patches as in test (hard), or all of them by soft weights (soft)."""
    straight_through_gate: bool = False
    """Multiply kept patches by their decision: 1 in value, with the estimator's gradient."""
    max_keep_ratio: float = 1.0
    """Largest share of patches that binary_concrete keeps while training, in (0, 1]."""
    ratio_loss_weight: float = 0.0
    """Weight of the loss that pulls the mean share kept to keep_ratio (binary_concrete); 0 = off."""
    merge: Literal["learned", "none"] = "learned"
    """Merge kept patches by learned weights, or leave them as they are."""
    merge_ratio: float = 0.4
    """Merged tokens per kept patch, in (0, 1]."""
    decision_in_merge: bool = True
    """Mask the merge by the decision, so that the estimator's gradient reaches the scores through it."""
    zero_leftover: bool = False
    """Append a zero token when nothing is dropped, so that the number of tokens is constant (DeMo)."""
    shared: bool = False
    """One set of parameters for all modalities instead of one each."""

    def __post_init__(self) -> None:
        section = "model.after_backbone"
        check_words(self, section)
        check_terms(f"{section}.score_terms", self.score_terms, AFTER_BACKBONE_TERMS)
        for name in ("keep_ratio", "merge_ratio", "max_keep_ratio"):
            check_range(f"{section}.{name}", getattr(self, name), 0, 1, open_low=True)
        check_range(f"{section}.beta", self.beta, 0, 0.5)
        for name in ("tau", "tau_final"):
            if (value := getattr(self, name)) is not None:
                check_range(f"{section}.{name}", value, 0, math.inf, open_low=True, open_high=True)
        check_range(f"{section}.ratio_loss_weight", self.ratio_loss_weight, 0, math.inf, open_high=True)
        self._check_estimator(section)

    def _check_estimator(self, section: str) -> None:
        """Raise `ConfigError` for an option that has no effect with this estimator, or none without it."""
        needs: dict[str, tuple[object, tuple[str, ...]]] = {
            "tau": (1.0, ("gumbel", "soft_topk", "binary_concrete")),
            "tau_final": (None, ("gumbel", "soft_topk", "binary_concrete")),
            "straight_through_gate": (False, ("gumbel", "soft_topk", "binary_concrete")),
            "noise": (True, ("gumbel", "binary_concrete")),
            "selection": ("hard", ("gumbel", "soft_topk")),
            "max_keep_ratio": (1.0, ("binary_concrete",)),
            "ratio_loss_weight": (0.0, ("binary_concrete",)),
        }
        for name, (off, estimators) in needs.items():
            if self.estimator not in estimators and getattr(self, name) != off:
                why = "keeps a fixed number of patches" if name == "ratio_loss_weight" else "does not use it"
                raise ConfigError(
                    f"{section}.{name}: estimator '{self.estimator}' {why}; use {' or '.join(estimators)}"
                )
        into_merge = self.merge == "learned" and self.decision_in_merge
        if self.selection == "soft" and (not into_merge or self.straight_through_gate):
            raise ConfigError(
                f"{section}.selection: 'soft' weighs patches in the merge; it needs merge 'learned' with "
                "decision_in_merge, and no straight_through_gate"
            )
        reached = into_merge or self.straight_through_gate or self.ratio_loss_weight
        if self.estimator != "topk" and not reached:
            raise ConfigError(
                f"{section}.estimator: the gradient of '{self.estimator}' reaches nothing; use merge "
                "'learned' with decision_in_merge, or straight_through_gate"
            )
        if self.max_keep_ratio < self.keep_ratio:
            raise ConfigError(
                f"{section}.max_keep_ratio: {self.max_keep_ratio} is below keep_ratio {self.keep_ratio}"
            )


@dataclass(frozen=True)
class InBackboneConfig:
    """Token reduction in the backbone: drop or merge patches between blocks, which saves computation."""

    schedule: tuple[tuple[float, float], ...] = ((0.25, 0.5), (0.5, 0.2))
    """Pairs of (share of the blocks done before, share of the original patches kept from there on)."""
    train_schedule: tuple[tuple[float, float], ...] | None = None
    """Schedule while training; none = as schedule. A stronger one makes training cheaper."""
    score_terms: tuple[str, ...] = ("contrast", "cross_contrast", "attention")
    """Terms of the patch score: self, cross, contrast, cross_contrast, attention; or only random."""
    dropped: Literal["merge", "leftover", "discard"] = "merge"
    """Merge dropped patches into the nearest kept one, fuse them into one leftover token, or discard them."""
    redundancy: float = 1.5
    """With dropped merge: penalty on patches that resemble one with a higher score; 0 = the score alone."""

    def __post_init__(self) -> None:
        section = "model.in_backbone"
        check_words(self, section)
        check_terms(f"{section}.score_terms", self.score_terms, IN_BACKBONE_TERMS)
        check_schedule(self.schedule, f"{section}.schedule")
        if self.train_schedule is not None:
            check_schedule(self.train_schedule, f"{section}.train_schedule")
        check_range(f"{section}.redundancy", self.redundancy, 0, math.inf, open_high=True)
        default = type(self).__dataclass_fields__["redundancy"].default
        if self.dropped != "merge" and self.redundancy not in (0, default):
            raise ConfigError(
                f"{section}.redundancy: has no effect with dropped '{self.dropped}'; use 'merge'"
            )


ReductionConfig = AfterBackboneConfig | InBackboneConfig


def check_terms(key: str, terms: Sequence[str], known: Sequence[str]) -> None:
    """Raise `ConfigError` unless the score terms are known, different, and `random` is alone."""
    for name in terms:
        check_word(key, name, known)
    if not terms or len(set(terms)) != len(terms):
        raise ConfigError(f"{key}: {list(terms)} must be one or more different terms")
    if "random" in terms and len(terms) > 1:
        raise ConfigError(f"{key}: 'random' stands alone; leave out the other terms")


def check_modalities(key: str, terms: Sequence[str], count: int) -> None:
    """Raise `ConfigError` where all score terms compare modalities and there is only one."""
    if count < 2 and set(terms) <= set(CROSS_TERMS):
        names = " and ".join(f"'{name}'" for name in terms)
        raise ConfigError(f"{key}: {names} alone need a second modality; add 'contrast' or 'self'")


def check_schedule(schedule: Schedule, key: str = "schedule") -> None:
    """Raise `ConfigError` unless positions rise within (0, 1) and shares fall within (0, 1]."""
    if not schedule:
        raise ConfigError(f"{key}: give at least one (position, share), such as [[0.5, 0.5]]")
    for pair in schedule:
        if len(pair) != 2:
            raise ConfigError(f"{key}: {list(pair)} is not a pair of position and share")
        position, share = pair
        if not 0 < position < 1:
            raise ConfigError(f"{key}: position {position} is not in (0, 1), as a share of the depth")
        if not 0 < share <= 1:
            raise ConfigError(f"{key}: share {share} is not in (0, 1], as a share of the original patches")
    for (before, more), (after, less) in pairwise(schedule):
        if not before < after:
            raise ConfigError(f"{key}: positions must rise, but {after} follows {before}")
        if not more > less:
            raise ConfigError(f"{key}: shares must fall, but {less} follows {more}")


DEMO_SDTPS = AfterBackboneConfig(
    score_terms=("learned", "self", "cross"), score_gradient=False, zero_leftover=True
)
"""SDTPS as it was first built on DeMo: patches scored by their cosine to the global features."""
