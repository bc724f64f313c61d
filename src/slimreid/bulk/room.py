"""Room for a pool of actors, before the work and while it runs: without it Ray would wait for ever."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from slimreid.bulk.pool import Pool, Resources, check_free, place
from slimreid.errors import ConfigError

PATIENCE, STANDSTILL = 60.0, 600.0
"""Seconds that other work may take to make room; seconds without a file of rows after which a pool that lost
its machines is given up. As long as there are files Ray gets by with the machines that are left."""
_LOOKS = 60
"""So many looks at the machines in that time."""


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
        raise ConfigError(f"a machine was lost: {reasons[0]}; what is done is kept") from None
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
