"""Several machines as docs/multi_gpu.md starts them: two torchrun agents on the loopback, with gloo."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slimreid.errors import TrainingError
from slimreid.training.distributed.failures import explained
from slimreid.training.loop import train
from support.node_driver import OPTIONS
from support.runs import contents, make_config, write_set
from support.two_process_driver import default_dtype

DRIVER = Path(__file__).parents[2] / "support" / "node_driver.py"
NODE_1_LOSES_ITS_PROCESS, NODE_0_IS_LOST = [1, 4, False], [0, 4, True]
"""Rank, update since the start, whether torchrun goes too. An epoch has 3 updates: the first happens in epoch 2,
the second after the restart in epoch 3."""

RESTARTABLE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""As docs/multi_gpu.md says: else processes started again may find addresses of the dead ones."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_nodes(place_of, deaths, out, manifest):
    """Start torchrun on both nodes and wait; exit codes, and what each node printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **RESTARTABLE}
    words = [DRIVER, json.dumps(deaths), out, manifest]
    nodes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"),
                *place_of(rank),
                *words,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in (0, 1)
    ]
    texts = [node.communicate()[0] for node in nodes]
    return [node.returncode for node in nodes], texts


def fixed_places():
    """Options of torchrun where the order of the machines is given."""
    port = free_port()
    return lambda rank: ["--node-rank", str(rank), "--master-addr", "127.0.0.1", "--master-port", port]


def restarted_places():
    """Options of torchrun with restarts; the first machine holds the rendezvous."""
    place = f"127.0.0.1:{free_port()}"
    meeting = ["--rdzv-backend", "c10d", "--rdzv-id", "big", "--rdzv-endpoint", place]
    # A second between looks gives the process time to say what it lost before torchrun ends it.
    restarts = ["--max-restarts", "2", "--monitor-interval", "1"]
    # Ranks follow the addresses of the machines.
    return lambda rank: [
        *meeting,
        *("--rdzv-conf", f"is_host={rank == 0}", "--local-addr", f"127.0.0.{rank + 1}"),
        *restarts,
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("nodes") / "set")


@pytest.fixture(scope="module")
def undisturbed(data):
    out = data.parent.parent / "undisturbed"
    codes, texts = run_nodes(fixed_places(), [], out, data)
    assert codes == [0, 0], texts
    return out


def test_two_nodes_learn_the_weights_of_one_process(undisturbed, data, tmp_path):
    with default_dtype(torch.float64):
        train(make_config(data, *OPTIONS), tmp_path / "one")
    two, one = (load_file(run / "model.safetensors") for run in (undisturbed, tmp_path / "one"))
    assert two.keys() == one.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-6, equal_nan=True, msg=name)


def test_a_lost_process_is_restarted_and_a_lost_rendezvous_is_named_and_resumed(undisturbed, data):
    """First the process of the second node dies, then the whole first node, then both start again."""
    out, deaths = data.parent.parent / "disturbed", [NODE_1_LOSES_ITS_PROCESS, NODE_0_IS_LOST]
    codes, (first, second) = run_nodes(restarted_places(), deaths, out, data)
    assert codes[0] < 0 < codes[1]
    assert "resuming after epoch 1 of 3" in first, "torchrun started both processes again"
    assert "error: epoch 2, update 2: lost the connection to another process of this run" in first
    assert "error: process 1: epoch 3, update 2: lost the connection to another process" in second
    assert "with the same command and --resume auto" in second
    codes, texts = run_nodes(restarted_places(), deaths, out, data)
    assert codes == [0, 0], texts
    assert "resuming after epoch 2 of 3" in texts[0]
    assert contents(out) == contents(undisturbed)


@pytest.mark.parametrize(
    "error",
    [
        torch.distributed.DistNetworkError("The client socket has failed to connect to first.machine:29500"),
        RuntimeError("[gloo/transport/tcp/pair.cc:537] Read error [10.0.0.1]:1: Connection reset by peer"),
    ],
)
def test_a_lost_connection_is_named(error):
    with (
        pytest.raises(TrainingError, match=r"epoch 2, update 1: lost the connection .*--resume auto"),
        explained(lambda: "epoch 2, update 1", lambda: True),
    ):
        raise error
