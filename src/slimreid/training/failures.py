"""What ends a run before its time, said in one clear line."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from slimreid.errors import TrainingError

_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def not_finite(
    epoch: int, step: int, losses: Mapping[str, float], samples: Sequence[Mapping[str, str]]
) -> TrainingError:
    """The error of a loss that is not finite: where, which losses, which files."""
    named = ", ".join(f"{name} {value:.6g}" for name, value in losses.items())
    files = "\n  ".join(", ".join(sample.values()) for sample in samples)
    return TrainingError(
        f"the loss is not finite in epoch {epoch}, step {step}: {named}\nsamples of the batch:\n  {files}\n"
        "lower optim.lr, set optim.clip_norm, or use another train.precision; the last checkpoint is intact"
    )


@contextmanager
def explained(where: Callable[[], str]) -> Iterator[None]:
    """Turn exhausted memory and failed writes within the block into `TrainingError`; `where` says at what."""
    try:
        yield
    except BrokenPipeError:  # somebody stopped reading what we print, which is no fault
        raise
    except OSError as error:
        cure = "free some space" if error.errno in _FULL else "mend that"
        name = f" ({error.filename})" if error.filename else ""
        raise TrainingError(
            f"{where()}: {error.strerror or error}{name}; the last checkpoint is intact: {cure}, "
            "then go on with --resume auto"
        ) from error
    except (MemoryError, RuntimeError) as error:
        if not _is_memory(error):
            raise
        raise TrainingError(
            f"{where()}: out of memory; the last checkpoint is intact. Lower batch.identities or "
            "batch.images (with optim.accumulate), set model.checkpointing, train.precision bf16, "
            "or a smaller batch.test"
        ) from error


def _is_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return any(word in str(error).lower() for word in _MEMORY_WORDS)
