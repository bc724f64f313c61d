"""The trained models that a run begins from or follows, looked at before anything is written."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from slimreid.config import Config
from slimreid.training import distillation, start
from slimreid.training.resume import START_FROM, TEACHER

logger = logging.getLogger(__name__)


def check_sources(config: Config, modalities: Sequence[str], *, restored: bool) -> dict[str, str]:
    """Fingerprints of the models that `train.start_from` and `train.teacher` name, by these last words.

    `restored`: the run goes on, so the model it began from is not looked at. Raises `ConfigError` when
    one is missing or damaged, or cannot teach a model of these modalities.
    """
    found: dict[str, str] = {}
    train = config.train
    if train.start_from and not restored:
        _, found[START_FROM] = start.source_card(train.start_from, start.OPTION)
        if config.model.pretrained:
            logger.info("model.pretrained is not read: the weights come from %s", start.OPTION)
    if train.teacher:
        card, found[TEACHER] = start.source_card(train.teacher, distillation.OPTION)
        distillation.check_teacher(card, config, modalities)
    return found
