"""The contract between data and models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from slimreid.data.sample_reader import ImageBatch
from slimreid.errors import DataError


@dataclass(frozen=True)
class ModalBatch:
    """A batch of samples, each an object seen in up to M modalities at once.

    | field      | shape                  | what                                                        |
    |------------|------------------------|-------------------------------------------------------------|
    | `images`   | M × (B, 3, H, W) float | per modality, in canonical order; zeros where absent        |
    | `present`  | (B, M) bool            | which modalities each sample has; never none                |
    | `identity` | (B,) int64             | training identities are 0 … classes − 1, others follow      |
    | `camera`   | (B,) int64             | training cameras are 0 … cameras − 1, others follow         |
    | `index`    | (B,) int64             | row of the sample in its dataset                            |
    | `paths`    | B × {modality: path}   | the files behind each sample, present ones only             |
    | `dropped`  | any number of messages | samples left out because their files are broken             |

    All modalities have the same image size. Everything is validated once, here.
    """

    images: dict[str, Tensor]
    present: Tensor
    identity: Tensor
    camera: Tensor
    index: Tensor
    paths: tuple[Mapping[str, str], ...]
    dropped: tuple[tuple[int, str], ...] = ()
    """(row, message) of each sample that was left out."""

    def presence_of(self, modalities: Sequence[str]) -> Tensor:
        """Which of `modalities` each sample has, in that order: (B, M) bool; unknown ones are absent."""
        absent = torch.zeros(len(self), dtype=torch.bool, device=self.present.device)
        column = {name: self.present[:, m] for m, name in enumerate(self.images)}
        return torch.stack([column.get(name, absent) for name in modalities], 1)

    def __post_init__(self) -> None:
        if not self.images:
            raise DataError("a batch needs images of at least one modality")
        first_name, first = next(iter(self.images.items()))
        if first.ndim != 4 or first.shape[1] != 3 or not first.is_floating_point():
            raise DataError(
                f"images of '{first_name}' must be float (B, 3, H, W), not {first.dtype} {tuple(first.shape)}"
            )
        for name, image in self.images.items():
            if image.shape != first.shape or image.dtype != first.dtype:
                raise DataError(
                    f"images of '{name}' are {image.dtype} {tuple(image.shape)}, but those of "
                    f"'{first_name}' {first.dtype} {tuple(first.shape)}; all modalities must agree"
                )
        B, M = len(first), len(self.images)
        if self.present.shape != (B, M) or self.present.dtype != torch.bool:
            raise DataError(
                f"present must be bool ({B}, {M}), not {self.present.dtype} {tuple(self.present.shape)}"
            )
        if not bool(self.present.any(dim=1).all()):
            empty = int((~self.present.any(dim=1)).nonzero()[0])
            raise DataError(f"sample {empty} of the batch has no modality at all")
        for name in ("identity", "camera", "index"):
            value: Tensor = getattr(self, name)
            if value.shape != (B,) or value.dtype != torch.int64:
                raise DataError(f"{name} must be int64 ({B},), not {value.dtype} {tuple(value.shape)}")
        if len(self.paths) != B:
            raise DataError(f"paths has {len(self.paths)} entries for {B} samples")

    @classmethod
    def from_images(cls, batch: ImageBatch) -> ModalBatch:
        """The tensors of a batch of numpy arrays, not copied; identities are not known."""
        return cls(
            images={name: torch.from_numpy(image) for name, image in batch.images.items()},
            present=torch.from_numpy(batch.present),
            identity=torch.full((len(batch),), -1),
            camera=torch.from_numpy(batch.camera),
            index=torch.from_numpy(batch.index),
            paths=({},) * len(batch),
        )

    def to_images(self) -> ImageBatch:
        """The same as numpy arrays; not copied where they are on the CPU."""
        return ImageBatch(
            {name: image.cpu().numpy() for name, image in self.images.items()},
            self.present.cpu().numpy(),
            self.camera.cpu().numpy(),
            self.index.cpu().numpy(),
        )

    def __len__(self) -> int:
        return len(self.identity)

    @property
    def modalities(self) -> tuple[str, ...]:
        """Names of all M modalities, in the order of the columns of `present`."""
        return tuple(self.images)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> ModalBatch:
        """The same batch with its tensors on another device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> ModalBatch:
        """The same batch in page-locked memory, for fast copies to a GPU (the loader calls this)."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> ModalBatch:
        """Apply `change` to every tensor, without validating again (that would wait for the device)."""
        batch = copy(self)
        images = {name: change(image) for name, image in self.images.items()}
        object.__setattr__(batch, "images", images)
        for name in ("present", "identity", "camera", "index"):
            object.__setattr__(batch, name, change(getattr(self, name)))
        return batch
