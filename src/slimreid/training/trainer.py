"""A run from beginning to end: epochs, evaluations, checkpoints, and the result."""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from slimreid.config import Config
from slimreid.config_io import save_config
from slimreid.data.loader import open_manifest, train_loader
from slimreid.errors import ConfigError
from slimreid.evaluation.parts import Part
from slimreid.files import atomic_write, write_text
from slimreid.loading import CHOSEN_ON_TEST, MODEL_NAME, ModelCard, load_state, read_model
from slimreid.precision import check_precision
from slimreid.training.checkpoint import Best, Checkpoint, CheckpointStore, RunState, read_state
from slimreid.training.distributed import Processes, join_processes, on_main
from slimreid.training.failures import explained
from slimreid.training.learner import Learner, means
from slimreid.training.records import (
    EpochReport,
    MetricsFile,
    Plan,
    TensorBoardFiles,
    Watcher,
    record_start,
)
from slimreid.training.resume import (
    NEVER,
    adopt,
    check_same_run,
    check_same_sources,
    check_surroundings,
    dataset_fingerprint,
    find_checkpoint,
)
from slimreid.training.seeding import numeric_mode
from slimreid.training.selection_watch import SelectionWatch
from slimreid.training.sources import check_sources
from slimreid.training.validation import Evaluator, check_parts

logger = logging.getLogger(__name__)

RESULT_NAME = "result.json"
TENSORBOARD = "tensorboard"
RANKS = (1, 5, 10)


def train(
    config: Config,
    output: Path | str,
    resume: str = NEVER,
    watchers: Sequence[Watcher] = (),
    *,
    compile_backend: str = "inductor",
) -> dict[str, Any]:
    """Train as `config` says, in the folder `output`; returns what is written to its result.json.

    `resume`: `auto` goes on with the run in `output` if there is one, `never` refuses to, and a folder
    names the run or checkpoint to go on from. `watchers` of the main process are told what happens.
    Raises `ConfigError`, `DataError` or `TrainingError`; the last good checkpoint then stays.
    """
    if config.loss.distill_weight and not config.train.teacher:
        raise ConfigError(
            f"loss.distill_weight {config.loss.distill_weight} needs a model to follow: give train.teacher "
            "(and train.start_from to begin from it)"
        )
    processes = join_processes()
    check_precision(config.train.precision, processes.device)
    with numeric_mode(config.train, processes.device):
        trainer = Trainer(config, Path(output), processes, watchers, compile_backend)
        with explained(lambda: trainer.doing, lambda: trainer.store.exists):
            return trainer.run(resume)


def warn_of_slow_backbone(config: Config) -> None:
    """Log a warning when a random backbone would learn at the small rate meant for a pretrained one."""
    optim = config.optim
    if (
        config.train.start_from
        or config.model.pretrained
        or optim.freeze_backbone
        or optim.backbone_lr is None
    ):
        return
    if optim.backbone_lr < optim.lr:
        logger.warning(
            "the backbone starts from random weights but learns at optim.backbone_lr %g (the rest at %g): "
            "give --model.pretrained or --train.start_from, or --optim.backbone_lr null to begin anew",
            optim.backbone_lr,
            optim.lr,
        )


class Trainer:
    """A run: what learns, what is measured, and where it stands."""

    def __init__(
        self,
        config: Config,
        output: Path,
        processes: Processes,
        watchers: Sequence[Watcher] = (),
        compile_backend: str = "inductor",
    ) -> None:
        self.config, self.output, self.processes = config, output, processes
        self.compile_backend = compile_backend
        self.manifest = open_manifest(config)
        self.dataset = dataset_fingerprint(self.manifest)
        self.parts = check_parts(self.manifest, config.train.select_on)
        self.loader = train_loader(config, self.manifest, processes.rank, processes.count)
        self.evaluator = Evaluator(config, self.manifest, processes)
        self.store = CheckpointStore(output)
        self.watchers = list(watchers) if processes.main else []
        self.epoch, self.step = 0, 0
        self.best: Best | None = None
        self.sources: dict[str, str] = {}
        self.kept: list[int] = []
        self.doing = "starting"

    def run(self, resume: str = NEVER) -> dict[str, Any]:
        """Train from the beginning or a checkpoint to the end; returns the result."""
        checkpoint, self.sources = on_main(lambda: self._begin(resume), self.processes)
        self.learner = Learner(
            self.config,
            self.loader,
            self.processes,
            self.compile_backend,
            restored=checkpoint is not None,
        )
        if checkpoint is not None:
            state = checkpoint.state
            self.learner.restore(checkpoint)
            self.epoch, self.step = state.epoch, state.step
            self.best, self.kept = state.best, list(state.kept)
        try:
            on_main(lambda: self._open_files(checkpoint), self.processes)
            while self.epoch < self.config.train.epochs:
                self._epoch()
            return self._finish()
        finally:
            for watcher in self.watchers:
                watcher.close()

    def _begin(self, resume: str) -> tuple[Checkpoint | None, dict[str, str]]:
        """Find what to go on from, refuse what must not be, and lay out the run's folder.

        Also returns the fingerprints of the models that the run began from or follows.
        """
        found = find_checkpoint(resume, self.output)
        checkpoint = None
        sources = check_sources(self.config, self.manifest.modalities, restored=found is not None)
        if found is not None:
            state = read_state(found)
            check_same_run(state, asdict(self.config), self.dataset)
            sources = check_same_sources(state, sources)
            check_surroundings(state, self._surroundings())
            checkpoint = adopt(found, self.output)
        else:
            warn_of_slow_backbone(self.config)
        save_config(self.config, self.output)
        facts = {**self._surroundings(), "dataset": self.dataset, "origin": self.manifest.origin}
        facts |= {"sources": sources} if sources else {}
        epoch = checkpoint.state.epoch if checkpoint else None
        record_start(self.output, self.config.seed, facts, epoch)
        return checkpoint, sources

    def _open_files(self, checkpoint: Checkpoint | None) -> None:
        """Open the files that grow with the run, cut back to the checkpoint."""
        length = checkpoint.state.metrics_bytes if checkpoint else 0
        self.metrics = MetricsFile(self.output, length, self.epoch)
        curves = TensorBoardFiles(self.output / TENSORBOARD, self.step)
        self.watchers = [self.metrics, curves, *self.watchers]
        if self.config.train.watch_selection:
            self.watchers.append(SelectionWatch(self.output, self.learner, self.manifest))
        dataset = self.loader.dataset
        logger.info(
            "%d samples of %d identities in %s; %d process(es) on %s",
            len(dataset),
            dataset.codebook.num_classes,
            "+".join(dataset.modalities),
            self.processes.count,
            self.processes.device,
        )
        plan = Plan(self.config.train.epochs, self.learner.updates_per_epoch, self.epoch)
        for watcher in self.watchers:
            watcher.start(plan)

    def _epoch(self) -> None:
        """Train for an epoch, evaluate if it is time, and write the checkpoint."""
        started, images = time.monotonic(), 0
        losses: dict[str, list[float]] = defaultdict(list)
        self.doing = f"epoch {self.epoch + 1}, update 1"
        for update in self.learner.updates(self.epoch, self.step):
            self.step = update.step
            self.doing = f"epoch {update.epoch}, update {update.in_epoch + 1}"
            images += update.images
            for name, value in update.losses.items():
                losses[name].append(value)
            for watcher in self.watchers:
                watcher.step(update)
        trained = time.monotonic() - started
        self.epoch += 1
        figures = self._evaluate()
        self._compare(figures)
        report = EpochReport(
            epoch=self.epoch,
            step=self.step,
            losses=means(losses),
            rates=self.learner.schedule.rates(),
            figures=figures,
            best=self.best,
            seconds=time.monotonic() - started,
            images_per_second=images / max(trained, 1e-9),
        )
        self.doing = f"writing the checkpoint of epoch {self.epoch}"
        for watcher in self.watchers:
            watcher.epoch(report)
        folder = on_main(self._save, self.processes)
        for watcher in self.watchers:
            watcher.saved(folder)

    def _evaluate(self) -> dict[str, dict[str, float]]:
        """Figures of the part that is watched during training; empty when it is not time."""
        train = self.config.train
        part: Part = "test" if train.select_on == "test" else "val"
        due = self.epoch % train.eval_every == 0 or self.epoch == train.epochs
        if not due or part not in self.parts:
            return {}
        self.doing = f"evaluating '{part}' after epoch {self.epoch}"
        ema = self.learner.ema
        with ema.swapped() if ema else nullcontext():
            result = self.evaluator(self.learner.model, part, partial(self._evaluating, part))
        ranks = {f"rank{k}": result.rank(k) for k in RANKS}
        return {part: {"map": result.map, **ranks, "minp": result.minp}}

    def _evaluating(self, part: str, done: int, total: int) -> None:
        for watcher in self.watchers:
            watcher.evaluating(part, done, total)

    def _compare(self, figures: dict[str, dict[str, float]]) -> None:
        """Remember the epoch if it is the best so far; the first of equals stays."""
        select_on = self.config.train.select_on
        if select_on in figures:
            found = figures[select_on]["map"]
            if self.best is None or found > self.best.map:
                self.best = Best(self.epoch, found, select_on)

    def _surroundings(self) -> dict[str, Any]:
        """What equality to the last bit depends on, besides the options."""
        return {
            "processes": self.processes.count,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "device": self.processes.device.type,
        }

    def _save(self) -> Path:
        """Write the checkpoint of the epoch that has just ended."""
        train = self.config.train
        if train.save_every and self.epoch % train.save_every == 0:
            self.kept = [*self.kept, self.epoch][-train.keep :]
        training, optimizer, scaler = self.learner.state(self.store.exists)
        state = RunState(
            epoch=self.epoch,
            step=self.step,
            config=asdict(self.config),
            dataset=self.dataset,
            surroundings=self._surroundings(),
            metrics_bytes=self.metrics.length,
            best=self.best,
            kept=self.kept,
            optimizer=optimizer,
            scaler=scaler,
            sources=self.sources,
        )
        codebook = self.loader.dataset.codebook
        card = ModelCard(
            config=self.config,
            modalities=self.manifest.modalities,
            identities=codebook.trained_identities,
            cameras=codebook.trained_cameras,
            epoch=self.epoch,
            select_on=train.select_on,
            protocol=self.manifest.protocol,
            origin=self.manifest.origin,
        )
        return self.store.save(Checkpoint(state, self.learner.weights(), training), card)

    def _finish(self) -> dict[str, Any]:
        """Measure the selected checkpoint on the test set; write the model to share and the result."""
        selected = self.best.epoch if self.best else self.epoch
        source = self.store.path(selected) / MODEL_NAME
        weights, header = on_main(lambda: read_model(source), self.processes)
        load_state(self.learner.model, weights, source)
        test: dict[str, Any] | None = None
        if "test" in self.parts:
            self.doing = "evaluating 'test' at the end"
            found = self.evaluator(self.learner.model, "test", partial(self._evaluating, "test"))
            test = found.to_dict()
        train = self.config.train
        result: dict[str, Any] = {
            "select_on": train.select_on,
            "selected_epoch": selected,
            "epochs": self.epoch,
            "features": train.eval_features,
            "origin": self.manifest.origin,
            "seed": self.config.seed,
            "fingerprint": header["fingerprint"],
            "best": asdict(self.best) if self.best else None,
            "test": test,
        }
        if self.sources:
            result["sources"] = self.sources
        if train.select_on == "test":
            result["note"] = CHOSEN_ON_TEST
        self.doing = "writing the result"
        on_main(lambda: self._write_result(source, result), self.processes)
        return result

    def _write_result(self, source: Path, result: dict[str, Any]) -> None:
        with atomic_write(self.output / MODEL_NAME) as file:
            file.write(source.read_bytes())
        write_text(self.output / RESULT_NAME, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
        for text in filter(None, [self.loader.report(), *self.evaluator.reports()]):
            logger.warning("%s", text)
