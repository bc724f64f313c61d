"""Ray Data embeds the rows: a pool of actors, checkpoints, and files that are committed in two phases."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.data.checkpoint import CheckpointConfig
from ray.util.client import ray as client

from slimreid.bulk.embedder import Embedding, RowEmbedder
from slimreid.bulk.pool import SPARE_CPUS, Pool, Resources, place, room_kept, wait_for_room
from slimreid.errors import ConfigError, DataError, SlimReIDError
from slimreid.inference.embedding_sets.tables import IMAGE_ROWS, parquet_files

LEAST_VERSION = (2, 55)
"""Older versions commit rows and checkpoint one after the other: a crash in between writes rows twice."""
OBJECT_STORE_BYTES = 2**29
"""Of a Ray of this machine alone: rows in passing, not all of them."""
CLIENT_TRIES = 3
"""How often to ask a cluster by ray://: a busy one may not start a process for the client in time."""


def embed_with_ray(images: Path, rows: Path, checkpoint: Path, embedding: Embedding, pool: Pool) -> None:
    """Embed the Parquet files of rows of images in `images` into files in `rows`, each row once.

    What a call before has done, it left in `checkpoint`. Raises `ConfigError` for an old Ray or a pool that
    cannot be placed, `DataError` where the work failed.
    """
    check_version(ray.__version__)
    with connected(pool):
        actors = place(pool, machines())
        wait_for_room(pool, actors, ray.available_resources)
        with _explained(), room_kept(pool, actors, machines, lambda: len(parquet_files(rows))):
            work = (images, rows, checkpoint, embedding, pool, actors)
            # Ray Data needs a driver that is part of the cluster.
            if client.is_connected():  # type: ignore[no-untyped-call]
                ray.get(ray.remote(num_cpus=0)(_run).remote(*work))
            else:
                _run(*work)


def check_version(version: str) -> None:
    """Raise `ConfigError` for a version of Ray that may write rows twice."""
    found = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if found < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise ConfigError(
            f"Ray {version} may write rows twice after a crash; it must be {least} or newer: "
            "pip install -U 'slimreid[ray]'"
        )


@contextmanager
def connected(pool: Pool) -> Iterator[None]:
    """Use the cluster that the pool names, or a Ray of this machine alone that ends with the block.

    A Ray that this process is connected to already is used as it is. Raises `ConfigError` where the cluster
    cannot be reached.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if pool.address is not None:
            _join(pool.address, quiet)
        else:
            _start_locally(pool, quiet)
    except ConnectionAbortedError as error:
        reason = str(error).strip().splitlines()[-1]  # the lines before it are a traceback of the cluster
        raise ConfigError(
            f"Ray at {pool.address} starts no process for this client ({reason}); is it too busy? Try again"
        ) from None
    except Exception as error:  # Ray has no class of its own for a machine that does not start in time
        first = str(error).strip().splitlines()[0]
        if pool.address is None:
            raise ConfigError(f"no Ray starts on this machine ({first}); is it too busy? Try again") from None
        raise ConfigError(
            f"no Ray at {pool.address} ({first}); give --address as 'ray status' knows it"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _join(address: str, quiet: dict[str, Any]) -> None:
    """Connect to a cluster; ask again where it answers but could not start a process for this client."""
    for left in reversed(range(CLIENT_TRIES)):
        try:
            ray.init(address, **quiet)
            return
        except ConnectionAbortedError:
            if left == 0:
                raise


def _start_locally(pool: Pool, quiet: dict[str, Any]) -> None:
    """A Ray with the cores of this machine for actors; reading and writing, which are light, come on top."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ray.init(
        "local",
        num_cpus=int(max(cores, (pool.actors or 0) * pool.cpus) + SPARE_CPUS),
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        # Ray lets its workers yield to everything else (15); one process that embeds does not, either.
        _system_config={"worker_niceness": 0},
        # The loopback by another name: Ray takes 127.0.0.1 for a wish to be reached from elsewhere. Systems
        # other than Linux have no such name, and Ray stays on the loopback there by itself.
        _node_ip_address="127.0.0.2" if sys.platform == "linux" else None,
        **quiet,
    )


def machines() -> list[Resources]:
    """What each machine of the cluster has in all."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _run(images: Path, rows: Path, checkpoint: Path, embedding: Embedding, pool: Pool, actors: int) -> None:
    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.max_errored_blocks = 0  # a broken image is a row with a status; anything else must be seen
    if hasattr(context, "use_datasource_v2"):
        context.use_datasource_v2 = (
            False  # it joins small files into one block, which would be one checkpoint
        )
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    config = CheckpointConfig(
        id_column="id", checkpoint_path=str(checkpoint), delete_checkpoint_on_success=False
    )
    config.checkpoint_actor_pool_max_size = 1  # it takes a CPU each, see SPARE_CPUS
    context.checkpoint_config = config
    with DataContext.current(context):
        files = [str(path) for path in parquet_files(images)]
        found = ray.data.read_parquet(files, schema=IMAGE_ROWS, override_num_blocks=len(files), num_cpus=0.5)
        embedded = found.map_batches(
            RowEmbedder,
            fn_constructor_args=(embedding,),
            compute=ActorPoolStrategy(size=actors),
            batch_format="pyarrow",
            batch_size=None,
            num_cpus=pool.cpus,
            num_gpus=pool.gpus or None,
        )
        embedded.write_parquet(str(rows), ray_remote_args={"num_cpus": 0.5}, compression="none")


@contextmanager
def _explained() -> Iterator[None]:
    """Say in one line what went wrong on some machine."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause: Exception = error
        while isinstance(cause, ray.exceptions.RayTaskError) and isinstance(cause.cause, Exception):
            cause = cause.cause
        if isinstance(cause, SlimReIDError):
            raise cause from None
        lines = [line for line in str(cause).splitlines() if line.strip()]
        reason = lines[-1] if lines else type(cause).__name__
        raise DataError(
            f"embedding with Ray stopped: {reason}; finished work is kept; run the same command to continue"
        ) from error
