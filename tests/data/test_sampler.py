from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimreid.data.sampler import IdentitySampler, SampleKey, SequentialSampler
from slimreid.errors import ConfigError

counts = st.lists(st.integers(1, 30), min_size=4, max_size=20)


def labels(counts):
    return [identity for identity, n in enumerate(counts) for _ in range(n)]


@given(counts, st.integers(1, 4), st.integers(1, 6), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_invariants(counts, P, K, seed, epoch):
    identities = labels(counts)
    sampler = IdentitySampler(identities, P, K, seed)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler) >= 1
    groups = [max(n, K) // K for n in counts]
    assert sampler.groups.tolist() == groups
    for batch in batches:
        assert len(batch) == P * K
        assert Counter(Counter(identities[k.sample] for k in batch).values()) == {K: P}
        assert {k.epoch for k in batch} == {epoch}
        for identity in {identities[k.sample] for k in batch}:
            members = [k.sample for k in batch if identities[k.sample] == identity]
            assert len(set(members)) == min(K, counts[identity]), "repeats only where images are few"
    drawn = Counter(k.sample for batch in batches for k in batch)
    for sample, times in drawn.items():
        n = counts[identities[sample]]
        assert times <= (1 if n >= K else -(-K // n)), "about every image once"
    keys = [k for batch in batches for k in batch]
    assert len(set(keys)) == len(keys), "a repeat has another draw number"
    if max(groups) <= len(batches):
        assert len(batches) == sum(groups) // P, "no batch is lost"


@given(counts, st.integers(1, 3), st.integers(1, 4), st.integers(1, 2), st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_ranks_are_disjoint_parts_of_the_same_batches(counts, K, world_size, share, epoch):
    P = world_size * share
    if len(counts) < P:
        return
    identities = labels(counts)
    whole = IdentitySampler(identities, P, K, seed=1)
    ranks = [
        IdentitySampler(identities, P, K, seed=1, rank=r, world_size=world_size) for r in range(world_size)
    ]
    for sampler in (whole, *ranks):
        sampler.set_epoch(epoch)
    assert {len(r) for r in ranks} == {len(whole)}
    for batch, *parts in zip(whole, *ranks, strict=True):
        assert [key for part in parts for key in part] == batch
        assert {len(part) for part in parts} == {share * K}
        owners = [{identities[k.sample] for k in part} for part in parts]
        assert sum(map(len, owners)) == len(set().union(*owners))


@given(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=3, max_size=8),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_images_are_spread_over_cameras(per_camera, P, K, epoch):
    pairs = [(i, c) for i, counts in enumerate(per_camera) for c, n in enumerate(counts) for _ in range(n)]
    sampler = IdentitySampler([i for i, _ in pairs], P, K, cameras=[c for _, c in pairs])
    plain = IdentitySampler([i for i, _ in pairs], P, K)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(plain), "the length of an epoch stays"
    for batch in batches:
        drawn: dict[int, list[SampleKey]] = {}
        for key in batch:
            drawn.setdefault(pairs[key.sample][0], []).append(key)
        assert {len(keys) for keys in drawn.values()} == {K}
        for identity, keys in drawn.items():
            counts = per_camera[identity]
            assert len({key.sample for key in keys}) == min(K, sum(counts)), (
                "repeats only where images are few"
            )
            shown = Counter(pairs[key.sample][1] for key in keys)
            assert len(shown) == min(K, len(counts)), "as many cameras as there are"
            if sum(counts) >= K:
                assert all(shown[c] <= n for c, n in enumerate(counts))
                fullest = max(shown.values())
                assert all(shown[c] >= min(n, fullest - 1) for c, n in enumerate(counts)), "each alike"
    keys = [key for batch in batches for key in batch]
    assert len(set(keys)) == len(keys), "a repeat has another draw number"
    assert [k for b in sampler for k in b] == keys, "the same again"


def test_epochs_differ_and_repeat_exactly():
    sampler = IdentitySampler(labels([5] * 10), 4, 2, seed=3)
    epochs = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        epochs.append([[k.sample for k in batch] for batch in sampler])
    assert epochs[0] == epochs[2] != epochs[1]
    assert [[k.sample for k in b] for b in IdentitySampler(labels([5] * 10), 4, 2, seed=4)] != epochs[0]


def test_resume_inside_an_epoch():
    sampler = IdentitySampler(labels([6] * 8), 4, 3, seed=0)
    sampler.set_epoch(2)
    whole = list(sampler)
    sampler.set_epoch(2, start=3)
    assert list(sampler) == whole[3:]
    with pytest.raises(ConfigError, match="cannot start"):
        sampler.set_epoch(0, start=99)


def test_one_huge_identity_does_not_break_batches():
    sampler = IdentitySampler(labels([500, 4, 4, 4]), 2, 4)
    assert all(len({k.sample for k in batch}) == 8 for batch in sampler)
    assert len(sampler) == 3, "the three small ones can each meet it once"


def test_partners_vary_within_an_epoch():
    """Identities must not always meet the same others."""
    identities = labels([16] * 16)
    sampler = IdentitySampler(identities, 4, 4)
    partners = Counter()
    for batch in sampler:
        present = {identities[k.sample] for k in batch}
        partners.update(other for other in present if 0 in present and other)
    assert len(partners) >= 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((labels([3, 3]), 4, 2), "more than the 2 identities"),
        ((labels([3, 3]), 0, 2), "at least 1"),
        ((labels([3, 3, 3]), 3, 2, 0, 0, 2), "does not divide over 2"),
        ((labels([3, 3]), 2, 2, 0, 2, 2), "rank 2"),
    ],
)
def test_impossible_requests(arguments, message):
    with pytest.raises(ConfigError, match=message):
        IdentitySampler(*arguments)


@given(st.integers(0, 50), st.integers(1, 8), st.integers(1, 4))
def test_sequential_covers_everything_once(length, size, world_size):
    seen = [
        key.sample
        for rank in range(world_size)
        for batch in SequentialSampler(length, size, rank, world_size)
        for key in batch
    ]
    assert sorted(seen) == list(range(length))
    assert list(SequentialSampler(3, 2)) == [[SampleKey(0), SampleKey(1)], [SampleKey(2)]]
