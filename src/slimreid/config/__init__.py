"""All options, as dataclasses with one line of help each; contradictions are refused at construction.

A config is read from YAML files and dotted overrides by `slimreid.config.files`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slimreid.config.data import BatchConfig, DataConfig, DegradeConfig, TransformConfig
from slimreid.config.model import ModelConfig
from slimreid.config.training import AVERAGE, LossConfig, OptimConfig, TrainConfig
from slimreid.errors import ConfigError

__all__ = [
    "BatchConfig",
    "Config",
    "DataConfig",
    "DegradeConfig",
    "LossConfig",
    "ModelConfig",
    "OptimConfig",
    "TrainConfig",
    "TransformConfig",
]


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
        if self.train.eval_features in ("slimmed", "fused") and self.train.eval_features != self.model.second:
            raise ConfigError(
                f"train.eval_features '{self.train.eval_features}' does not exist with "
                f"model.reduction '{self.model.reduction}' and model.fusion '{self.model.fusion}'"
            )
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
