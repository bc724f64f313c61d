"""All options of slimming."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from slimreid.errors import ConfigError
from slimreid.slimming.option_checks import (
    CHOICES,
    INSIDE_ONLY,
    check_estimator,
    check_inside,
    check_sources,
    nearest,
)


@dataclass(frozen=True)
class SlimmingOptions:
    """How patches are scored, kept and merged."""

    keep_ratio: float = 0.5
    """Share of patches kept per modality, in (0, 1]."""
    merge_ratio: float = 0.4
    """Merged tokens per kept patch, in (0, 1]."""
    beta: float = 0.25
    """Weight of the guides in the score, in [0, 0.5]; the learned score has 1 − 2·beta."""
    sources: tuple[str, ...] = ("learned", "own", "others")
    """What a score is made of: `learned`, `own`, `others`, `attention`, `contrast`, `others_contrast`;
    or `random` alone."""
    learned: bool = True
    """Whether a learned score takes part; false takes it out of the sources."""
    similarity: str = "cosine"
    """Likeness of a patch and a guide: `cosine`, or `dot` for v·e / C."""
    centre: bool = False
    """Subtract the mean patch of the image from patches and guides before they are compared."""
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
    tau_final: float | None = None
    """Temperature in the last epoch, reached from tau in equal ratios; none = tau stays."""
    noise: bool = True
    """With `gumbel`: whether the soft mask is that of noisy scores."""
    selection: str = "hard"
    """While training keep the best patches as in test (`hard`), or all by `soft` weights of the estimator."""
    weigh_kept: bool = False
    """Multiply kept patches by their decision D: 1, but with the estimator's gradient."""
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
    leftover: str = "single"
    """Inside: dropped patches join the kept ones most like them (`nearest`), or go on as a `single` token, as
    one per region (`regions`), or not (`none`)."""
    redundancy: float = 0.0
    """Inside, with `leftover: nearest`: how much it counts against a patch that it is like one with a higher
    score; 0 = the score alone decides."""
    regions: tuple[int, int] = (2, 2)
    """Inside: regions (down, across) with a leftover token each, for `leftover: regions`."""
    soft_keys: bool = False
    """Inside: log D is added to the attention logits of later blocks, so that the estimator has an effect."""
    keep_warmup_epochs: int = 0
    """Inside: epochs in which the shares kept shrink from 1 to their values while training."""
    keep_warmup_shape: str = "linear"
    """Inside: how they shrink, `linear` or `cosine`."""

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(f"{name}: '{value}' is unknown{nearest(str(value), choices)}")
        for name in ("keep_ratio", "merge_ratio"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"{name}: {getattr(self, name)} is not in (0, 1]")
        if not 0 <= self.beta <= 0.5:
            raise ConfigError(f"beta: {self.beta} is not in [0, 0.5]")
        for name in ("tau", "tau_final"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name}: {value} is not a finite number over 0")
        if self.ratio_target is not None and not 0 <= self.ratio_target <= 2:
            raise ConfigError(f"ratio_target: {self.ratio_target} is not in [0, 2]")
        check_sources(self)
        check_estimator(self)
        if self.where == "inside":
            check_inside(self)
            return
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in INSIDE_ONLY:
            if getattr(self, name) != defaults[name]:
                raise ConfigError(f"{name}: is for slimming inside the backbone; set where to 'inside'")

    @property
    def used(self) -> tuple[str, ...]:
        """The sources that take part."""
        return tuple(name for name in self.sources if name != "learned" or self.learned)

    @property
    def branches(self) -> int:
        """Number of choices of patches made side by side."""
        return 2 if self.merge == "dual" else 1
