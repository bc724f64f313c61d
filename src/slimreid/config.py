"""All options, as dataclasses with one line of help each; contradictions are refused at construction.

A config is read from YAML files and dotted overrides by `slimreid.config_io`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from slimreid.errors import ConfigError
from slimreid.modalities import declare, find_modality
from slimreid.models.output import second_branch
from slimreid.models.sizes import vit_config
from slimreid.slimming.presets import SlimmingOptions


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
    """A broken image stops the run, or is dropped, counted and listed at the end."""
    cache: Literal["none", "ram", "disk"] = "none"
    """Keep resized images in memory or on disk."""
    cache_dir: str | None = None
    """Folder of the disk cache; none = '.cache' beside the manifest."""
    scaled_decode: bool = False
    """Let large JPEGs be decoded at a fraction of their size: about twice as fast, slightly other pixels."""
    workers: int = 2
    """Processes that load images; 0 = in the main process. Results do not depend on it."""

    def __post_init__(self) -> None:
        if self.modalities is not None:
            object.__setattr__(self, "modalities", declare(self.modalities))
        if self.workers < 0:
            raise ConfigError(f"data.workers must not be negative, not {self.workers}")
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
    train_resize: Literal["bicubic", "bilinear"] = "bicubic"
    """Interpolation in training."""
    test_resize: Literal["bicubic", "bilinear"] = "bilinear"
    """Interpolation in test."""
    flip: float = 0.5
    """Probability of a horizontal flip in training."""
    pad: int = 10
    """Black border added on all sides before a random crop of the original size; 0 = no crop."""
    share_geometry: bool = True
    """Draw flip and crop once per sample for all modalities; false = once per modality."""
    erase: float = 0.5
    """Probability of erasing a random rectangle with noise in training."""
    share_erase: bool = False
    """Erase the same rectangle in all modalities; false = draw each on its own."""
    erase_area: tuple[float, float] = (0.02, 1 / 3)
    """Smallest and largest share of the image that is erased."""
    erase_aspect: tuple[float, float] = (0.3, 3.3)
    """Smallest and largest height-to-width ratio of the erased rectangle."""
    colour_jitter: float = 0.0
    """Strength of random brightness, contrast and saturation, for colour images only; 0 = off."""
    modality_dropout: float = 0.0
    """Probability with which each modality is left out in training; one always stays."""
    dropout_unit: Literal["batch", "sample"] = "batch"
    """Leave modalities out of whole batches, so that losses compare like with like, or of each sample."""

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            if getattr(self, name) < 1:
                raise ConfigError(f"transforms.{name} must be at least 1, not {getattr(self, name)}")
        for name in ("flip", "erase", "modality_dropout", "colour_jitter"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"transforms.{name} must be in [0, 1], not {getattr(self, name)}")
        if self.modality_dropout == 1:
            raise ConfigError(
                "transforms.modality_dropout must be below 1: nothing would be left to learn from"
            )
        if self.std <= 0:
            raise ConfigError(f"transforms.std must be positive, not {self.std}")
        if not 0 <= self.pad < min(self.size):
            raise ConfigError(f"transforms.pad must be in [0, {min(self.size)}), not {self.pad}")
        for name in ("erase_area", "erase_aspect"):
            low, high = getattr(self, name)
            if not 0 < low <= high or (name == "erase_area" and high > 1):
                raise ConfigError(
                    f"transforms.{name} must be (low, high) with 0 < low <= high, not {(low, high)}"
                )

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.height, self.width


@dataclass(frozen=True)
class BatchConfig:
    """How many images are seen at once, and which go together."""

    identities: int = 8
    """Different identities in a training batch (P), over all processes."""
    images: int = 8
    """Images of each identity in a training batch (K)."""
    spread_cameras: bool = False
    """Draw the K images of an identity from as many cameras as it has, each camera alike."""
    test: int = 64
    """Samples in a batch when testing."""

    def __post_init__(self) -> None:
        for name, least in (("identities", 2), ("images", 2), ("test", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"batch.{name} must be at least {least}, not {getattr(self, name)}")


@dataclass(frozen=True)
class ModelConfig:
    """What the model is made of."""

    backbone: str = "clip_vit_b16"
    """Named size of the vision transformer; `slimreid model list` shows them."""
    pretrained: str | None = None
    """Weights of the backbone: a file, or hf://organisation/name; none = random."""
    stride: tuple[int, int] | None = None
    """Pixels between patches (down, across); none = the patch size, smaller = overlapping."""
    drop_path: float = 0.0
    """Probability of skipping a residual branch in the last block while training."""
    checkpointing: bool = False
    """Recompute blocks in the backward pass, to save memory."""
    camera_embedding: bool = False
    """Learn a vector per training camera (SIE)."""
    camera_scale: float = 1.0
    """Coefficient of the camera vector."""
    global_local: bool = False
    """Enrich each global feature by the mean of its patches."""
    fusion: Literal["none", "mean", "sdtps", "hdm", "hdm_atmoe"] = "sdtps"
    """Second branch: none, the mean of all patches, slimmed tokens, or DeMo's fusion (with experts)."""
    original_weight: float = 1.0
    """Weight of the losses of the original branch."""
    fusion_weight: float = 1.0
    """Weight of the losses of the second branch."""
    heads: Literal["direct", "split"] = "direct"
    """Classify the joint feature, or each modality's on its own."""
    moe_heads: int = 4
    """Heads of the mixture of experts."""
    missing: Literal["skip", "zeros"] = "skip"
    """Leave absent modalities out, or compute them from zero images as earlier code did."""
    absent_weight: float = 0.1
    """With `missing: skip`, blocks of absent modalities are so many times the mean of those present; small,
    so that what two samples have in common decides."""
    completion: bool = False
    """Predict the blocks of absent modalities from those present in test, instead of taking their mean."""
    neck_feature: Literal["before", "after"] = "before"
    """Test with the feature before the BNNeck, or after it."""
    shared_slimmer: bool = False
    """One set of slimming parameters for all modalities instead of one each."""
    slimming: SlimmingOptions = field(default_factory=SlimmingOptions)
    """How patches are scored, kept and merged (fusion sdtps)."""

    def __post_init__(self) -> None:
        vit_config(self.backbone)
        if not 0 <= self.drop_path < 1:
            raise ConfigError(f"model.drop_path must be in [0, 1), not {self.drop_path}")
        for name in ("original_weight", "fusion_weight"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"model.{name} must not be negative, not {getattr(self, name)}")
        if not 0 <= self.absent_weight <= 1:
            raise ConfigError(f"model.absent_weight must be in [0, 1], not {self.absent_weight}")
        if self.original_weight == 0 and (self.fusion == "none" or self.fusion_weight == 0):
            raise ConfigError(
                "model.original_weight is 0 and there is no second branch with a model.fusion_weight over 0: "
                "nothing would be learned"
            )
        if self.completion and (self.missing == "zeros" or self.fusion in ("hdm", "hdm_atmoe")):
            raise ConfigError(
                "model.completion goes with model.missing 'skip' and fusion none, mean or sdtps: "
                f"not with missing '{self.missing}' and fusion '{self.fusion}'"
            )
        if self.moe_heads < 1:
            raise ConfigError(f"model.moe_heads must be at least 1, not {self.moe_heads}")
        if self.slimming.merge == "dual":
            raise ConfigError("model.slimming.merge 'dual' needs two texts as guides; use 'single' or 'none'")
        if self.fusion != "sdtps" and (self.slimming != SlimmingOptions() or self.shared_slimmer):
            raise ConfigError(f"model.slimming is set, but model.fusion is '{self.fusion}'; use 'sdtps'")

    @property
    def second(self) -> str | None:
        """Name of the feature of the second branch; None without one."""
        return second_branch(self.fusion)


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

    completion_weight: float = 1.0
    """Weight of what model.completion predicts wrongly; it reaches the heads of the completion alone."""

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
        for name in ("gamma", "temperature", "completion_weight", "metric_norm"):
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


@dataclass(frozen=True)
class Config:
    """Everything that decides a run."""

    seed: int = 0
    """Decides every random draw of the run."""
    data: DataConfig = field(default_factory=DataConfig)
    """Where the images are and how they are read."""
    transforms: TransformConfig = field(default_factory=TransformConfig)
    """How images become tensors."""
    batch: BatchConfig = field(default_factory=BatchConfig)
    """How many images are seen at once."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """What the model is made of."""
    loss: LossConfig = field(default_factory=LossConfig)
    """What training minimises."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """How parameters change."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """How long training goes on, and what is kept."""

    def __post_init__(self) -> None:
        if self.optim.warmup_epochs >= self.train.epochs and self.optim.warmup_epochs:
            raise ConfigError(
                f"optim.warmup_epochs {self.optim.warmup_epochs} leaves nothing of "
                f"train.epochs {self.train.epochs}"
            )
        if self.train.teacher and not self.loss.distill_weight:
            raise ConfigError(
                f"train.teacher is '{self.train.teacher}' but loss.distill_weight is 0: give the weight too"
            )
        if self.train.watch_selection and self.model.fusion != "sdtps":
            raise ConfigError(
                f"train.watch_selection: model.fusion '{self.model.fusion}' selects nothing; use 'sdtps'"
            )
        shrinking = self.model.slimming.keep_warmup_epochs
        if shrinking >= self.train.epochs and shrinking:
            raise ConfigError(
                f"model.slimming.keep_warmup_epochs {shrinking} leaves no epoch of train.epochs "
                f"{self.train.epochs} with the shares that are tested"
            )
        if self.train.eval_features in ("slimmed", "fused") and self.train.eval_features != self.model.second:
            raise ConfigError(
                f"train.eval_features '{self.train.eval_features}' does not exist with "
                f"model.fusion '{self.model.fusion}'"
            )
        if self.seed < 0:
            raise ConfigError(f"seed must not be negative, not {self.seed}")
