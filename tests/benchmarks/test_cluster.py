"""The comparison of clusterings: its figures, and all methods on random people."""

from __future__ import annotations

import numpy as np
import pytest

from support.gallery import PLAIN


@pytest.fixture
def cluster(load_benchmark):
    return load_benchmark("cluster")


def test_figures_of_pairs_equal_a_plain_loop(cluster) -> None:
    labels, who = np.array([0, 0, 1, -1, -1, 1, 0]), np.array(list("aabbabc"))
    together = same = both = 0
    for i in range(7):
        for j in range(i):
            a, b = labels[i] == labels[j] >= 0, who[i] == who[j]
            together, same, both = together + a, same + b, both + (a and b)
    f, precision, recall = cluster.pair_figures(labels, who)
    assert (precision, recall) == (both / together, both / same)
    assert f == pytest.approx(2 * both / (together + same))
    assert cluster.pair_figures(np.full(7, -1), who) == (0, 0, 0)


def test_clear_people_are_found_by_all_methods(cluster, people) -> None:
    found = cluster.measure(people, PLAIN, cluster.COMPLETE, 0.01)
    assert set(found) == {"average linkage", *cluster.OTHERS}
    for name, (f, precision, _) in found.items():
        assert precision > 0.8, name
        assert f > 0.5, name
    assert cluster.measure(people, PLAIN, cluster.RANDOM, 0.1)["average linkage"][1] > 0.5
    assert cluster.measure(people, PLAIN, cluster.COMPLETE, 0.001) == {}, "320 searches are too few"
