"""All options, as dataclasses with one line of help each; contradictions are refused at construction.

A config is read from YAML files and dotted overrides by `slimreid.config.files`.
"""

from __future__ import annotations

from slimreid.config.data import BatchConfig, DataConfig, DegradeConfig, TransformConfig
from slimreid.config.model import ModelConfig
from slimreid.config.training import Config, LossConfig, OptimConfig, TrainConfig

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
