"""The options of DeMo-style configs: what each old key means here, and which values it may have."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slimreid.errors import ConfigError


@dataclass(frozen=True)
class OldKey:
    """One old option: its old default, our key it sets (if directly), or why it sets none."""

    default: Any
    ours: str | None = None
    """Our dotted key, where the value carries over as it is."""
    dead: str | None = None
    """Why the option has no effect here."""
    refused: str | None = None
    """Why the option is refused when it is on."""


_ELSEWHERE = "not an option of the model or of training; give it to the command that needs it"
_NEVER_READ = "was stored but never read"

OLD_KEYS: dict[str, OldKey] = {
    "MODEL.TRANSFORMER_TYPE": OldKey("ViT-B-16"),
    "MODEL.STRIDE_SIZE": OldKey((16, 16)),
    "MODEL.DIRECT": OldKey(1),
    "MODEL.SIE_CAMERA": OldKey(True, "model.camera_embedding"),
    "MODEL.SIE_COE": OldKey(3.0, "model.camera_scale"),
    "MODEL.GLOBAL_LOCAL": OldKey(False, "model.global_local"),
    "MODEL.HDM": OldKey(False),
    "MODEL.ATM": OldKey(False),
    "MODEL.HEAD": OldKey(12, "model.moe_heads"),
    "MODEL.USE_SDTPS": OldKey(False),
    "MODEL.SDTPS_SPARSE_RATIO": OldKey(0.5),
    "MODEL.SDTPS_AGGR_RATIO": OldKey(0.4),
    "MODEL.SDTPS_BETA": OldKey(0.25),
    "MODEL.SDTPS_USE_GUMBEL": OldKey(False),
    "MODEL.SDTPS_GUMBEL_TAU": OldKey(1.0),
    "MODEL.SDTPS_LOSS_WEIGHT": OldKey(1.0),
    "MODEL.DROP_PATH": OldKey(0.1),
    "MODEL.PRETRAIN_PATH_T": OldKey(None, "model.pretrained"),
    "MODEL.ID_LOSS_WEIGHT": OldKey(1.0, "loss.identity_weight"),
    "MODEL.TRIPLET_LOSS_WEIGHT": OldKey(1.0, "loss.metric_weight"),
    "MODEL.NO_MARGIN": OldKey(True),
    "MODEL.IF_LABELSMOOTH": OldKey("on"),
    "MODEL.DIST_TRAIN": OldKey(False, dead="processes are started by torchrun or accelerate launch"),
    "MODEL.PROMPT": OldKey(False, refused="prompt tuning is not part of SlimReID"),
    "MODEL.ADAPTER": OldKey(False, refused="adapters are not part of SlimReID"),
    "MODEL.FROZEN": OldKey(False, refused="use optim.freeze_backbone"),
    "MODEL.DEVICE": OldKey("cuda", dead="the device is chosen by accelerate"),
    "MODEL.DEVICE_ID": OldKey("0", dead="the device is chosen by accelerate"),
    "MODEL.NAME": OldKey("", dead=_NEVER_READ),
    "MODEL.NECK": OldKey("bnneck", dead="heads always have a BNNeck"),
    "INPUT.SIZE_TRAIN": OldKey((256, 128)),
    "INPUT.SIZE_TEST": OldKey((256, 128)),
    "INPUT.PROB": OldKey(0.5, "transforms.flip"),
    "INPUT.RE_PROB": OldKey(0.5, "transforms.erase"),
    "INPUT.PADDING": OldKey(10, "transforms.pad"),
    "INPUT.PIXEL_MEAN": OldKey((0.5, 0.5, 0.5)),
    "INPUT.PIXEL_STD": OldKey((0.5, 0.5, 0.5)),
    "DATALOADER.SAMPLER": OldKey("softmax_triplet"),
    "DATALOADER.NUM_INSTANCE": OldKey(16, "batch.num_instances"),
    "DATALOADER.NUM_WORKERS": OldKey(8, "data.workers"),
    "DATASETS.NAMES": OldKey("", dead="give data.manifest; 'slimreid data import' makes it"),
    "DATASETS.ROOT_DIR": OldKey("", dead="give data.manifest; 'slimreid data import' makes it"),
    "SOLVER.OPTIMIZER_NAME": OldKey("SGD"),
    "SOLVER.BASE_LR": OldKey(0.009, "optim.lr"),
    "SOLVER.MAX_EPOCHS": OldKey(120, "train.epochs"),
    "SOLVER.IMS_PER_BATCH": OldKey(128),
    "SOLVER.WARMUP_ITERS": OldKey(10, "optim.warmup_epochs"),
    "SOLVER.WEIGHT_DECAY": OldKey(1e-4, "optim.weight_decay"),
    "SOLVER.BIAS_LR_FACTOR": OldKey(2.0, "optim.bias_lr_factor"),
    "SOLVER.MARGIN": OldKey(0.3, "loss.margin"),
    "SOLVER.SEED": OldKey(1111, "seed"),
    "SOLVER.EVAL_PERIOD": OldKey(1, "train.eval_every"),
    "SOLVER.CHECKPOINT_PERIOD": OldKey(10, "train.save_every"),
    "SOLVER.LOG_PERIOD": OldKey(10, dead="progress is always shown"),
    "TEST.MISS": OldKey("None", dead=_ELSEWHERE),
    "TEST.RE_RANKING": OldKey(False, dead="was never read; use --rerank when evaluating"),
    "TEST.FEAT_NORM": OldKey("yes", dead="features are always normalised for search"),
    "TEST.WEIGHT": OldKey("", dead=_ELSEWHERE),
    "TEST.IMS_PER_BATCH": OldKey(128, "batch.test"),
    "TEST.NECK_FEAT": OldKey("before", dead="was never used: features are taken before the neck"),
    "OUTPUT_DIR": OldKey("", dead="give --out"),
}


def check_value(key: str, value: Any) -> Any:
    """The value of a known old option in the type of its default; raises `ConfigError` naming the key."""
    default = OLD_KEYS[key].default
    read, wanted = _OWN_KINDS.get(key) or _kind(default)
    found = read(value)
    if found is _WRONG:
        raise ConfigError(f"{key} is {value!r}; it must be {wanted}, such as {default!r}")
    return found


_WRONG = object()
_Reader = Callable[[Any], Any]


def _kind(default: Any) -> tuple[_Reader, str]:
    """How to read a value like `default`, and what to call its kind."""
    if isinstance(default, tuple):
        return _numbers(len(default)), f"{len(default)} whole numbers"
    return _KINDS[type(default)]


def _flag(value: Any) -> Any:
    return bool(value) if isinstance(value, (bool, int)) and value in (0, 1) else _WRONG


def _whole(value: Any) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) else _WRONG


def _real(value: Any) -> Any:
    if isinstance(value, str):  # YAML 1.1 takes 1e-4 for text
        try:
            value = float(value)
        except ValueError:
            return _WRONG
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return _WRONG
    return value


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else _WRONG


def _text_or_none(value: Any) -> Any:
    return value if value is None else _text(value)


def _numbers(count: int) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != count:
            return _WRONG
        found = tuple(_whole(v) for v in value)
        return _WRONG if _WRONG in found else found

    return read


def _switch(value: Any) -> Any:
    """`on` and `off`, which YAML 1.1 reads as true and false; compared by identity, since 1 == True."""
    if value is True or value == "on":
        return "on"
    return "off" if value is False or value == "off" else _WRONG


def _channels(value: Any) -> Any:
    """One number per channel; a single one stands for all."""
    if not isinstance(value, (list, tuple)):
        value = (value,) * 3
    found = tuple(_real(v) for v in value)
    return _WRONG if len(found) != 3 or _WRONG in found else found


_KINDS: dict[type, tuple[_Reader, str]] = {
    bool: (_flag, "True or False"),
    int: (_whole, "a whole number"),
    float: (_real, "a number"),
    str: (_text, "text"),
    type(None): (_text_or_none, "text or nothing"),
}
_OWN_KINDS: dict[str, tuple[_Reader, str]] = {
    "MODEL.DIRECT": (_flag, "0 or 1"),
    "MODEL.IF_LABELSMOOTH": (_switch, "'on' or 'off'"),
    "INPUT.PIXEL_MEAN": (_channels, "a number, or one per channel"),
    "INPUT.PIXEL_STD": (_channels, "a number, or one per channel"),
}
