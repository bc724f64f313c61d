"""t-SNE maps: few points, chosen and placed the same way every time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from slimreid.errors import DataError
from slimreid.visual.plots.embedding_map import (
    Embeddings,
    apart,
    choose_points,
    embedding_map,
    identity_colours,
    project,
)
from slimreid.visual.style import DARK, LIGHT


def clusters(identities: int = 4, each: int = 8, seed: int = 0):
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(identities), each)
    features = 4 * rng.normal(size=(identities, 16))[ids] + rng.normal(size=(len(ids), 16)) * 0.3
    return Embeddings(features, [f"p{i}" for i in ids], [str(1 + k % 3) for k in range(len(ids))])


def test_points_are_capped_and_depend_on_the_seed_alone():
    ids = [f"p{k // 10}" for k in range(300)] + ["alone"]
    rows = choose_points(ids, max_identities=5, max_points=30, seed=1)
    assert_array_equal(rows, choose_points(ids, max_identities=5, max_points=30, seed=1))
    assert len(rows) == 30
    names, counts = np.unique([ids[r] for r in rows], return_counts=True)
    assert len(names) == 5
    assert set(counts) == {6}
    assert "alone" not in names
    assert (np.diff(rows) > 0).all()
    assert rows.tolist() != choose_points(ids, max_identities=5, max_points=30, seed=2).tolist()
    with pytest.raises(DataError, match="seen at least twice"):
        choose_points(["a", "b"])


def test_the_plane_is_reproducible_and_keeps_neighbours():
    data = clusters()
    plane = project(data.features, seed=3)
    assert_array_equal(plane, project(data.features, seed=3))
    assert plane.shape == (32, 2)
    distance = np.linalg.norm(plane[:, None] - plane[None], axis=-1)
    np.fill_diagonal(distance, np.inf)
    nearest = distance.argmin(1)
    assert [data.identities[i] for i in nearest] == list(data.identities)
    scaled = project(data.features * np.linspace(1, 9, 32)[:, None], seed=3)
    np.testing.assert_allclose(scaled, plane, atol=1e-3)
    with pytest.raises(DataError, match="at least 4 rows"):
        project(data.features[:3])


def test_degenerate_features_are_still_drawn():
    assert np.isfinite(project(np.ones((6, 5)))).all()
    assert np.isfinite(project(np.arange(8.0)[:, None])).all()


def test_identities_have_colours_and_names_and_cameras_markers():
    figure = embedding_map({"a": clusters(), "b": clusters(seed=1)}, DARK)
    assert len(figure.axes) == 2
    axes = figure.axes[0]
    assert [t.get_text() for t in axes.texts] == ["p0", "p1", "p2", "p3"]
    groups = axes.collections
    assert len(groups) == 4 * 3, "identities × cameras"
    assert sum(len(g.get_offsets()) for g in groups) == 32
    assert len({tuple(g.get_facecolor()[0]) for g in groups}) == 4
    shapes = {g.get_paths()[0].vertices.tobytes() for g in groups}
    assert len(shapes) == 3
    legend = [t.get_text() for t in figure.legends[0].get_texts()]
    assert legend == ["camera 1", "camera 2", "camera 3"]


def test_names_stand_amid_their_points():
    data = clusters()
    axes = embedding_map({"a": data}).axes[0]
    by_colour = {}
    for group in axes.collections:
        by_colour.setdefault(tuple(group.get_facecolor()[0]), []).append(np.asarray(group.get_offsets()))
    centres = [np.median(np.concatenate(parts), axis=0) for parts in by_colour.values()]
    for text, centre in zip(axes.texts, centres, strict=True):
        np.testing.assert_allclose(text.get_position(), centre)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 12, 35])
def test_colours_are_all_different(count):
    for look in (LIGHT, DARK):
        assert len(set(identity_colours(count, look))) == count


def test_labels_must_fit():
    with pytest.raises(DataError, match="need as many identities and cameras"):
        Embeddings(np.zeros((3, 2)), ["a"], ["1"])


def test_names_that_would_overlap_are_moved_apart():
    places = np.array([[0.0, 0.0], [0.05, 0.01], [0.05, 0.03], [0.9, 0.01]])
    moved = apart(places, [6, 6, 6, 6], np.array([1.0, 1.0]))
    assert (moved[:, 0] == places[:, 0]).all()
    assert (moved[[0, 3]] == places[[0, 3]]).all(), "nothing is in their way"
    assert (np.diff(moved[:3, 1]) >= 0.05).all()
