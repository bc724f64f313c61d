"""Before the first update: options that fit the data, models to begin from, and where to go on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from slimreid.config import Config
from slimreid.config.files import save_config
from slimreid.data.manifest import Manifest
from slimreid.errors import ConfigError, did_you_mean
from slimreid.runs.folder import RunFolder
from slimreid.runs.identity import dataset_fingerprint
from slimreid.runs.starts import DataSource, Start, Surroundings, new_start, write_starts
from slimreid.training import distillation, warm_start
from slimreid.training.checkpoint.resume import (
    INIT_FROM,
    TEACHER,
    adopt,
    check_same_run,
    check_same_sources,
    check_surroundings,
    find_checkpoint,
)
from slimreid.training.checkpoint.state import Checkpoint, read_state

logger = logging.getLogger(__name__)


def with_whole_paths(config: Config) -> Config:
    """The same options with absolute paths of data and weights, so that a run can be used from anywhere."""

    def whole(place: str | None) -> str | None:
        return str(Path(place).resolve()) if place and Path(place).exists() else place

    data = replace(config.data, manifest=whole(config.data.manifest) or "")
    if config.data.cache_dir:
        data = replace(data, cache_dir=str(Path(config.data.cache_dir).resolve()))
    train = replace(config.train, init_from=whole(config.train.init_from))
    if train.teacher_model:
        train = replace(train, teacher=whole(train.teacher_model))
    model = replace(config.model, pretrained=whole(config.model.pretrained))
    return replace(config, data=data, train=train, model=model)


def fitted(config: Config, manifest: Manifest, processes: int = 1) -> Config:
    """The options as they can be used with this data; what is changed is logged as a warning.

    A batch has no more identities than there are, a warm-up ends before training does, and nothing is chosen
    on a `val` split in which every answer is right. Raises `ConfigError` for a rate of modality dropout whose
    modality the data does not have.
    """
    rates = config.transforms.modality_dropout
    for name in rates if isinstance(rates, dict) else ():
        if name not in manifest.modalities:
            known = ", ".join(manifest.modalities)
            hint = did_you_mean(name, manifest.modalities)
            raise ConfigError(
                f"transforms.modality_dropout.{name}: the data has no such modality{hint} ({known})"
            )
    identities = len({sample.identity for sample in manifest.select("train")})
    most = identities // processes * processes
    if config.batch.num_ids > identities and most > 1:
        logger.warning(
            "batch.num_ids %d is more than the %d training identities; it is %d in this run",
            config.batch.num_ids,
            identities,
            most,
        )
        config = replace(config, batch=replace(config.batch, num_ids=most))
    epochs, warmup = config.train.epochs, config.optim.warmup_epochs
    if warmup >= epochs and warmup:
        logger.warning(
            "optim.warmup_epochs %d leaves nothing of train.epochs %d; it is %d in this run",
            warmup,
            epochs,
            epochs - 1,
        )
        config = replace(config, optim=replace(config.optim, warmup_epochs=epochs - 1))
    people = {sample.identity for sample in manifest.select("val")}
    if config.train.select_on == "val" and len(people) == 1:
        logger.warning(
            "the val split has one identity, so its mAP is always 100 and no epoch can be chosen by it: the "
            "last one is taken. Hold out more identities to choose the best epoch"
        )
        config = replace(config, train=replace(config.train, select_on="last", weigh_branches=False))
    return config


def begin(
    config: Config,
    run: RunFolder,
    resume: str,
    manifest: Manifest,
    surroundings: Surroundings,
    command: Sequence[str] = (),
) -> tuple[Checkpoint | None, dict[str, str]]:
    """Find what to go on from, refuse what must not be, and lay out the run's folder.

    `resume` and `command` as in `train`. Returns the checkpoint to go on from, if any, and the fingerprints
    of the models that the run began from or follows.

    Raises:
        ConfigError: Options or data do not fit the run there, or a model to begin from cannot be used.
        DataError: The run's own description is damaged.
        TrainingError: A checkpoint is damaged.
    """
    found = find_checkpoint(resume, run)
    checkpoint, done = None, 0
    starts: tuple[Start, ...] = ()
    dataset = dataset_fingerprint(manifest)
    sources = check_sources(config, manifest.modalities, restored=found is not None)
    if found is None:
        warn_of_slow_backbone(config)
    else:
        state = read_state(found)
        check_same_run(state, asdict(config), dataset)
        sources = check_same_sources(state, sources)
        check_surroundings(state, surroundings)
        starts, checkpoint, done = run.starts(), adopt(found, run), state.epoch
    save_config(config, run.path)
    start = new_start(tuple(command), done, surroundings, DataSource(dataset, manifest.origin), sources)
    write_starts(run.starts_file, config.seed, [*starts, start])
    return checkpoint, sources


def check_sources(config: Config, modalities: Sequence[str], *, restored: bool) -> dict[str, str]:
    """Fingerprints of the models that `train.init_from` and `train.teacher` name, by these last words.

    `restored`: the run goes on, so the model it began from is not looked at. Raises `ConfigError` when
    one is missing or damaged, or cannot teach a model of these modalities.
    """
    found: dict[str, str] = {}
    train = config.train
    if train.init_from and not restored:
        _, found[INIT_FROM] = warm_start.source_card(train.init_from, warm_start.OPTION)
        if config.model.pretrained:
            logger.info("model.pretrained is not read: the weights come from %s", warm_start.OPTION)
    if train.teacher_model:
        card, found[TEACHER] = warm_start.source_card(train.teacher_model, distillation.OPTION)
        distillation.check_teacher(card, config, modalities)
    return found


def warn_of_slow_backbone(config: Config) -> None:
    """Log a warning when a random backbone would learn at the small rate meant for a pretrained one."""
    optim = config.optim
    begins_anew = not (config.train.init_from or config.model.pretrained or optim.freeze_backbone)
    if begins_anew and optim.backbone_lr is not None and optim.backbone_lr < optim.lr:
        logger.warning(
            "the backbone starts from random weights but learns at optim.backbone_lr %g (the rest at %g): "
            "give --model.pretrained or --train.init_from, or --optim.backbone_lr null to train from scratch",
            optim.backbone_lr,
            optim.lr,
        )
