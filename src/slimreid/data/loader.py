"""Loading batches: workers, broken samples, and the loaders a run needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import TracebackType

import torch
from torch.utils.data import DataLoader

from slimreid.config import Config
from slimreid.data.batches import ModalBatch
from slimreid.data.dataset import LoadedSample, ReIDDataset
from slimreid.data.manifest import LabelEncoder, Manifest, Split, read_manifest
from slimreid.data.sampler import IdentitySampler, SampleKey, SequentialSampler
from slimreid.errors import ConfigError


def _end_quietly(_: int) -> None:
    """In a worker: no traceback when the main process ends while it takes over a batch, as after Ctrl-C.

    Errors of loading do not come this way: they are handed to the main process.
    """
    default = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, (OSError, EOFError, KeyboardInterrupt)):
            default(kind, error, trace)

    sys.excepthook = hook


class BatchLoader:
    """Iterates over batches of a dataset, with or without worker processes.

    A broken sample raises `DataError` here, or, with `on_error: skip`, is dropped once: it is logged,
    kept in `dropped` (row -> message) and not asked for again in later epochs.
    """

    def __init__(
        self, dataset: ReIDDataset, sampler: IdentitySampler | SequentialSampler, workers: int = 0
    ) -> None:
        self.dataset = dataset
        self.sampler = sampler
        self.dropped = dataset.reader.dropped
        self._loader: DataLoader[LoadedSample] = DataLoader(
            dataset,
            batch_sampler=_WithoutDropped(sampler, self.dropped),
            collate_fn=dataset.collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            worker_init_fn=_end_quietly,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator().manual_seed(dataset.seed),  # leaves the global generator alone
        )

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[ModalBatch]:
        batch: ModalBatch
        for batch in self._loader:
            for index, message in batch.dropped:
                self.dataset.reader.drop(index, message)
            if len(batch):
                yield batch

    def report(self) -> str:
        """The samples that were dropped, one per line; '' if none."""
        if not self.dropped:
            return ""
        lines = "\n  ".join(self.dropped[index] for index in sorted(self.dropped))
        return f"{len(self.dropped)} of {len(self.dataset)} samples dropped for broken files:\n  {lines}"


class _WithoutDropped:
    """The batches of a sampler without the samples known to be broken."""

    def __init__(self, sampler: IdentitySampler | SequentialSampler, dropped: dict[int, str]) -> None:
        self.sampler = sampler
        self.dropped = dropped

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[list[SampleKey]]:
        for batch in self.sampler:
            keys = [key for key in batch if key.sample not in self.dropped]
            if keys:
                yield keys


def open_manifest(config: Config) -> Manifest:
    """The manifest a config names; raises `ConfigError` where it names none."""
    if not config.data.manifest:
        raise ConfigError("data.manifest is not set; give a manifest, e.g. --data.manifest w/manifest.csv")
    return read_manifest(config.data.manifest, config.data.modalities)


def train_loader(
    config: Config, manifest: Manifest | None = None, rank: int = 0, world_size: int = 1
) -> BatchLoader:
    """Augmented P × K batches of the training split."""
    dataset = ReIDDataset(
        manifest or open_manifest(config),
        ("train",),
        config.transforms,
        train=True,
        data=config.data,
        seed=config.seed,
    )
    batch = config.batch
    sampler = IdentitySampler(
        dataset.identities,
        batch.num_ids,
        batch.num_instances,
        config.seed,
        rank,
        world_size,
        dataset.cameras if batch.spread_cameras else None,
    )
    return BatchLoader(dataset, sampler, config.data.workers)


def eval_loader(
    config: Config,
    splits: Sequence[Split],
    manifest: Manifest | None = None,
    rank: int = 0,
    world_size: int = 1,
    label_encoder: LabelEncoder | None = None,
) -> BatchLoader:
    """All samples of some splits in order, not augmented; `label_encoder` numbers them (default: own)."""
    dataset = ReIDDataset(
        manifest or open_manifest(config),
        splits,
        config.transforms,
        data=config.data,
        label_encoder=label_encoder,
        seed=config.seed,
    )
    sampler = SequentialSampler(len(dataset), config.batch.test, rank, world_size)
    return BatchLoader(dataset, sampler, config.data.workers)
