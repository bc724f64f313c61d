"""The most memory that a computation holds at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def peak_tensor_bytes(run: Callable[[], object], known: Iterable[Tensor] = ()) -> int:
    """The most bytes of tensors that `run` holds at once, besides the `known` ones (weights, inputs).

    On the CPU every tensor that comes into being is counted until it is freed, which gives the same
    figure on every machine; on a GPU it is what torch's allocator says.
    """
    if torch.cuda.is_available() and any(tensor.is_cuda for tensor in known):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated() - before)
    counted = _TensorBytes(known)
    with counted:
        run()
    return counted.peak


class _TensorBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the storages of all tensors that operations return."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live: dict[int, object] = {tensor.untyped_storage()._cdata: None for tensor in known}
        self.now = self.peak = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._see(leaf.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._live:
            self._live[key] = weakref.ref(storage, lambda _: self._gone(key, size))
            self.now += size
            self.peak = max(self.peak, self.now)

    def _gone(self, key: int, size: int) -> None:
        del self._live[key]
        self.now -= size
