"""What ends a run before its time, said in one clear line."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch.distributed as dist

from slimreid.errors import TrainingError, is_out_of_memory

_SHARED_WORD = "out of shared memory"
_WORKER_WORDS = (_SHARED_WORD, "killed by signal", "exited unexpectedly")
_LOST_WORDS = ("gloo/transport", "connection closed by peer", "connection reset by peer", "nccl error")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def not_finite(
    epoch: int, step: int, losses: Mapping[str, float], samples: Sequence[Mapping[str, str]]
) -> TrainingError:
    """The error of a loss that is not finite: where, which losses, which files."""
    named = ", ".join(f"{name} {value:.6g}" for name, value in losses.items())
    files = "\n  ".join(", ".join(sample.values()) for sample in samples)
    return TrainingError(
        f"the loss is not finite in epoch {epoch}, step {step}: {named}\nsamples of the batch:\n  {files}\n"
        f"lower optim.lr, set optim.clip_norm, or use another train.precision; {what_is_left(epoch > 1)}"
    )


def is_lost_connection(error: BaseException) -> bool:
    """Whether an error says that another process, or the store where they meet, cannot be reached."""
    return isinstance(error, dist.DistError) or _says(error, _LOST_WORDS)


def lost_connection(where: str, error: BaseException) -> TrainingError:
    """The error of a process that lost the others: it cannot see their checkpoints, so it promises none."""
    first = str(error).strip().splitlines()[0][:300]
    return TrainingError(
        f"{where}: lost the connection to another process of this run ({first}); it or its machine ended, or "
        "the network between them failed. Start all of them again with the same command and --resume auto: "
        "the run resumes from its last checkpoint"
    )


def what_is_left(saved: bool) -> str:
    """What remains of a run that has, or has not yet, written a checkpoint."""
    return "the last checkpoint is intact" if saved else "there is no checkpoint yet"


@contextmanager
def explained(where: Callable[[], str], saved: Callable[[], bool]) -> Iterator[None]:
    """Turn exhausted memory, failed writes, dead workers and lost processes into `TrainingError`.

    `where` says at what it happened, `saved` whether there is a checkpoint by then.
    """
    try:
        yield
    except BrokenPipeError:  # somebody stopped reading what we print, which is no fault
        raise
    except OSError as error:
        cure = "free some space" if error.errno in _FULL else "mend that"
        name = f" ({error.filename})" if error.filename else ""
        again = "resume with --resume auto" if saved() else "start again"
        raise TrainingError(
            f"{where()}: {error.strerror or error}{name}; {what_is_left(saved())}: {cure}, then {again}"
        ) from error
    except (MemoryError, RuntimeError) as error:
        if is_lost_connection(error):
            raise lost_connection(where(), error) from error
        left = what_is_left(saved())
        if _says(error, ("killed by signal: terminated", "killed by signal: interrupt")):
            again = "resume with --resume auto" if saved() else "start again"
            raise TrainingError(
                f"{where()}: a process that loads images was told to end from outside; {left}, {again}"
            ) from error
        if _says(error, _WORKER_WORDS):
            kind = _SHARED_WORD if _says(error, (_SHARED_WORD,)) else "which is mostly for lack of memory"
            first = str(error).splitlines()[0].strip()
            raise TrainingError(
                f"{where()}: a process that loads images died, {kind} ({first}); {left}. "
                "Lower data.workers (0 = none), or give the machine more (shared) memory"
            ) from error
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            f"{where()}: out of memory; {left}. Lower batch.num_ids or batch.num_instances (with "
            "optim.accumulate), set model.grad_checkpointing, train.precision bf16, or a smaller batch.test"
        ) from error


def _says(error: BaseException, words: Sequence[str]) -> bool:
    return any(word in str(error).lower() for word in words)
