"""Figures of a choice of patches against plain loops, and masks of objects."""

from __future__ import annotations

import numpy as np
import pytest
from guide_scores import guide_overlaps
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from slimreid.data.images.masks import mask_file, object_shares, read_mask
from slimreid.data.manifest import read_manifest
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.metrics.kept_patches import mask_overlap, shared_share
from slimreid.inference.features.data import open_data
from slimreid.inference.load import load


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(0, 1000))
def test_overlap_with_the_mask_equals_the_loops(R, N, seed):
    rng = np.random.default_rng(seed)
    kept = rng.random((R, N)) < 0.5
    kept[:, 0] = True
    shares = np.where(rng.random((R, N)) < 0.4, 0.0, rng.random((R, N)))
    found = mask_overlap(kept, shares)
    on, recall, iou = [], [], []
    for r in range(R):
        chosen = [i for i in range(N) if kept[r, i]]
        on.append(sum(shares[r, i] for i in chosen) / len(chosen))
        if sum(shares[r]) > 0:
            recall.append(sum(shares[r, i] for i in chosen) / sum(shares[r]))
        mostly = {i for i in range(N) if shares[r, i] >= 0.5}
        iou.append(len(mostly & set(chosen)) / len(mostly | set(chosen)))
    assert found.on_object == pytest.approx(np.mean(on))
    assert found.chance == pytest.approx(shares.sum() / (R * N))
    assert found.iou == pytest.approx(np.mean(iou))
    assert found.recall == pytest.approx(np.mean(recall) if recall else np.nan, nan_ok=True)


def test_a_choice_shares_patches_with_another():
    first = np.array([[1, 1, 0, 0], [1, 0, 0, 1]], dtype=bool)
    second = np.array([[1, 0, 1, 0], [1, 0, 0, 1]], dtype=bool)
    assert shared_share(first, second).tolist() == [0.5, 1.0]
    with pytest.raises(DataError, match="same patches"):
        shared_share(first, second[:, :3])
    with pytest.raises(DataError, match="not one"):
        mask_overlap(first, np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("size", "grid"), [((8, 4), (4, 2)), ((9, 6), (3, 2)), ((8, 6), (3, 4)), ((2, 2), (4, 4))]
)
def test_shares_of_the_object_equal_the_loops(size, grid):
    """Patch by patch, pixel by pixel, also where borders of patches cut pixels."""
    rng = np.random.default_rng(0)
    mask = (rng.random(size) < 0.5) * 255
    found = object_shares(Image.fromarray(mask.astype(np.uint8)), grid)
    for r in range(grid[0]):
        for c in range(grid[1]):
            area = 0.0
            for y in range(size[0]):
                for x in range(size[1]):
                    tall = min(y + 1, (r + 1) * size[0] / grid[0]) - max(y, r * size[0] / grid[0])
                    wide = min(x + 1, (c + 1) * size[1] / grid[1]) - max(x, c * size[1] / grid[1])
                    area += max(tall, 0) * max(wide, 0) * (mask[y, x] > 0)
            whole = size[0] / grid[0] * size[1] / grid[1]
            assert found[r * grid[1] + c] == pytest.approx(area / whole)


def test_masks_lie_beside_the_images(tmp_path, write_csv, write_image):
    write_image(tmp_path / "test/RGB/a.png")
    manifest = read_manifest(
        write_csv(tmp_path / "manifest.csv", "split,identity,camera,rgb", "train,1,1,test/RGB/a.png")
    )
    sample = manifest.samples[0]
    assert mask_file(manifest, sample) == tmp_path / "masks/test/a.png"
    assert read_mask(manifest, sample) is None
    (tmp_path / "masks/test").mkdir(parents=True)
    Image.fromarray(np.array([[0, 255]], dtype=np.uint8)).save(tmp_path / "masks/test/a.png")
    assert object_shares(read_mask(manifest, sample), (1, 2)).tolist() == [0, 1]
    (tmp_path / "masks/test/a.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"a\.png: not a"):
        read_mask(manifest, sample)


def test_guides_that_are_absent_change_the_choice(trained_run):
    loaded = load(trained_run)
    found = guide_overlaps(loaded, open_data(loaded), limit=5)
    assert found.samples == 5
    assert found.subsets == ((), ("rgb",), ("nir",), ("tir",), ("rgb", "nir"), ("rgb", "tir"), ("nir", "tir"))
    for name in ("rgb", "nir", "tir"):
        others = tuple(n for n in ("rgb", "nir", "tir") if n != name)
        assert set(found.shares[name]) == {(), (others[0],), (others[1],), others}
        assert found.shares[name][others] == 1.0, "all guides: the same choice"
        assert all(0 < share <= 1 for share in found.shares[name].values())
    assert min(found.shares["rgb"].values()) < 1
    assert found.chance == 0.5
    assert found.to_dict()["shares"]["rgb"]["none"] == found.shares["rgb"][()]
    with pytest.raises(ConfigError, match="stage 1 does not exist"):
        guide_overlaps(loaded, open_data(loaded), stage=1)
