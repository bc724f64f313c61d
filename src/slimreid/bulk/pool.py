"""How many actors of which size, and whether there is room for them, before the work and while it runs.

Without room Ray would wait for ever.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from slimreid.errors import ConfigError

SPARE_CPUS = 2.0
"""CPUs that Ray Data needs beside the actors: one to read and write, one to leave out what a run before the
crash had done. Without them Ray waits for ever."""

PATIENCE, STANDSTILL = 60.0, 600.0
"""Seconds that other work may take to make room; seconds without a file of rows after which a pool that lost
its machines is given up. As long as there are files Ray gets by with the machines that are left."""
_LOOKS = 60
"""So many looks at the machines in that time."""

Resources = Mapping[str, float]
"""Of a machine, as Ray counts them: {'CPU': 8, 'GPU': 1, ...}."""


@dataclass(frozen=True)
class Pool:
    """Actors that embed, one model each."""

    address: str | None = None
    """Of a cluster: auto, HOST:PORT or ray://HOST:PORT; None = a Ray of this machine for this call alone."""
    actors: int | None = None
    """None = as many as fit."""
    cpus: float = 1.0
    """CPUs of each."""
    gpus: float = 0.0
    """GPUs of each."""

    def __post_init__(self) -> None:
        if self.actors is not None and self.actors < 1:
            raise ConfigError(f"--actors must be at least 1, not {self.actors}")
        if self.cpus < 0 or self.gpus < 0 or not self.cpus + self.gpus:
            raise ConfigError(
                f"an actor needs CPUs or GPUs, not --actor-cpus {self.cpus:g} --actor-gpus {self.gpus:g}"
            )


def place(pool: Pool, machines: Sequence[Resources]) -> int:
    """How many actors there will be; raises `ConfigError` where they cannot all run at once.

    `machines`: what each of them has in all.
    """
    sizes = [(pool.cpus, "CPU"), (pool.gpus, "GPU")]
    fit = 0
    for machine in machines:
        fit += min(math.floor(machine.get(name, 0.0) / size + 1e-9) for size, name in sizes if size)
    cpus = sum(machine.get("CPU", 0.0) for machine in machines)
    if pool.cpus:
        fit = min(fit, math.floor((cpus - SPARE_CPUS) / pool.cpus + 1e-9))
    elif cpus < SPARE_CPUS:
        fit = 0
    wanted = pool.actors if pool.actors is not None else max(1, fit)
    if wanted > fit:
        gpus = sum(machine.get("GPU", 0.0) for machine in machines)
        size, there = f"{pool.cpus:g} CPU", f"{cpus:g} CPUs"
        if pool.gpus:
            size, there = f"{size} and {pool.gpus:g} GPU", f"{there} and {gpus:g} GPUs"
        raise ConfigError(
            f"{wanted} actors of {size} each cannot be placed: {len(machines)} machine(s) have {there} in "
            f"all, of which {SPARE_CPUS:g} CPUs must stay free to read and write, so {max(fit, 0)} actors "
            "fit; take fewer or smaller ones with --actors and --actor-cpus"
        )
    return wanted


def check_free(pool: Pool, actors: int, free: Resources) -> None:
    """Raise `ConfigError` where other work leaves too little; `free`: of all machines together."""
    for name, needed in (("CPU", actors * pool.cpus + SPARE_CPUS), ("GPU", actors * pool.gpus)):
        if free.get(name, 0.0) + 1e-9 < needed:
            raise ConfigError(
                f"{actors} actors cannot be placed now: with reading and writing they need {needed:g} {name}s"
                f", and other work on the cluster leaves {free.get(name, 0.0):g}; wait for its end, or take "
                "fewer or smaller ones with --actors and --actor-cpus"
            )


def wait_for_room(pool: Pool, actors: int, free: Callable[[], Resources]) -> None:
    """Wait until other work on the cluster leaves room; raises `ConfigError` where it does not.

    `free`: what nobody uses, of all machines together.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return check_free(pool, actors, free())
        except ConfigError:
            if time.monotonic() > end:
                raise
        time.sleep(0.5)


@contextmanager
def room_kept(
    pool: Pool, actors: int, machines: Callable[[], Sequence[Resources]], files: Callable[[], int]
) -> Iterator[None]:
    """Stop the block where nothing appears any more, and the machines that are left cannot hold the pool.

    `machines`: what each that is there has in all; `files`: of rows, so far. Raises `ConfigError`. Python can
    stop its main thread only; in another one nothing is watched.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    done, reasons = threading.Event(), list[str]()
    main, before = threading.main_thread(), signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: FrameType | None) -> None:
        """Stop for a reason of ours, also where a shell had Ctrl-C ignored; otherwise as before."""
        if reasons:
            raise KeyboardInterrupt
        if callable(before):
            before(number, frame)

    def watch() -> None:
        seen, since = files(), time.monotonic()
        while not done.wait(STANDSTILL / _LOOKS):
            now = files()
            try:
                place(replace(pool, actors=actors), machines())
            except ConfigError as error:
                if now == seen and time.monotonic() - since > STANDSTILL:
                    reasons.append(str(error))
                    assert main.ident is not None
                    signal.pthread_kill(main.ident, signal.SIGINT)
                    return
                if now == seen:
                    continue
            seen, since = now, time.monotonic()

    thread = threading.Thread(target=watch, daemon=True)
    signal.signal(signal.SIGINT, interrupted)
    thread.start()
    try:
        yield
    except KeyboardInterrupt:
        if not reasons:
            raise
        raise ConfigError(f"a machine was lost: {reasons[0]}; finished work is kept") from None
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
