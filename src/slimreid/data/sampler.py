"""Which samples make up which batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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
    With `cameras` (one number per sample) the K images of a group come from as many cameras as the identity
    has, each alike: rare ones repeat their images before frequent ones have shown all of theirs.
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
        cameras: Sequence[int] | None = None,
    ) -> None:
        P, K = identities_per_batch, images_per_identity
        if P < 1 or K < 1:
            raise ConfigError(f"batch.num_ids and batch.num_instances must be at least 1, not {P} and {K}")
        _check_rank(rank, world_size)
        if P % world_size:
            raise ConfigError(
                f"batch.num_ids {P} does not divide over {world_size} processes; use a multiple"
            )
        values, inverse = np.unique(np.asarray(identities, dtype=np.int64), return_inverse=True)
        if len(values) < P:
            raise ConfigError(
                f"batch.num_ids {P} is more than the {len(values)} identities there are; lower it"
            )
        self.members = [np.flatnonzero(inverse == i) for i in range(len(values))]
        self.cameras = None if cameras is None else np.asarray(cameras, dtype=np.int64)
        self.groups = np.array([max(len(m), K) // K for m in self.members])
        self.P, self.K, self.seed, self.rank, self.world_size = P, K, seed, rank, world_size
        self.steps = _number_of_batches(self.groups, P)
        self.epoch = 0
        self.start = 0

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.steps

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
        if self.cameras is not None:
            return self._spread(members, count, rng)
        laps = -(-self.K // len(members))  # more than one only for identities with fewer than K images
        order = np.concatenate([rng.permutation(members) for _ in range(laps)])
        draws = np.repeat(np.arange(laps), len(members))
        keys = [SampleKey(int(k), self.epoch, int(d)) for k, d in zip(order, draws, strict=True)]
        return [keys[g * self.K : (g + 1) * self.K] for g in range(count)]

    def _spread(self, members: np.ndarray, count: int, rng: np.random.Generator) -> list[list[SampleKey]]:
        """`count` groups of K images of an identity that take its cameras in turn."""
        assert self.cameras is not None
        seen = self.cameras[members]
        turns = [_Turns(members[seen == camera], self.epoch) for camera in np.unique(seen)]
        groups: list[list[SampleKey]] = []
        for _ in range(count):
            order = rng.permutation(len(turns))  # a new one per group, so that no camera is favoured
            # A camera with few images sits out when it has shown them all, until the others have too.
            lap = [at for turn in range(len(members)) for at in order if turn < len(turns[at].members)]
            group: list[SampleKey] = []
            for at in np.resize(lap, self.K):
                group.append(turns[at].next({key.sample for key in group}, rng))
            groups.append(group)
        return groups


class _Turns:
    """Images of one identity and camera in random order, over and over."""

    def __init__(self, members: np.ndarray, epoch: int) -> None:
        self.members, self.epoch = members, epoch
        self.waiting: list[SampleKey] = []
        self.laps = 0

    def next(self, taken: Collection[int], rng: np.random.Generator) -> SampleKey:
        """The next image, one outside `taken` if there is any."""
        fresh = [number for number, key in enumerate(self.waiting) if key.sample not in taken]
        if not fresh:
            shuffled = rng.permutation(self.members)
            self.waiting += [SampleKey(int(k), self.epoch, self.laps) for k in shuffled]
            self.laps += 1
            fresh = [number for number, key in enumerate(self.waiting) if key.sample not in taken] or [0]
        return self.waiting.pop(fresh[0])


def _number_of_batches(groups: np.ndarray, P: int) -> int:
    """The most batches of P different identities that can be filled: max T with Σ min(gᵢ, T) ≥ T·P."""
    steps = int(groups.sum()) // P
    while int(np.minimum(groups, steps).sum()) < steps * P:
        steps -= 1
    return steps


def _check_rank(rank: int, world_size: int) -> None:
    if not 0 <= rank < world_size:
        raise ConfigError(f"rank {rank} is not in 0 … {world_size - 1}")
