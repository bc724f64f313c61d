"""Started by torchrun on each of several nodes: `slimreid train` in float64, with deaths at chosen moments.

Usage: node_driver.py DEATHS OUT MANIFEST. DEATHS is JSON, [[rank, update, whole node], ...], one after the
other: the process of this rank dies by SIGKILL after this update (from 1) since its start, together with
torchrun itself where the whole node is lost. The file OUT.deaths has a byte for each that happened.
"""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`

import torch

from slimreid.cli.app import main as slimreid
from slimreid.training.step import Updater
from support.runs import SMALL

OPTIONS = (*SMALL, "train.epochs=3", "train.threads=1", "optim.ema=0.9", "model.drop_path=0.0")


def die_as_planned(deaths, out):
    """Let this process count its updates and die when it is its turn."""
    diary = out.with_name(f"{out.name}.deaths")
    happened = diary.stat().st_size if diary.exists() else 0
    rank, last, whole_node = deaths[happened] if happened < len(deaths) else (None, 0, False)
    real, done = Updater.update, 0

    def update(self):
        nonlocal done
        real(self)
        done += 1
        if done == last:
            with diary.open("a") as file:
                file.write(".")
            if whole_node:
                os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    if rank == int(os.environ["RANK"]):
        Updater.update = update


def command(out, manifest):
    """The words after `slimreid`."""
    options = (f"--{option}" for option in (*OPTIONS, f"data.manifest={manifest}"))
    return ["train", "--out", str(out), "--resume", "auto", *options]


def main():
    out = Path(sys.argv[2])
    torch.set_default_dtype(torch.float64)
    die_as_planned(json.loads(sys.argv[1]), out)
    return slimreid(command(out, sys.argv[3]))


if __name__ == "__main__":
    sys.exit(main())
