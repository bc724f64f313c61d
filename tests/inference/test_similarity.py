"""Similarity of samples seen in different modalities, against plain loops."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import slimreid
from reference.similarity import similarity as reference
from slimreid.errors import DataError, ModelError
from slimreid.inference.features.data import open_data
from slimreid.inference.features.embed_data import embed_data
from slimreid.inference.similarity import Similarity, fit_impostors, join_branches
from slimreid.inference.trained_model import read_model, write_model
from slimreid.modalities import all_subsets
from support.models import write_random_model
from support.runs import NAMES, write_set

SINGLE = tuple((name,) for name in NAMES)
LAYOUTS = {"modalities": SINGLE, "both": SINGLE * 2, "hdm": tuple(all_subsets(NAMES))}


def random_case(seed: int, blocks, n: int = 9, width: int = 4):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, len(blocks) * width)).astype(np.float32)
    present = rng.random((n, len(NAMES))) < 0.5
    present[np.arange(n), rng.integers(0, 3, n)] = True
    return features, present


def random_impostors(seed: int, plain: Similarity) -> np.ndarray:
    rng = np.random.default_rng(seed)
    S = len(plain.subsets)
    low = rng.normal(size=(S, S))
    table = np.stack([low + low.T, low + low.T + 0.2 + rng.random()], axis=2).astype(np.float32)
    table[~plain.shares] = np.nan
    return table


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), layout=st.sampled_from(sorted(LAYOUTS)), scaled=st.booleans())
def test_equals_a_plain_loop(seed: int, layout: str, scaled: bool) -> None:
    plain = Similarity(NAMES, LAYOUTS[layout])
    table = random_impostors(seed, plain) if scaled else None
    found = Similarity(NAMES, LAYOUTS[layout], table)
    (q, q_has), (g, g_has) = random_case(seed, plain.blocks), random_case(seed + 1, plain.blocks, 13)
    scores = found(q, g, q_has, g_has)
    for i, j in itertools.product(range(len(q)), range(len(g))):
        a, b = ({n for n, there in zip(NAMES, row, strict=True) if there} for row in (q_has[i], g_has[j]))
        numbers = [plain.subsets.index(tuple(n for n in NAMES if n in names)) for names in (a, b)]
        scale = None if table is None else tuple(table[numbers[0], numbers[1]].tolist())
        wanted = reference(q[i].tolist(), g[j].tolist(), a, b, plain.blocks, scale)
        assert scores[i, j] == pytest.approx(wanted, abs=2e-5, nan_ok=True)


def test_complete_samples_have_the_plain_cosine() -> None:
    features, _ = random_case(0, LAYOUTS["both"])
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(
        Similarity(NAMES, LAYOUTS["both"])(features, features), unit @ unit.T, atol=1e-6
    )


def test_the_scale_is_that_of_strangers() -> None:
    rng = np.random.default_rng(0)
    subsets = all_subsets(NAMES)
    plain = Similarity(NAMES, SINGLE)
    who = np.arange(400) % 100
    base = rng.normal(size=(400, 3, 8)) + 3  # all cosines are high
    samples = []
    for number, _ in enumerate(subsets):
        samples.append(((base + 0.1 * number).reshape(400, -1).astype(np.float32), who))
    table = fit_impostors(plain, samples)
    assert table is not None
    found = Similarity(NAMES, SINGLE, table)
    for a, b in [(0, 0), (0, 6), (3, 4), (6, 6)]:
        has = [np.tile([n in subsets[s] for n in NAMES], (400, 1)) for s in (a, b)]
        strangers = found(samples[a][0], samples[b][0], *has)[who[:, None] != who]
        assert np.quantile(strangers, [0.5, 0.99]) == pytest.approx([0, 1], abs=1e-3)
    assert np.isnan(table[0, 1]).all()


def test_subsets_that_nobody_was_seen_in_get_the_figures_of_what_they_share() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50, 24)).astype(np.float32)
    none = (np.zeros((0, 24), np.float32), np.zeros(0, np.int64))
    only_rgb = [(features, np.arange(50)) if s == ("rgb",) else none for s in all_subsets(NAMES)]
    table = fit_impostors(Similarity(NAMES, SINGLE), only_rgb)
    assert table is not None
    np.testing.assert_array_equal(table[0, 6], table[0, 0])
    np.testing.assert_array_equal(table[1, 1], table[0, 0])
    assert fit_impostors(Similarity(NAMES, SINGLE), [none] * 7) is None
    one = [(features, np.zeros(50, np.int64))] * 7
    assert fit_impostors(Similarity(NAMES, SINGLE), one) is None


def test_wrong_input_is_refused_by_name() -> None:
    plain = Similarity(NAMES, SINGLE)
    with pytest.raises(DataError, match="a multiple of 3"):
        plain(np.ones((2, 4)), np.ones((2, 3)))
    with pytest.raises(DataError, match="row 1 has NaN"):
        plain(np.array([[1.0] * 3, [np.nan] * 3]), np.ones((2, 3)))
    with pytest.raises(DataError, match=r"present must be \(2, 3\)"):
        plain(np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 2), bool))
    with pytest.raises(DataError, match="sample 0 has none of the modalities"):
        plain(np.ones((1, 3)), np.ones((2, 3)), np.zeros((1, 3), bool))
    with pytest.raises(DataError, match="not subsets of"):
        Similarity(NAMES, (("depth",),))
    with pytest.raises(DataError, match="rising"):
        Similarity(NAMES, SINGLE, np.zeros((7, 7, 2), np.float32))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scaled", [False, True])
def test_a_similarity_is_written_to_the_last_bit(layout: str, scaled: bool) -> None:
    plain = Similarity(NAMES, LAYOUTS[layout])
    table = random_impostors(0, plain) if scaled else None
    values = json.loads(json.dumps(replace(plain, impostors=table).to_plain(), allow_nan=False))
    again = Similarity.from_plain(values)
    assert (again.modalities, again.blocks) == (plain.modalities, plain.blocks)
    np.testing.assert_array_equal(again.impostors, table)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    manifest = write_set(tmp_path_factory.mktemp("set"), missing=True)
    return write_random_model(tmp_path_factory.mktemp("model"), manifest)


def test_a_model_file_keeps_its_scale(loaded, tmp_path) -> None:
    plain = loaded.similarity("slimmed")
    table = random_impostors(0, plain)
    weights, header = read_model(loaded.path)
    path = tmp_path / "model.safetensors"
    write_model(path, weights, loaded.card, {"slimmed": table})
    again = slimreid.load(path)
    np.testing.assert_array_equal(again.similarity("slimmed").impostors, table)
    assert again.similarity("both").impostors is None
    assert again.fingerprint == header["fingerprint"], "features do not depend on the scale"
    write_model(path, weights, loaded.card, {"slimmed": table[:2]})
    with pytest.raises(ModelError, match="statistics of impostors are wrong"):
        slimreid.load(path)


def test_embeddings_are_compared_by_what_was_seen(loaded) -> None:
    found, _ = embed_data(loaded, open_data(loaded))
    rgb, _ = embed_data(loaded, open_data(loaded), modalities=["rgb"])
    scores = rgb.compare(found)
    similarity = loaded.similarity()
    for j, paths in enumerate(found.paths):
        wanted = reference(
            rgb.features[0].tolist(),
            found.features[j].tolist(),
            set(rgb.paths[0]),
            set(paths),
            similarity.blocks,
        )
        assert scores[0, j] == pytest.approx(wanted, abs=1e-5, nan_ok=True)
    other, _ = embed_data(loaded, open_data(loaded), feature="original")
    with pytest.raises(DataError, match="different features"):
        other.compare(found)


def test_features_that_are_not_finite_are_refused(tmp_path) -> None:
    manifest = write_set(tmp_path / "set")
    broken = write_random_model(tmp_path / "model", manifest)
    with torch.no_grad():
        next(broken.model.parameters()).fill_(torch.nan)
    with pytest.raises(DataError, match=r"png: its feature has NaN or infinity"):
        embed_data(broken, open_data(broken))
    with pytest.raises(DataError, match="sample 0: its feature has NaN"):
        broken.embed({"rgb": np.zeros((32, 16, 3), np.uint8)})


def test_too_large_a_batch_is_said(loaded, monkeypatch) -> None:
    def full(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(loaded.model, "forward", full)
    with pytest.raises(ModelError, match="not enough memory to embed 2 samples at once; take fewer"):
        loaded.embed({"rgb": np.zeros((32, 16, 3), np.uint8)}, batch=2)


def test_branches_are_joined_and_normalised():
    rng = np.random.default_rng(0)
    branches = {"original": rng.normal(size=(5, 6)), "slimmed": rng.normal(size=(5, 4))}
    branches = {name: x.astype(np.float32) for name, x in branches.items()}
    branches["slimmed"][2] = 0
    whole = torch.from_numpy(np.concatenate(list(branches.values()), axis=1))
    np.testing.assert_allclose(join_branches(branches, "both"), F.normalize(whole).numpy(), atol=1e-7)
    slimmed = join_branches(branches, "slimmed")
    np.testing.assert_allclose(slimmed, F.normalize(torch.from_numpy(branches["slimmed"])), atol=1e-7)
    assert slimmed.dtype == np.float32
    assert not slimmed[2].any(), "a feature of zeros stays what it is"
