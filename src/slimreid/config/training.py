"""Options of losses, optimizer and training."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.config.data import BatchConfig, DataConfig, TransformConfig
from slimreid.config.model import ModelConfig
from slimreid.config.values import check_least, check_range
from slimreid.errors import ConfigError

AVERAGE = "average"
"""The `train.teacher` that is the run's own moving average of the weights."""


@dataclass(frozen=True)
class LossConfig:
    """What training minimises: per branch, identity_weight · identity + metric_weight · metric."""

    identity_weight: float = 0.25
    """Weight of the cross-entropy over identities; 0 = off."""
    label_smoothing: float = 0.1
    """Share of the target given to all classes alike, in [0, 1)."""
    metric: Literal["triplet", "triplet_margin"] = "triplet"
    """Metric loss: batch-hard triplet with soft margin, or with a fixed margin."""
    metric_weight: float = 1.0
    """Weight of the metric loss; 0 = off."""
    metric_feature: Literal["before", "after"] = "before"
    """Apply the metric loss to the feature before or after the BNNeck."""
    metric_norm: float | None = None
    """Norm to which features are scaled for the triplet loss; none = not scaled."""
    margin: float = 0.3
    """Margin of triplet_margin."""
    distill: Literal["feature", "relation"] = "feature"
    """Distil the teacher's features, or the similarities within a batch."""
    distill_weight: float = 0.0
    """Weight of the distillation loss; needs train.teacher. 0 = off."""

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
        if self.metric_norm is not None and self.metric_norm <= 0:
            raise ConfigError(f"loss.metric_norm must be positive, not {self.metric_norm}")


@dataclass(frozen=True)
class OptimConfig:
    """Optimizer and learning-rate schedule."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    """Optimizer: adam, adamw or sgd."""
    lr: float = 3.5e-4
    """Learning rate after warm-up."""
    backbone_lr: float | None = 5e-6
    """Learning rate of a pretrained backbone; none = as the rest."""
    bias_lr_factor: float = 2.0
    """Factor on the learning rate of biases outside the backbone."""
    weight_decay: float = 1e-4
    """Weight decay, of norms and biases too."""
    momentum: float = 0.9
    """Momentum, with sgd."""
    warmup_epochs: int = 10
    """Epochs of linear warm-up from 0.1 of optim.lr; then the rate falls by a cosine to 0.001 of it."""
    clip_norm: float = 0.0
    """Largest gradient norm; 0 = no clipping."""
    accumulate: int = 1
    """Batches per optimizer step (gradient accumulation)."""
    ema: float = 0.0
    """Decay of the moving average of the weights (EMA) that is evaluated; 0 = off."""
    freeze_backbone: bool = False
    """Train everything but the backbone."""

    def __post_init__(self) -> None:
        if self.lr <= 0 or (self.backbone_lr is not None and self.backbone_lr <= 0):
            raise ConfigError("optim.lr and optim.backbone_lr must be positive; freeze with freeze_backbone")
        check_least(self, 0, "bias_lr_factor", "weight_decay", "warmup_epochs", "clip_norm", section="optim")
        check_least(self, 1, "accumulate", section="optim")
        for name in ("momentum", "ema"):
            check_range(f"optim.{name}", getattr(self, name), 0, 1, open_high=True)


@dataclass(frozen=True)
class TrainConfig:
    """Length of training, evaluation and checkpoints."""

    epochs: int = 50
    """Passes over the training identities."""
    init_from: str | None = None
    """Run folder or model file to start from (weights that fit are loaded), instead of model.pretrained."""
    teacher: str | None = None
    """Run folder or model file to distil from, or 'average': the run's own (optim.ema), with all tokens."""
    full_epochs: int = 0
    """First epochs with all tokens, before reduction in_backbone (and distillation) begins."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of the forward pass; fp16 needs a GPU."""
    compile: bool = False
    """Compile the backbone with torch.compile."""
    deterministic: bool = True
    """Use deterministic algorithms, so that a resumed run gives identical results."""
    threads: int | None = None
    """CPU threads per process; none = PyTorch's choice."""
    eval_every: int = 1
    """Epochs between evaluations; the last epoch is always evaluated."""
    select_on: Literal["val", "test", "last"] = "val"
    """Select the checkpoint on val, on the test set (every result then says so), or take the last."""
    weigh_branches: bool = False
    """At the end choose on val what the second branch counts in the joint feature (model.second_scale)."""
    save_every: int = 0
    """Epochs between checkpoints to keep; 0 = only the last and the best."""
    keep_last: int = 3
    """Number of those checkpoints to keep."""
    watch_selection: bool = False
    """Log after every epoch which patches are kept, how that changes, and the gradient of the scores."""

    def __post_init__(self) -> None:
        check_least(self, 1, "epochs", "eval_every", "keep_last", "threads", section="train")
        check_least(self, 0, "save_every", section="train")
        if not 0 <= self.full_epochs < self.epochs:
            raise ConfigError(
                f"train.full_epochs must be at least 0 and less than train.epochs {self.epochs}, not "
                f"{self.full_epochs}"
            )
        if self.weigh_branches and self.select_on != "val":
            raise ConfigError(
                f"train.weigh_branches chooses on val, but train.select_on is '{self.select_on}'; use 'val'"
            )

    @property
    def teacher_model(self) -> str | None:
        """The run folder or model file to distil from; None where there is none, or it is the run's own."""
        return None if self.teacher == AVERAGE else self.teacher


@dataclass(frozen=True)
class Config:
    """Everything that decides a run."""

    seed: int = 0
    """Random seed of the run."""
    data: DataConfig = field(default_factory=DataConfig)
    """Where the images are and how they are read."""
    transforms: TransformConfig = field(default_factory=TransformConfig)
    """How images become tensors."""
    batch: BatchConfig = field(default_factory=BatchConfig)
    """Batch sizes and how identities are sampled."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """What the model is made of."""
    loss: LossConfig = field(default_factory=LossConfig)
    """What training minimises."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimizer and learning-rate schedule."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Length of training, evaluation and checkpoints."""

    def __post_init__(self) -> None:
        if self.train.teacher and not self.loss.distill_weight:
            raise ConfigError(
                f"train.teacher is '{self.train.teacher}' but loss.distill_weight is 0: give the weight too"
            )
        self._check_full_passes()
        if self.train.watch_selection and self.model.reduction == "none":
            raise ConfigError(
                "train.watch_selection: model.reduction 'none' selects nothing; use 'after_backbone' or "
                "'in_backbone'"
            )
        if self.train.weigh_branches and not self.model.second:
            raise ConfigError("train.weigh_branches: model.fusion 'none' has no second branch; use another")
        if self.seed < 0:
            raise ConfigError(f"seed must not be negative, not {self.seed}")

    def _check_full_passes(self) -> None:
        """Raise `ConfigError` for passes with all tokens that do not fit the rest."""
        full_epochs, own = self.train.full_epochs, self.train.teacher == AVERAGE
        if (full_epochs or own) and self.model.reduction != "in_backbone":
            option = f"train.full_epochs {full_epochs}" if full_epochs else f"train.teacher '{AVERAGE}'"
            raise ConfigError(
                f"{option}: model.reduction '{self.model.reduction}' has no other passes than those with all "
                "tokens; use 'in_backbone'"
            )
        if own and not self.optim.ema:
            raise ConfigError(
                f"train.teacher '{AVERAGE}' is the moving average of the weights: give its decay, optim.ema"
            )
        if full_epochs and not (self.loss.identity_weight or self.loss.metric_weight):
            raise ConfigError(
                f"train.full_epochs {full_epochs}: they do not distil, and loss.identity_weight and "
                "loss.metric_weight are 0: nothing to learn in them"
            )


def check_run(config: Config, output: Path) -> None:
    """Raise `ConfigError` for what a recipe may leave open and a run may not, or an output that is a file."""
    if config.loss.distill_weight and not config.train.teacher:
        raise ConfigError(
            f"loss.distill_weight {config.loss.distill_weight} needs a model to follow: give train.teacher "
            "(and train.init_from to begin from it)"
        )
    if output.exists() and not output.is_dir():
        raise ConfigError(f"--out {output} is a file; give the folder of a run, new or old")
