"""Room for a pool of actors, before the work and while it runs: without it Ray would wait for ever."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from slimreid.bulk.pool import Pool, Resources, check_free, place
from slimreid.errors import ConfigError

PATIENCE = 60.0
"""Seconds that other work may take to make room, and a lost machine to come back."""
_BETWEEN_LOOKS = 0.5


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
        time.sleep(_BETWEEN_LOOKS)


@contextmanager
def room_kept(pool: Pool, actors: int, machines: Callable[[], Sequence[Resources]]) -> Iterator[None]:
    """Stop the block where machines were lost and those that are left cannot hold the pool.

    `machines`: what each that is there has in all. Raises `ConfigError`. Python can stop its main thread
    only; in another one nothing is watched.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    done, reasons = threading.Event(), list[str]()

    def watch() -> None:
        end = time.monotonic() + PATIENCE
        while not done.wait(_BETWEEN_LOOKS):
            try:
                place(replace(pool, actors=actors), machines())
            except ConfigError as error:
                if time.monotonic() > end:
                    reasons.append(str(error))
                    _thread.interrupt_main()
                    return
            else:
                end = time.monotonic() + PATIENCE

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    except KeyboardInterrupt:
        if not reasons:
            raise
        raise ConfigError(f"a machine was lost: {reasons[0]}; what is done is kept") from None
    finally:
        done.set()
        thread.join()
