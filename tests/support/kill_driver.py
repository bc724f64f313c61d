"""Runs trainings in child processes that die by SIGKILL at chosen moments, again and again.

Usage: kill_driver.py MANIFEST FOLDER, with scenarios {name: [moment, ...]} as JSON on standard input.
Each moment kills one process, and a last process finishes the run; prints how each of them ended.

| moment              | when                                                                        |
|---------------------|-----------------------------------------------------------------------------|
| ["step", n]         | right after the n-th update of the process                                  |
| ["evaluating", n]   | after its n-th evaluated batch                                              |
| ["save", e, n]      | before the n-th fsync, rename or removal of a folder in the save of epoch e |
| ["after", seconds]  | from outside, whatever it is doing                                          |
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`

import torch._dynamo  # noqa: F401  these two are slow to import, so once for all children
from torch.utils.tensorboard import SummaryWriter  # noqa: F401

from slimreid.training.callbacks.base import Callback
from slimreid.training.loop import train
from support.runs import make_config

OPTIONS = (
    "train.epochs=3",
    "train.save_every=2",
    "train.threads=1",
    "optim.ema=0.9",
    "model.drop_path=0.2",
    "model.after_backbone.estimator=gumbel",
    "transforms.modality_dropout=0.2",
)


class KillAt(Callback):
    """Dies at the n-th update, at the n-th evaluated batch, or at the n-th file event of an epoch's save."""

    def __init__(self, event, *numbers):
        self.event, self.numbers, self.seen = event, numbers, 0

    def _count(self):
        self.seen += 1
        if self.seen == self.numbers[-1]:
            os.kill(os.getpid(), signal.SIGKILL)

    def step(self, report):
        if self.event == "step":
            self._count()

    def evaluating(self, part, done, total):
        if self.event == "evaluating":
            self._count()

    def epoch(self, report):
        if self.event == "save" and report.epoch == self.numbers[0]:
            os.fsync = self._counted(os.fsync)
            Path.replace = self._counted(Path.replace)
            shutil.rmtree = self._counted(shutil.rmtree)

    def _counted(self, real):
        def call(*arguments, **options):
            self._count()
            return real(*arguments, **options)

        return call


def child(config, output, moment):
    callbacks = [KillAt(*moment)] if moment and moment[0] != "after" else []
    train(config, output, "auto", callbacks)


def run_child(config, output, moment):
    """Fork, so that the slow imports are done once; returns how the child ended."""
    pid = os.fork()
    if pid == 0:
        try:
            child(config, output, moment)
            code = 0
        except BaseException as error:
            print(f"{output.name} {moment}: {error!r}", file=sys.stderr)
            code = 1
        os._exit(code)
    if moment and moment[0] == "after":
        time.sleep(moment[1])
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def main():
    manifest, folder = Path(sys.argv[1]), Path(sys.argv[2])
    config = make_config(manifest, *OPTIONS)
    codes = {}
    for name, moments in json.load(sys.stdin).items():
        codes[name] = [run_child(config, folder / name, moment) for moment in [*moments, None]]
    print(json.dumps(codes))


if __name__ == "__main__":
    main()
