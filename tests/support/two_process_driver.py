"""Started by torchrun in several processes: one update of several configs, then a whole run.

Usage: two_process_driver.py FOLDER, where cases.json holds {name: [override, ...]} and `set`, `set_missing`
the datasets. Writes <name>_<rank>.safetensors with gradients and buffers, and <name>_<rank>.json with the
named losses; then trains in FOLDER/<run> for each of `RESUMED`, goes on from its first epoch in
FOLDER/<run>_again, and trains with the command line in FOLDER/run.
"""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`

import pytest
import torch
from safetensors.torch import save_file

from slimreid.cli.app import main as slimreid
from slimreid.data.loader import train_loader
from slimreid.training.distributed.processes import (
    StoppedByMainError,
    gather_rows,
    join_processes,
    on_main,
    while_all_have_more,
)
from slimreid.training.environment import numeric_mode
from slimreid.training.learner import Learner
from slimreid.training.loop import train
from support.runs import SMALL, make_config

RESUMED = {
    "gumbel": ("optim.ema=0.9", "model.after_backbone.estimator=gumbel"),
    "averaged": (
        "optim.ema=0.9",
        "model.reduction=in_backbone",
        "train.full_epochs=1",
        "train.teacher=average",
        "loss.distill_weight=3",
    ),
}
"""Options of whole runs that are resumed."""


@contextmanager
def default_dtype(dtype):
    """New tensors, and so images, weights and gradients, have this type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def one_update(config, processes, dtype=torch.float64):
    """Losses of the first update, its gradients as the optimizer sees them, and buffers after it."""
    with default_dtype(dtype), numeric_mode(config.train, processes.device):
        loader = train_loader(config, None, processes.rank, processes.count)
        learner = Learner(config, loader, processes)
        for module in learner.model.modules():
            if isinstance(module, torch.nn.MultiheadAttention):
                module.dropout = 0.0  # its noise is each process's own
        gradients = {}
        names = dict(learner.model.named_parameters())

        def spy(*_):
            gradients.update({n: p.grad.clone() for n, p in names.items() if p.grad is not None})

        learner.optimizer.register_step_pre_hook(spy)
        report = next(learner.updates(0, 0))
        buffers = {n: b.clone() for n, b in learner.model.named_buffers() if b.is_floating_point()}
    return report.losses, gradients, buffers


def check_messages(processes):
    """Exchange between processes on its own, with rows that differ in number."""
    rank = processes.rank
    rows = torch.arange(rank + 1.0, dtype=torch.float64)[:, None] + 10 * rank
    rows.requires_grad_()
    joined = gather_rows(rows)
    assert joined[:, 0].tolist() == [0, 10, 11]
    (joined[:, 0] * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    expected = [[2.0]] if rank == 0 else [[4.0], [6.0]]  # twice the gradient, halved when it is averaged
    assert rows.grad.tolist() == expected
    assert gather_rows(torch.tensor([rank == 1])).tolist() == [False, True]
    assert gather_rows(torch.ones(1, 2, dtype=torch.bfloat16) * rank).dtype == torch.float32
    assert list(while_all_have_more(iter(range(2 + rank)), processes.device)) == [0, 1]
    assert on_main(lambda: processes.rank, processes) == 0
    with pytest.raises(ZeroDivisionError if processes.main else StoppedByMainError, match="division by zero"):
        on_main(lambda: 1 / 0, processes)


def main():
    folder = Path(sys.argv[1])
    processes = join_processes()
    check_messages(processes)
    for name, (dataset, *overrides) in json.loads((folder / "cases.json").read_text()).items():
        config = make_config(folder / dataset / "manifest.csv", *overrides)
        dtype = torch.float32 if name.startswith("fp32") else torch.float64
        losses, gradients, buffers = one_update(config, processes, dtype)
        tensors = {f"grad.{n}": g for n, g in gradients.items()} | {
            f"buffer.{n}": b for n, b in buffers.items()
        }
        save_file(tensors, folder / f"{name}_{processes.rank}.safetensors")
        (folder / f"{name}_{processes.rank}.json").write_text(json.dumps(losses))
    for name, overrides in RESUMED.items():
        config = make_config(folder / "set" / "manifest.csv", "train.save_every=1", *overrides)
        train(config, folder / name)
        train(config, folder / f"{name}_again", str(folder / name / "checkpoints" / "epoch_0001"))
    options = [f"--{option}" for option in (*SMALL, f"data.manifest={folder}/set/manifest.csv")]
    code = slimreid(["train", "--out", str(folder / "run"), *options])
    assert code == 0
    print(f"process {processes.rank} is done")


if __name__ == "__main__":
    main()
