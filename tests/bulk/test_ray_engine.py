"""Ray itself, on the loopback: rows are those of one process, whatever is killed on the way."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

import slimreid
from slimreid.bulk.pool import Pool
from slimreid.bulk.ray_engine import check_version, connected
from slimreid.errors import ConfigError, DataError
from slimreid.inference.embedding_sets.tables import parquet_files
from support.bulk import assert_same_rows, read_rows, write_bulk_set

HOME = "127.0.0.2"
"""The loopback by a name that Ray leaves alone."""
with socket.socket() as probe:
    probe.bind((HOME, 0))
    CLIENT_PORT = probe.getsockname()[1]
QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}
LONGEST = 120.0
"""Seconds that anything here may take."""


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Model, manifest, and the rows that one process makes of them."""
    folder = tmp_path_factory.mktemp("ray")
    model, manifest = write_bulk_set(folder, times=20)
    slimreid.embed_dataset(manifest, model, folder / "one")
    return model, manifest, read_rows(folder / "one")


@pytest.fixture(scope="module")
def cluster():
    """Two machines: one with the driver, and one that may be lost."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S"] = str(int(LONGEST))
    common = {"node_ip_address": HOME, "object_store_memory": 2**27, "include_dashboard": False}
    made = Cluster(
        initialize_head=True,
        head_node_args={
            **common,
            "num_cpus": 4,
            "ray_client_server_port": CLIENT_PORT,
            "_system_config": QUICK_TO_NOTICE,
        },
    )
    node = made.add_node(**{**common, "num_cpus": 2})
    ray.init(made.address, log_to_driver=False)
    yield made, node
    ray.shutdown()
    made.shutdown()


def wait_for_files(out, count, process=None):
    """Wait until so many files of rows are there, or the process ended."""
    end = time.monotonic() + LONGEST
    while len(parquet_files(out / "rows")) < count and time.monotonic() < end:
        if process is not None and process.poll() is not None:
            return
        time.sleep(0.02)


def actor_processes(raylet):
    """Numbers of the processes of one machine that embed."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            title = (place / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        if parent == raylet and "MapWorker(MapBatches(RowEmbedder))" in title:
            found.append(int(place.name))
    return found


def raylet_of(node):
    return node.all_processes["raylet"][0].process.pid


def embed_until_done(manifest, model, out, pool):
    """The same call, until it went through: what is done stays."""
    for _ in range(3):
        try:
            return slimreid.embed_dataset(manifest, model, out, engine="ray", pool=pool)
        except DataError as error:
            if "run the same command to continue" not in str(error):
                raise
    raise AssertionError("it did not end")


def test_a_killed_actor_and_a_killed_machine_leave_every_row_once(work, cluster, tmp_path):
    model, manifest, expected = work
    made, node = cluster
    killed = []

    def kill():
        wait_for_files(tmp_path / "out", 1)
        machines = [raylet_of(made.head_node), raylet_of(node)]
        for number in [pid for raylet in machines for pid in actor_processes(raylet)][:1]:
            os.kill(number, signal.SIGKILL)
            killed.append("actor")
        wait_for_files(tmp_path / "out", 4)
        made.remove_node(node, allow_graceful=False)
        killed.append("machine")

    killer = threading.Thread(target=kill)
    killer.start()
    summary = embed_until_done(manifest, model, tmp_path / "out", Pool(actors=2))
    killer.join()
    assert killed == ["actor", "machine"]
    assert summary.statuses == {"ok": len(expected) - 1, "unreadable": 1}
    assert_same_rows(read_rows(tmp_path / "out"), expected)


def test_a_killed_driver_goes_on_where_it_was(work, cluster, tmp_path):
    """A Ray of its own dies with the first driver; the second is a client of the cluster."""
    model, manifest, expected = work
    out = tmp_path / "out"
    words = [sys.executable, "-m", "slimreid", "embed", str(manifest), "--model", str(model)]
    words += ["--out", str(out), "--engine", "ray", "--actors", "2"]
    driver = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_files(out, 2, driver)
    driver.kill()
    _, text = driver.communicate()
    done = len(parquet_files(out / "rows"))
    assert 2 <= done < 19, text
    words += ["--address", f"ray://{HOME}:{CLIENT_PORT}", "--json"]
    for _ in range(3):
        again = subprocess.run(words, capture_output=True, text=True, check=False)
        if "is it too busy? Try again" not in again.stderr:
            break
    assert again.returncode == 0, again.stderr
    summary = json.loads(again.stdout)
    assert 0 < summary["new_rows"] < len(expected)
    assert summary["statuses"] == {"ok": len(expected) - 1, "unreadable": 1}
    assert_same_rows(read_rows(out), expected)


def test_pools_and_models_that_cannot_be_used_are_named(work, cluster, tmp_path):
    model, manifest, _ = work
    with pytest.raises(ConfigError, match="99 actors of 1 CPU each cannot be placed"):
        slimreid.embed_dataset(manifest, model, tmp_path / "a", engine="ray", pool=Pool(actors=99))
    (tmp_path / "run").mkdir()
    with pytest.raises(ConfigError, match="not an exported model; make one with 'slimreid export'"):
        slimreid.embed_dataset(manifest, tmp_path / "run", tmp_path / "b", engine="ray")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("far:6379", r"no Ray at far:6379 .It timed out.; give --address as 'ray status' knows it"),
        (None, r"no Ray starts on this machine .It timed out.; is it too busy\?"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_named(monkeypatch, address, message):
    def init(*_, **options):
        raise Exception("It timed out\nAnd so on")  # as Ray does

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConfigError, match=message), connected(Pool(address=address)):
        raise AssertionError("it is not connected")


def test_a_cluster_that_starts_no_process_for_the_client_is_asked_again(monkeypatch):
    asked = []

    def init(address, **_):
        asked.append(address)
        if len(asked) < answers:
            raise ConnectionAbortedError("Initialization failure from server:\nTraceback\nIt is too slow")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    answers = 3
    with connected(Pool(address="ray://far:1")):
        assert len(asked) == 3
    asked.clear()
    answers = 99
    refused = r"Ray at ray://far:1 starts no process for this client .It is too slow.; is it too busy\?"
    with pytest.raises(ConfigError, match=refused), connected(Pool(address="ray://far:1")):
        raise AssertionError("it is not connected")
    assert len(asked) == 3


def test_old_versions_are_refused_by_name():
    check_version("2.55.0")
    check_version("3.0.0rc1")
    with pytest.raises(ConfigError, match=r"Ray 2\.54\.1 may write rows twice"):
        check_version("2.54.1")
