"""Options of data, augmentation and batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Literal

from slimreid.config.values import check_least, check_range
from slimreid.errors import ConfigError
from slimreid.modalities import declare, find_modality


@dataclass(frozen=True)
class DataConfig:
    """Where the images are and how they are read."""

    manifest: str = ""
    """Manifest (CSV), or a folder with manifest.csv in it."""
    modalities: tuple[str, ...] | None = None
    """Modalities to use, e.g. [rgb, tir]; none = all the manifest has."""
    windows: dict[str, tuple[float, float]] | None = None
    """Per modality (low, high) of 16-bit values that become black and white; none = robust percentiles."""
    on_error: Literal["raise", "skip"] = "raise"
    """Stop at an image that cannot be read, or leave it out and list it at the end."""
    cache: Literal["none", "ram", "disk"] = "none"
    """Cache resized images in memory or on disk."""
    cache_dir: str | None = None
    """Folder of the disk cache; none = '.cache' beside the manifest."""
    scaled_decode: bool = False
    """Decode large JPEGs at reduced size: about 2× faster, slightly different pixels."""
    workers: int = 2
    """Processes that load images in training, threads in test; 0 = none. Results do not depend on it."""

    def __post_init__(self) -> None:
        if self.modalities is not None:
            object.__setattr__(self, "modalities", declare(self.modalities))
        check_least(self, 0, "workers", section="data")
        if self.cache_dir and self.cache != "disk":
            raise ConfigError("data.cache_dir is set but data.cache is not 'disk'; set both or neither")
        if self.windows is not None:
            named = {find_modality(name) or name: window for name, window in self.windows.items()}
            object.__setattr__(self, "windows", named)
        for name, (low, high) in (self.windows or {}).items():
            if not low < high:
                raise ConfigError(
                    f"data.windows.{name} must be (low, high) with low < high, not {(low, high)}"
                )


@dataclass(frozen=True)
class DegradeConfig:
    """How often a training image is made worse, as other cameras and weathers do; 0 = never."""

    colour_cast: float = 0.0
    """Probability of another white balance, for colour images: gains of 0.75 to 1.33, over their mean."""
    grey: float = 0.0
    """Probability of removing the colour."""
    grey_batch: float = 0.0
    """Probability of removing the colour of a whole batch, so that colour does not distinguish identities."""
    exposure: float = 0.0
    """Probability of another exposure, in all modalities: gain 0.25–1.4, gamma 0.7–1.5, contrast 0.5–1.3."""
    blur: float = 0.0
    """Probability of a Gaussian blur with a standard deviation of 0.4 to 2 % of the width."""
    resolution: float = 0.0
    """Probability of shrinking to 0.15 to 0.5 of the size and back."""
    compression: float = 0.0
    """Probability of JPEG compression of quality 8 to 50 at 0.4 to 0.8 of the size."""
    noise: float = 0.0
    """Probability of adding noise with a standard deviation of 3 to 20 grey levels."""
    zoom: float = 0.0
    """Probability of another framing: height and width each 0.75 to 1.15 of the original, anywhere."""
    occlusion: float = 0.0
    """Probability of hiding 5 to 40 % of the sample: by one colour, or by a copy of another part of it."""
    style: float = 0.0
    """Probability of taking mean and deviation of the channels in part from another sample of the batch."""

    def __post_init__(self) -> None:
        for item in fields(self):
            check_range(f"transforms.degrade.{item.name}", getattr(self, item.name), 0, 1)

    @property
    def any(self) -> bool:
        """Whether anything is to be done."""
        return any(getattr(self, item.name) for item in fields(self))


@dataclass(frozen=True)
class TransformConfig:
    """How images become tensors, in training and in test."""

    height: int = 256
    """Height of the images the model sees, in pixels."""
    width: int = 128
    """Width of the images the model sees, in pixels."""
    mean: float = 0.5
    """Subtracted from pixel values in [0, 1]."""
    std: float = 0.5
    """Pixel values are divided by this after the mean is subtracted."""
    test_resize: Literal["bicubic", "bilinear"] = "bilinear"
    """Interpolation in test; in training it is bicubic."""
    flip: float = 0.5
    """Probability of a horizontal flip in training, of all modalities of a sample alike."""
    pad: int = 10
    """Black border in pixels before the random crop to the original size; 0 = no crop."""
    erase: float = 0.5
    """Probability of erasing a random rectangle with noise in training, drawn per modality."""
    colour_jitter: float = 0.0
    """Strength of random brightness, contrast and saturation, for colour images only; 0 = off."""
    degrade: DegradeConfig = field(default_factory=DegradeConfig)
    """Degradations of training images, so that a model copes with other cameras."""
    modality_dropout: float | dict[str, float] = 0.0
    """Probability of leaving a modality out of a batch, or {modality: probability}; one always stays."""

    def __post_init__(self) -> None:
        check_least(self, 1, "height", "width", section="transforms")
        for name in ("flip", "erase", "colour_jitter"):
            check_range(f"transforms.{name}", getattr(self, name), 0, 1)
        self._check_dropout()
        check_range("transforms.std", self.std, 0, math.inf, open_low=True)
        check_range("transforms.pad", self.pad, 0, min(self.size), open_high=True)

    def _check_dropout(self) -> None:
        """Raise `ConfigError` unless every probability of modality dropout is in [0, 1)."""
        dropout = self.modality_dropout
        if isinstance(dropout, dict):
            named = {find_modality(name) or name: share for name, share in dropout.items()}
            if len(named) < len(dropout):
                raise ConfigError(f"transforms.modality_dropout names a modality twice: {', '.join(dropout)}")
            dropout = named
            object.__setattr__(self, "modality_dropout", named)
        shares = dropout if isinstance(dropout, dict) else {"": dropout}
        for name, share in shares.items():
            key = f"transforms.modality_dropout.{name}".rstrip(".")
            check_range(key, share, 0, 1)
            if share == 1:
                raise ConfigError(f"{key} must be below 1: nothing would be left to learn from")

    def dropout_of(self, modality: str) -> float:
        """Probability of dropping a modality in training."""
        dropout = self.modality_dropout
        return dropout.get(modality, 0.0) if isinstance(dropout, dict) else dropout

    @property
    def drops_modalities(self) -> bool:
        """Whether any modality is dropped in training."""
        dropout = self.modality_dropout
        return any(dropout.values()) if isinstance(dropout, dict) else dropout > 0

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.height, self.width


@dataclass(frozen=True)
class BatchConfig:
    """Batch sizes and how identities are sampled."""

    num_ids: int = 8
    """Different identities in a training batch (P), over all processes."""
    num_instances: int = 8
    """Images of each identity in a training batch (K)."""
    spread_cameras: bool = False
    """Sample the K images of an identity evenly over its cameras."""
    test: int = 64
    """Samples per batch in test."""

    def __post_init__(self) -> None:
        check_least(self, 2, "num_ids", "num_instances", section="batch")
        check_least(self, 1, "test", section="batch")
