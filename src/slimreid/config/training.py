"""Options of losses, optimizer and training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slimreid.errors import ConfigError


@dataclass(frozen=True)
class LossConfig:
    """What training minimises: per branch, identity_weight · identity + metric_weight · metric."""

    identity_weight: float = 0.25
    """Weight of the cross-entropy over identities; 0 = off."""
    label_smoothing: float = 0.1
    """Share of the target given to all classes alike, in [0, 1)."""
    metric: Literal["triplet", "triplet_margin", "circle", "supcon"] = "triplet"
    """Batch-hard triplet with soft margin, the same with a margin, circle, or supervised contrastive."""
    metric_weight: float = 1.0
    """Weight of the metric loss; 0 = off."""
    metric_feature: Literal["before", "after"] = "before"
    """Give the metric loss the feature before the BNNeck, or after it, where all channels have one scale."""
    metric_norm: float | None = None
    """Length that features are given for the triplets, so that only angles count; none = as they are."""
    margin: float = 0.3
    """Margin of triplet_margin and circle."""
    gamma: float = 64.0
    """Scale of circle."""
    temperature: float = 0.1
    """Temperature of supcon."""
    distill: Literal["feature", "relation"] = "feature"
    """Follow each feature of train.teacher, or only how similar the samples of a batch are to each other."""
    distill_weight: float = 0.0
    """Weight of what the student and train.teacher differ by; over 0 with a teacher, 0 without."""

    def __post_init__(self) -> None:
        for name in ("identity_weight", "metric_weight", "margin", "distill_weight"):
            if getattr(self, name) < 0:
                raise ConfigError(f"loss.{name} must not be negative, not {getattr(self, name)}")
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(f"loss.label_smoothing must be in [0, 1), not {self.label_smoothing}")
        if self.identity_weight == self.metric_weight == self.distill_weight == 0:
            raise ConfigError(
                "loss.identity_weight, loss.metric_weight and loss.distill_weight are all 0: nothing to learn"
            )
        for name in ("gamma", "temperature", "metric_norm"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ConfigError(f"loss.{name} must be positive, not {getattr(self, name)}")


@dataclass(frozen=True)
class OptimConfig:
    """How parameters change."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    """Optimizer."""
    lr: float = 3.5e-4
    """Learning rate after warm-up."""
    backbone_lr: float | None = 5e-6
    """Learning rate of a pretrained backbone; none = as the rest."""
    bias_lr_factor: float = 2.0
    """Factor on the learning rate of biases outside the backbone."""
    weight_decay: float = 1e-4
    """Weight decay."""
    decay_norms: bool = True
    """Whether norms and biases decay too."""
    momentum: float = 0.9
    """Momentum of sgd."""
    schedule: Literal["cosine", "multistep"] = "cosine"
    """How the learning rate falls after warm-up."""
    warmup_epochs: int = 10
    """Epochs in which the learning rate rises linearly to its value."""
    warmup_start: float = 0.1
    """Learning rate of every group at the start, as a share of optim.lr."""
    final: float = 0.001
    """Learning rate of every group at the end of cosine, as a share of optim.lr."""
    milestones: tuple[int, ...] = ()
    """Epochs after which multistep lowers the learning rate."""
    gamma: float = 0.1
    """Factor of multistep at each milestone."""
    clip_norm: float = 0.0
    """Largest gradient norm; 0 = no clipping."""
    accumulate: int = 1
    """Batches whose gradients are added up before a step."""
    ema: float = 0.0
    """Decay of a moving average of the weights, used for evaluation; 0 = off."""
    freeze_backbone: bool = False
    """Train everything but the backbone."""
    freeze_blocks: int = 0
    """Blocks of the backbone, from the first on, that do not learn, nor what is before them; saves time."""

    def __post_init__(self) -> None:
        if self.lr <= 0 or (self.backbone_lr is not None and self.backbone_lr <= 0):
            raise ConfigError("optim.lr and optim.backbone_lr must be positive; freeze with freeze_backbone")
        for name in ("bias_lr_factor", "weight_decay", "warmup_epochs", "warmup_start", "final", "clip_norm"):
            if getattr(self, name) < 0:
                raise ConfigError(f"optim.{name} must not be negative, not {getattr(self, name)}")
        for name in ("momentum", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"optim.{name} must be in [0, 1), not {getattr(self, name)}")
        if self.freeze_blocks < 0 or (self.freeze_blocks and self.freeze_backbone):
            raise ConfigError(
                "optim.freeze_blocks must not be negative, and 0 with optim.freeze_backbone, not "
                f"{self.freeze_blocks}"
            )
        if self.accumulate < 1:
            raise ConfigError(f"optim.accumulate must be at least 1, not {self.accumulate}")
        if (self.schedule == "multistep") != bool(self.milestones):
            raise ConfigError("optim.milestones go with optim.schedule multistep, and it needs them")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ConfigError(f"optim.milestones {list(self.milestones)} must rise")


@dataclass(frozen=True)
class TrainConfig:
    """How long training goes on, on what, and what is kept."""

    epochs: int = 50
    """Passes over the training identities."""
    start_from: str | None = None
    """Run folder or model file whose weights are taken where they fit, instead of model.pretrained."""
    teacher: str | None = None
    """Run folder or model file that is followed by the measure of loss.distill."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of the forward pass; bf16 and fp16 want a GPU."""
    compile: bool = False
    """Compile the backbone with torch.compile."""
    deterministic: bool = True
    """Use deterministic algorithms, so that a resumed run is bit-identical."""
    threads: int | None = None
    """CPU threads of each process; none = torch's choice."""
    sync_heads: bool = True
    """With several processes, heads and losses see the batches of all of them."""
    eval_every: int = 1
    """Epochs between evaluations; the last epoch is always evaluated."""
    eval_features: Literal["original", "slimmed", "fused", "both"] = "both"
    """Feature by which checkpoints are compared."""
    select_on: Literal["val", "test", "last"] = "val"
    """Choose the best checkpoint on val, on the test set (written into every result), or take the last."""
    save_every: int = 0
    """Keep a checkpoint every so many epochs; 0 = only the last and the best."""
    keep: int = 3
    """How many of those are kept."""
    watch_selection: bool = False
    """Write which patches are kept after every epoch, how that changes, and the gradient of the scores."""

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("eval_every", 1), ("save_every", 0), ("keep", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"train.{name} must be at least {least}, not {getattr(self, name)}")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"train.threads must be at least 1, not {self.threads}")
