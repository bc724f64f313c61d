"""Candidates in 8 bits hold every row that an exact search finds."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import pytest

from slimreid.amx import amx_works
from slimreid.gallery.index import memory, quantised
from slimreid.gallery.index.quantised import quantise
from slimreid.gallery.store.open import create_store
from slimreid.gallery.store.rows import Change, Filter, NewRow
from support.galleries import NAMES, D, make_info, make_similarity


def features(count, rng, clusters=0):
    found = rng.normal(size=(count, D))
    if clusters:
        found = 0.05 * found + rng.normal(size=(clusters, D))[rng.integers(0, clusters, count)]
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def test_rounding_is_bounded():
    values = features(50, np.random.default_rng(0))
    values[3] = 0
    found = quantise(values)
    assert found.codes.dtype == np.int8
    rest = np.abs(values - found.codes * found.scales[:, None])
    assert (rest <= found.scales[:, None] / 2 + 1e-7).all()
    assert not found.codes[3].any()


@pytest.mark.parametrize("clusters", [0, 40], ids=["random", "clusters"])
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@pytest.mark.parametrize("queries", [1, 9])
def test_the_answer_is_that_of_an_exact_search(tmp_path, monkeypatch, clusters, missing, queries):
    rng = np.random.default_rng(queries)
    store = create_store(tmp_path / "a.gallery", make_info())
    found = features(3000, rng, clusters)
    seen = [NAMES[n % 3 :] if missing else NAMES for n in range(len(found))]
    store.commit(
        Change(
            "e",
            "m",
            rows=[NewRow(f, s, camera=f"{n % 2}") for n, (f, s) in enumerate(zip(found, seen, strict=True))],
        )
    )
    present = rng.random((queries, 3)) < 0.6 if missing else np.ones((queries, 3), bool)
    present[:, 2] = True
    query = make_similarity().prepare(features(queries, rng, clusters), present)
    for which in (Filter(), Filter(cameras=["1"])):
        monkeypatch.setattr(memory, "LARGE", 10**9)
        exact = store.search(query, 10, which)
        monkeypatch.setattr(memory, "LARGE", 100)
        monkeypatch.setattr(quantised, "FIRST", 64)
        monkeypatch.setattr(quantised, "PIECE", 500)
        fast = store.search(query, 10, which)
        for one, other in zip(exact, fast, strict=True):
            np.testing.assert_allclose(other.scores, one.scores, atol=1e-5)
            same = np.diff(one.scores, append=-9) < -1e-5
            assert set(one.ids[same].tolist()) <= set(other.ids.tolist())
    store.close()


def test_fewer_rows_than_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "LARGE", 1)
    rng = np.random.default_rng(0)
    store = create_store(tmp_path / "a.gallery", make_info())
    store.commit(Change("e", "m", rows=[NewRow(f, NAMES) for f in features(7, rng)]))
    (found,) = store.search(make_similarity().prepare(features(1, rng)), 10)
    assert sorted(found.ids.tolist()) == list(range(1, 8))
    assert (np.diff(found.scores) <= 0).all()
    store.close()


@pytest.mark.parametrize("works", [True, False])
def test_numkong_is_kept_from_amx_that_kills(monkeypatch, works):
    disabled, asked = [], []
    monkeypatch.setattr(
        quantised.numkong, "get_capabilities", lambda: {"sapphireamx": True, "graniteamx": False}
    )
    monkeypatch.setattr(quantised.numkong, "disable_capability", disabled.append)
    monkeypatch.setattr(quantised, "amx_works", lambda *names: asked.append(names) or works)
    quantised._guard_amx.cache_clear()
    values = quantise(features(4, np.random.default_rng(0)))
    for queries in (1, 3):
        found = quantised._product(values.codes[:queries])(values.codes)
        exact = values.codes.astype(int) @ values.codes[:queries].astype(int).T
        np.testing.assert_array_equal(found, exact)
    quantised._guard_amx.cache_clear()
    assert disabled == ([] if works else ["sapphireamx"])
    assert asked == [(f"numkong {version('numkong')}", quantised.TRIAL)]


def test_the_product_of_the_trial_itself_is_sound(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert amx_works("this NumKong", quantised.TRIAL)
