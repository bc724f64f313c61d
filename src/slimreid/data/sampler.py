"""Which samples make up which batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from slimreid.errors import ConfigError


class SampleKey(NamedTuple):
    """A sample as drawn in an epoch; its augmentation depends on the seed and on these numbers alone."""

    sample: int
    epoch: int = 0
    draw: int = 0
    """How often the sample was drawn before in this epoch, so that repeats look different."""


class SequentialSampler:
    """All samples in order, in batches of `batch_size`; the last may be smaller.

    With several ranks, each takes every `world_size`-th batch.
    """

    def __init__(self, length: int, batch_size: int, rank: int = 0, world_size: int = 1) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, not {batch_size}")
        _check_rank(rank, world_size)
        starts = range(0, length, batch_size)[rank::world_size]
        self.batches = [range(start, min(start + batch_size, length)) for start in starts]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[SampleKey]]:
        for batch in self.batches:
            yield [SampleKey(index) for index in batch]


class IdentitySampler:
    """Batches of P identities × K images each, the same for everybody with the same seed.

    In an epoch, each identity with n images gives ⌊max(n, K)/K⌋ groups of K, so about every image comes
    once; an identity with fewer than K images repeats some. The groups are spread over batches of P
    different identities; the last few that do not fill a batch are left out, others in each epoch.
    With several ranks, P is the global number: each rank gets P / world_size identities of every batch,
    so ranks are disjoint and take the same number of steps.
    """

    def __init__(
        self,
        identities: Sequence[int],
        identities_per_batch: int,
        images_per_identity: int,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        P, K = identities_per_batch, images_per_identity
        if P < 1 or K < 1:
            raise ConfigError(f"batch.identities and batch.images must be at least 1, not {P} and {K}")
        _check_rank(rank, world_size)
        if P % world_size:
            raise ConfigError(
                f"batch.identities {P} does not divide over {world_size} processes; use a multiple"
            )
        values, inverse = np.unique(np.asarray(identities, dtype=np.int64), return_inverse=True)
        if len(values) < P:
            raise ConfigError(
                f"batch.identities {P} is more than the {len(values)} identities there are; lower it"
            )
        self.members = [np.flatnonzero(inverse == i) for i in range(len(values))]
        self.groups = np.array([max(len(m), K) // K for m in self.members])
        self.P, self.K, self.seed, self.rank, self.world_size = P, K, seed, rank, world_size
        self.steps = _number_of_batches(self.groups, P)
        self.epoch = 0
        self.start = 0

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.steps

    @property
    def images_per_epoch(self) -> int:
        """Σ over identities of ⌊max(n, K)/K⌋·K, before full batches are formed."""
        return int(self.groups.sum()) * self.K

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch, and the batch to start with when an epoch is resumed half-way."""
        if not 0 <= start <= self.steps:
            raise ConfigError(f"cannot start at batch {start} of {self.steps}")
        self.epoch, self.start = epoch, start

    def __iter__(self) -> Iterator[list[SampleKey]]:
        rng = np.random.default_rng([self.seed, self.epoch])
        batches = self._plan(rng)
        share = self.P // self.world_size
        for batch in batches[self.start :]:
            mine = batch[self.rank * share : (self.rank + 1) * share]
            yield [key for group in mine for key in group]

    def _plan(self, rng: np.random.Generator) -> list[list[list[SampleKey]]]:
        """Batches of P groups of K keys; every identity at most once in a batch."""
        counts = np.minimum(self.groups, self.steps)
        surplus = int(counts.sum()) - self.steps * self.P
        if surplus:  # leave out groups at random, as many as do not fit
            spread = np.repeat(np.arange(len(counts)), counts)
            counts -= np.bincount(rng.permutation(spread)[:surplus], minlength=len(counts))
        batches: list[list[list[SampleKey]]] = [[] for _ in range(self.steps)]
        load = np.zeros(self.steps, dtype=np.int64)
        for i in rng.permutation(len(counts)):
            groups = self._groups(int(i), int(counts[i]), rng)
            # The emptiest batches, ties at random: different ones, and all fill up evenly to P.
            order = np.lexsort((rng.random(self.steps), load))[: len(groups)]
            load[order] += 1
            for at, group in zip(order, groups, strict=True):
                batches[at].append(group)
        for batch in batches:
            rng.shuffle(batch)  # which rank an identity goes to
        return batches

    def _groups(self, i: int, count: int, rng: np.random.Generator) -> list[list[SampleKey]]:
        """`count` groups of K images of identity number i, without repeats where it has enough."""
        members = self.members[i]
        laps = -(-self.K // len(members))  # more than one only for identities with fewer than K images
        order = np.concatenate([rng.permutation(members) for _ in range(laps)])
        draws = np.repeat(np.arange(laps), len(members))
        keys = [SampleKey(int(k), self.epoch, int(d)) for k, d in zip(order, draws, strict=True)]
        return [keys[g * self.K : (g + 1) * self.K] for g in range(count)]


def _number_of_batches(groups: np.ndarray, P: int) -> int:
    """The most batches of P different identities that can be filled: max T with Σ min(gᵢ, T) ≥ T·P."""
    steps = int(groups.sum()) // P
    while int(np.minimum(groups, steps).sum()) < steps * P:
        steps -= 1
    return steps


def _check_rank(rank: int, world_size: int) -> None:
    if not 0 <= rank < world_size:
        raise ConfigError(f"rank {rank} is not in 0 … {world_size - 1}")
