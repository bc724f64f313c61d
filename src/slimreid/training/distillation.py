"""Following a trained model or the run's own average: how far a student's features are from its teacher's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.config import Config, ModelConfig
from slimreid.config.backbones import vit_config
from slimreid.config.model import ORIGINAL
from slimreid.data.batches import ModalBatch
from slimreid.data.manifest import LabelEncoder
from slimreid.devices import Precision, autocast
from slimreid.errors import ConfigError
from slimreid.inference.load import find_model
from slimreid.inference.model_card import ModelCard
from slimreid.inference.trained_model import TrainedModel, assemble, read_model
from slimreid.models.heads import ReIDOutput
from slimreid.models.reid_model import ReIDModel
from slimreid.training.distributed.processes import Processes, on_main
from slimreid.training.warm_start import naming

OPTION = "train.teacher"
Kind = Literal["feature", "relation"]
Gather = Callable[[Tensor], Tensor]


def feature_distance(student: Tensor, teacher: Tensor, present: Tensor) -> Tensor:
    """Mean of 1 − cosine over the present blocks: two of (B, S, D), present (B, S) bool -> scalar."""
    cosine = F.cosine_similarity(student, teacher, dim=-1)  # (B, S)
    there = present.to(cosine.dtype)
    return ((1 - cosine) * there).sum() / there.sum()


def relation_distance(student: Tensor, teacher: Tensor, present: Tensor) -> Tensor:
    """Mean squared difference of the two cosine matrices (B, B) within a batch -> scalar.

    student (B, S, D), teacher (B, S, E), present (B, S) bool. The similarity of two samples is the mean
    cosine over the blocks that both have; pairs without one are left out.
    """
    there = present.to(student.dtype)
    shared = there @ there.T  # (B, B): how many blocks both have
    matrices = []
    for blocks in (student, teacher):
        unit = F.normalize(blocks, dim=-1) * there[..., None].to(blocks.dtype)
        joined = unit.flatten(1)
        matrices.append(joined @ joined.T / shared.clamp_min(1))
    pairs = (shared > 0).to(student.dtype)
    return ((matrices[0] - matrices[1]).square() * pairs).sum() / pairs.sum()


def compared_branches(
    student: ModelConfig, teacher: ModelConfig, modalities: Sequence[str], known: Sequence[str]
) -> tuple[str, ...]:
    """Branches of a student that are distilled, each from the same branch of its teacher.

    `modalities` of the student, `known` to the teacher. The second branch is among them if its
    weight is not 0 and both models have a mean of patches or tokens per modality, or both DeMo's fusion of
    the same modalities.
    """
    names = [ORIGINAL]
    per_modality = [model.fusion == "mean" for model in (student, teacher)]
    demo = [model.fusion in ("hdm", "hdm_atmoe") for model in (student, teacher)]
    alike = all(per_modality) or (all(demo) and tuple(modalities) == tuple(known))
    if student.second and alike and student.fusion_weight:
        names.append(student.second)
    return tuple(names)


def check_teacher(card: ModelCard, config: Config, modalities: Sequence[str]) -> None:
    """Raise `ConfigError` unless the model of `card` can teach a student with `config` and `modalities`."""
    where = f"{OPTION} {config.train.teacher}"
    lacking = [name for name in modalities if name not in card.modalities]
    if lacking:
        raise ConfigError(
            f"{where}: knows {', '.join(card.modalities)} but not {', '.join(lacking)}; choose among its "
            "modalities with data.modalities"
        )
    ours, theirs = config.transforms, card.config.transforms
    for name in ("height", "width", "mean", "std"):
        own, other = getattr(ours, name), getattr(theirs, name)
        if own != other:
            raise ConfigError(f"{where}: has transforms.{name} {other}, not {own}; both see the same images")
    student, teacher = config.model, card.config.model
    if config.loss.distill == "feature" and _width(student) != _width(teacher):
        raise ConfigError(
            f"{where}: its features have {_width(teacher)} channels per modality, not {_width(student)}; "
            "use loss.distill relation"
        )


def _width(model: ModelConfig) -> int:
    """Channels of a modality's feature."""
    return vit_config(model.backbone).out_width


class Distillation:
    """A teacher without gradients and the distance of a student to it.

    Not a module, so that the teacher is in no checkpoint, optimizer, average or exchange of gradients.
    `all_tokens`: the teacher does not reduce tokens in its backbone.
    """

    def __init__(
        self,
        student: ReIDModel,
        teacher: ReIDModel,
        branches: Sequence[str],
        *,
        kind: Kind,
        precision: Precision,
        cameras: Tensor,
        all_tokens: bool = False,
    ) -> None:
        self.student, self.teacher = student, teacher.eval().requires_grad_(False)
        # The student's features have not been through a neck either.
        self.teacher.options = replace(teacher.options, neck_feature="before")
        self.branches, self.precision, self.all_tokens = tuple(branches), precision, all_tokens
        self.distance = feature_distance if kind == "feature" else relation_distance
        self.cameras = cameras
        """(cameras of the student,): their numbers in the teacher, −1 where it does not know them."""
        self.columns = [teacher.modalities.index(name) for name in student.modalities]

    def __call__(self, batch: ModalBatch, output: ReIDOutput, gather: Gather | None = None) -> Tensor:
        """The distance of the student's `output` for `batch`, the mean over branches, in float32.

        With `gather` the output covers the batches of all processes, and so does the distance.
        """
        device = batch.identity.device
        with torch.no_grad(), autocast(self.precision, device):
            cameras = self.cameras[batch.camera]
            target = self.teacher(batch, cameras, all_tokens=self.all_tokens).features
        present = batch.presence_of(self.student.modalities)
        if gather is not None:
            present = gather(present)
        found = []
        with torch.autocast(device.type, enabled=False):
            for branch in self.branches:
                theirs = target[branch if branch == ORIGINAL else cast(str, self.teacher.second)]
                theirs = theirs if gather is None else gather(theirs)
                found.append(self._branch(branch, output.features[branch].float(), theirs.float(), present))
            return torch.stack(found).mean()

    def _branch(self, branch: str, student: Tensor, teacher: Tensor, present: Tensor) -> Tensor:
        """Distance of one branch: features (B, S·D) and (B, S'·E), present (B, M)."""
        B = len(student)
        if branch == ORIGINAL or self.student.hdm is None:  # a block per modality
            blocks = teacher.view(B, len(self.teacher.modalities), -1)[:, self.columns]
            return self.distance(student.view(B, len(self.columns), -1), blocks, present)
        some = self.student.hdm.subset_presence(present)
        S = some.shape[1]
        return self.distance(student.view(B, S, -1), teacher.view(B, S, -1), some)


def load_teacher(path: str, device: torch.device, processes: Processes) -> TrainedModel:
    """The model that teaches, read by the main process alone; raises `ConfigError` when there is none."""

    def read() -> tuple[Path, dict[str, Tensor], dict[str, Any]]:
        found = find_model(path)
        return (found, *read_model(found))

    with naming(OPTION):
        return assemble(*on_main(read, processes), device)


def make_distillation(
    config: Config,
    student: ReIDModel,
    label_encoder: LabelEncoder,
    processes: Processes,
    average: Mapping[str, Tensor] | None = None,
) -> Distillation | None:
    """What `config` asks the student to follow; None without a teacher. Raises `ConfigError`.

    `average`: the moving average of the student's weights, changed in place by who keeps it.
    """
    if not config.train.teacher:
        return None
    known = label_encoder.trained_cameras
    if config.train.teacher_model is None:
        assert average is not None
        teacher, options, theirs = deepcopy(student), config.model, known
        teacher.load_state_dict(average, assign=True)  # the tensors themselves, so that it follows them
    else:
        loaded = load_teacher(config.train.teacher_model, processes.device, processes)
        check_teacher(loaded.card, config, student.modalities)
        teacher, options, theirs = loaded.model, loaded.config.model, loaded.cameras
    numbers = {name: number for number, name in enumerate(theirs)}
    return Distillation(
        student,
        teacher,
        compared_branches(config.model, options, student.modalities, teacher.modalities),
        kind=config.loss.distill,
        precision=config.train.precision,
        cameras=torch.tensor([numbers.get(name, -1) for name in known], device=processes.device),
        all_tokens=config.train.teacher_model is None,
    )
