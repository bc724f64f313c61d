"""Runs trainings in child processes that die by SIGKILL at a chosen moment, again and again.

Usage: kill_driver.py MANIFEST FOLDER, with scenarios as JSON on standard input:
{name: [moment, ...]}; each moment kills one process, and a last process finishes the run.
A moment is ["step", n], ["evaluating", n], ["file", n] (the n-th change of the file system since
the start, as counted by `count_files`), ["after", seconds] or ["count"], which only counts.
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from run_cases import make_config
from torch.utils.tensorboard import SummaryWriter  # noqa: F401  slow to import, so once for all children

from slimreid.training.records import Watcher
from slimreid.training.trainer import train

OPTIONS = (
    "train.epochs=3",
    "train.save_every=2",
    "train.threads=1",
    "optim.ema=0.9",
    "model.drop_path=0.2",
    "model.slimming.estimator=gumbel",
    "transforms.modality_dropout=0.2",
)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class KillAt(Watcher):
    def __init__(self, event, number):
        self.event, self.number, self.seen = event, number, 0

    def _happened(self, event):
        self.seen += event == self.event
        if event == self.event and self.seen == self.number:
            die()

    def step(self, report):
        self._happened("step")

    def evaluating(self, part, done, total):
        self._happened("evaluating")


def count_files(number, log):
    """Die just before the n-th fsync, rename or removal of a folder; log how many there were."""
    seen = 0

    def counted(real, name):
        def call(*arguments, **options):
            nonlocal seen
            seen += 1
            log.append(name)
            if seen == number:
                die()
            return real(*arguments, **options)

        return call

    os.fsync = counted(os.fsync, "fsync")
    Path.replace = counted(Path.replace, "replace")
    shutil.rmtree = counted(shutil.rmtree, "rmtree")


def child(config, output, moment):
    log = []
    watchers = []
    if moment and moment[0] in ("step", "evaluating"):
        watchers = [KillAt(*moment)]
    elif moment and moment[0] == "file":
        count_files(moment[1], log)
    elif moment and moment[0] == "count":
        count_files(-1, log)
        watchers = [Marker(log)]
    train(config, output, "auto", watchers)
    if moment and moment[0] == "count":
        (output / "files.json").write_text(json.dumps(log))


class Marker(Watcher):
    """Notes in the log where an epoch's checkpoint begins and ends."""

    def __init__(self, log):
        self.log = log

    def epoch(self, report):
        self.log.append(f"begin {report.epoch}")

    def saved(self, folder):
        self.log.append(f"saved {folder.name}")


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
