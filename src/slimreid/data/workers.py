"""Threads that work ahead, and worker processes that end with the process that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TypeVar

from slimreid.errors import DataError

T = TypeVar("T")
R = TypeVar("R")


def work_ahead(
    work: Callable[[T], R], items: Iterable[T], ahead: int, threads: int | None = None
) -> Iterator[R]:
    """Results of `work` in order, by threads that are at most `ahead` items ahead of what is used.

    What has not begun is given up when the caller stops.
    """
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="reader")
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def worker_pool(workers: int, start_method: str | None = None) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that never outlive this one, even if it is killed.

    After an error, work that has not begun is given up. `start_method` as in `multiprocessing.get_context`.
    Raises `DataError` when one of them was killed.
    """
    context = multiprocessing.get_context(start_method)
    pool = ProcessPoolExecutor(workers, context, initializer=_end_with_parent)
    try:
        yield pool
    except BrokenProcessPool:
        raise DataError(
            f"one of {workers} worker processes was killed, perhaps for lack of memory; use fewer (--workers)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """In a worker: leave Ctrl-C to the parent, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)  # at once: nobody is left to report to
