"""A run from beginning to end: epochs, evaluations, checkpoints, and the result."""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from slimreid.config import Config
from slimreid.config.model import BOTH
from slimreid.config.training import check_run
from slimreid.data.loader import open_manifest, train_loader
from slimreid.devices import check_precision
from slimreid.evaluation.query_gallery import Part
from slimreid.files import write_text
from slimreid.inference.model_card import CHOSEN_ON_TEST, MODEL_NAME
from slimreid.inference.trained_model import load_state, read_model
from slimreid.runs.folder import RunFolder, locked
from slimreid.runs.identity import dataset_fingerprint
from slimreid.runs.starts import Surroundings
from slimreid.training.callbacks.base import Callback, EpochReport, Plan
from slimreid.training.callbacks.files import MetricsFile, TensorBoardFiles
from slimreid.training.callbacks.selection import SelectionWatch
from slimreid.training.checkpoint.resume import NEVER
from slimreid.training.checkpoint.state import Best, Checkpoint, FileMark, RunState
from slimreid.training.checkpoint.store import CheckpointStore
from slimreid.training.distributed.failures import explained
from slimreid.training.distributed.processes import Processes, join_processes, on_main
from slimreid.training.environment import numeric_mode
from slimreid.training.learner import Learner, means
from slimreid.training.outputs import model_card, share_model
from slimreid.training.preparation import begin, fitted, with_whole_paths
from slimreid.training.validation import Evaluator, check_parts

logger = logging.getLogger(__name__)

RANKS = (1, 5, 10)


def train(
    config: Config,
    output: Path | str,
    resume: str = NEVER,
    callbacks: Sequence[Callback] = (),
    *,
    command: Sequence[str] = (),
    compile_backend: str = "inductor",
) -> dict[str, Any]:
    """Train a model.

    Args:
        config: All options.
        output: Folder of the run.
        resume: `auto` goes on with the run in `output` if there is one, `never` refuses to, and a folder
            names the run or checkpoint to go on from.
        callbacks: They are told what happens, in the main process alone.
        command: The words after `slimreid` that asked for it, kept with the run.
        compile_backend: Backend of `torch.compile`, if `train.compile` asks for it.

    Returns:
        What is written to the run's result.json.

    Raises:
        ConfigError: An option is wrong, or the folder holds something else.
        DataError: The data cannot be used.
        TrainingError: Training cannot go on; the last good checkpoint stays.
    """
    check_run(config, Path(output))
    processes = join_processes()
    check_precision(config.train.precision, processes.device)
    with numeric_mode(config.train, processes.device), ExitStack() as stack:
        trainer = Trainer(config, RunFolder(Path(output)), processes, callbacks, compile_backend)
        stack.enter_context(explained(lambda: trainer.doing, lambda: trainer.store.exists))
        on_main(lambda: stack.enter_context(locked(trainer.folder.path)), processes)
        return trainer.run(resume, command)


class Trainer:
    """A run: what learns, what is measured, and where it stands."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        processes: Processes,
        callbacks: Sequence[Callback] = (),
        compile_backend: str = "inductor",
    ) -> None:
        self.folder, self.processes, self.compile_backend = folder, processes, compile_backend
        config = with_whole_paths(config)
        self.manifest = open_manifest(config)
        self.config = config = fitted(config, self.manifest, processes.count)
        self.parts = check_parts(self.manifest, config.train.select_on)
        self.loader = train_loader(config, self.manifest, processes.rank, processes.count)
        self.evaluator = Evaluator(config, self.manifest, processes)
        self.store = CheckpointStore(folder)
        self.callbacks = list(callbacks) if processes.main else []
        self.epoch, self.step = 0, 0
        self.best: Best | None = None
        self.sources: dict[str, str] = {}
        self.kept: list[int] = []
        self.doing = "starting"

    def run(self, resume: str, command: Sequence[str] = ()) -> dict[str, Any]:
        """Train from the beginning or a checkpoint to the end; returns the result."""
        surroundings = self._surroundings()
        checkpoint, self.sources = on_main(
            lambda: begin(self.config, self.folder, resume, self.manifest, surroundings, command),
            self.processes,
        )
        restored = checkpoint is not None
        self.learner = Learner(
            self.config, self.loader, self.processes, self.compile_backend, restored=restored
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
            for callback in self.callbacks:
                callback.close()

    def _open_files(self, checkpoint: Checkpoint | None) -> None:
        """Open the files that grow with the run, cut back to the checkpoint."""
        mark = checkpoint.state.metrics if checkpoint else FileMark()
        self.metrics = MetricsFile(self.folder, mark.length, self.epoch)
        curves = TensorBoardFiles(self.folder.tensorboard, self.step)
        self.callbacks = [self.metrics, curves, *self.callbacks]
        if self.config.train.watch_selection:
            self.callbacks.append(SelectionWatch(self.folder, self.learner, self.manifest))
        dataset = self.loader.dataset
        logger.info(
            "%d samples of %d identities in %s; %d process(es) on %s",
            len(dataset),
            dataset.label_encoder.num_classes,
            "+".join(dataset.modalities),
            self.processes.count,
            self.processes.device,
        )
        plan = Plan(self.config.train.epochs, self.learner.updates_per_epoch, self.epoch)
        for callback in self.callbacks:
            callback.start(plan)

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
            for callback in self.callbacks:
                callback.step(update)
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
        for callback in self.callbacks:
            callback.epoch(report)
        folder = on_main(self._save, self.processes)
        for callback in self.callbacks:
            callback.saved(folder)

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
        for callback in self.callbacks:
            callback.evaluating(part, done, total)

    def _compare(self, figures: dict[str, dict[str, float]]) -> None:
        """Remember the epoch if it is the best so far; the first of equals stays."""
        select_on = self.config.train.select_on
        if select_on in figures:
            found = figures[select_on]["map"]
            if self.best is None or found > self.best.map:
                self.best = Best(self.epoch, found, select_on)

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            processes=self.processes.count,
            threads=torch.get_num_threads(),
            torch=torch.__version__,
            device=self.processes.device.type,
        )

    def _save(self) -> Path:
        """Write the checkpoint of the epoch that has just ended."""
        train = self.config.train
        if train.save_every and self.epoch % train.save_every == 0:
            self.kept = [*self.kept, self.epoch][-train.keep_last :]
        training, optimizer, scaler = self.learner.state(self.store.exists)
        state = RunState(
            epoch=self.epoch,
            step=self.step,
            config=asdict(self.config),
            dataset=dataset_fingerprint(self.manifest),
            surroundings=self._surroundings(),
            metrics=self.metrics.mark,
            best=self.best,
            kept=self.kept,
            optimizer=optimizer,
            scaler=scaler,
            sources=self.sources,
        )
        labels = self.loader.dataset.label_encoder
        card = model_card(self.config, self.manifest, labels, self.epoch)
        return self.store.save(Checkpoint(state, self.learner.weights(), training), card)

    def _finish(self) -> dict[str, Any]:
        """Measure the selected checkpoint on the test set; write the model to share and the result."""
        selected = self.best.epoch if self.best else self.epoch
        source = self.store.path(selected) / MODEL_NAME
        weights, header = on_main(lambda: read_model(source), self.processes)
        load_state(self.learner.model, weights, source)
        if self.config.train.weigh_branches:
            self.doing = "weighing the branches on 'val'"
            model = self.learner.model
            model.options = replace(model.options, second_scale=self.evaluator.best_scale(model))
            logger.info("joint feature: the second branch counts %g times", model.options.second_scale)
        test: dict[str, Any] | None = None
        if "test" in self.parts:
            self.doing = "evaluating 'test' at the end"
            found = self.evaluator(self.learner.model, "test", partial(self._evaluating, "test"))
            test = found.to_dict()
        select_on = self.config.train.select_on
        result: dict[str, Any] = {
            "select_on": select_on,
            "selected_epoch": selected,
            "epochs": self.epoch,
            "features": BOTH,
            "origin": self.manifest.origin,
            "seed": self.config.seed,
            "fingerprint": header["fingerprint"],
            "best": asdict(self.best) if self.best else None,
            "test": test,
        }
        if self.sources:
            result["sources"] = self.sources
        if select_on == "test":
            result["note"] = CHOSEN_ON_TEST
        on_main(lambda: self._write_result(source, result), self.processes)
        return result

    def _write_result(self, source: Path, result: dict[str, Any]) -> None:
        self.doing = "measuring how alike different training identities are"
        share_model(source, self.folder.model_file, self.learner, self.manifest)
        self.doing = "writing the result"
        write_text(self.folder.result_file, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
        for text in filter(None, [self.loader.report(), *self.evaluator.reports()]):
            logger.warning("%s", text)
