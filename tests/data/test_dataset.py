import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from slimreid.config import BatchConfig, Config, DataConfig, TransformConfig
from slimreid.data.dataset import ReIDDataset
from slimreid.data.images.cache import DiskCache
from slimreid.data.images.decode import read_image
from slimreid.data.images.resize import resize
from slimreid.data.loader import BatchLoader, eval_loader, open_manifest, train_loader
from slimreid.data.manifest import read_manifest
from slimreid.data.sample_reader import normalise
from slimreid.data.sampler import SampleKey
from slimreid.errors import ConfigError, DataError

SIZE = {"height": 24, "width": 12, "pad": 2}


def make_config(manifest, **data):
    return Config(
        seed=5,
        data=DataConfig(str(manifest), **({"workers": 0} | data)),
        transforms=TransformConfig(**SIZE, modality_dropout=0.3),
        batch=BatchConfig(num_ids=2, num_instances=3, test=4),
    )


def everything(loader, epochs=(0, 1)):
    batches = []
    for epoch in epochs:
        loader.sampler.set_epoch(epoch)
        batches += list(loader)
    return batches


def assert_same(first, second):
    assert len(first) == len(second) > 0
    for a, b in zip(first, second, strict=True):
        for name in a.images:
            assert torch.equal(a.images[name], b.images[name])
        for name in ("present", "identity", "camera", "index"):
            assert torch.equal(getattr(a, name), getattr(b, name))
        assert a.paths == b.paths


def test_batches_are_aligned_and_complete(small_set):
    loader = eval_loader(make_config(small_set), ["query"])
    batches = list(loader)
    assert [len(b) for b in batches] == [4, 4, 4]
    batch = batches[0]
    assert batch.modalities == ("rgb", "nir", "tir")
    assert batch.images["tir"].shape == (4, 3, 24, 12)
    assert batch.present.all()
    for name, path in batch.paths[0].items():
        pixels = resize(read_image(Path(path)), (24, 12), loader.dataset.transform.mode)
        assert torch.equal(batch.images[name][0], torch.from_numpy(normalise(pixels, 0.5, 0.5))), name
    assert batch.identity.tolist() == [6] * 4, "test identities follow the six of training"
    assert batch.camera.tolist() == [0, 0, 1, 1]
    assert batch.paths[0]["tir"].endswith("9_1_0.png")


@pytest.mark.parametrize("workers", [1, 4])
def test_batches_do_not_depend_on_the_number_of_workers(small_set, workers):
    torch.manual_seed(0)
    state = torch.get_rng_state()
    alone = everything(train_loader(make_config(small_set)))
    assert torch.equal(state, torch.get_rng_state()), "loading leaves the global generator alone"
    assert_same(alone, everything(train_loader(make_config(small_set, workers=workers))))


def test_resume_inside_an_epoch_gives_the_same_batches(small_set):
    loader = train_loader(make_config(small_set))
    whole = everything(loader, [3])
    loader.sampler.set_epoch(3, start=1)
    assert_same(list(loader), whole[1:])


@pytest.mark.parametrize("cache", ["ram", "disk"])
def test_caches_change_nothing(small_set, cache):
    plain = everything(train_loader(make_config(small_set)))
    cached = train_loader(make_config(small_set, cache=cache))
    assert_same(plain, everything(cached))
    if cache == "ram":
        seen = {index for batch in plain for index in batch.index.tolist()}
        assert len(cached.dataset.reader.cache.images) == len(seen) * 3


def test_disk_cache_is_used_and_mends_itself(tmp_path, small_set):
    config = make_config(small_set, cache="disk", cache_dir=str(tmp_path / "kept"))
    dataset = train_loader(config).dataset
    first = dataset.resized(dataset.samples[0])
    files = sorted((tmp_path / "kept").rglob("*.raw"))
    assert len(files) == 3
    files[0].write_bytes(b"short")
    again = dataset.resized(dataset.samples[0])
    assert all(torch.equal(first[name], again[name]) for name in first)
    files[1].write_bytes(bytes(3 * 24 * 12))
    third = dataset.resized(dataset.samples[0])
    assert sum(int(x.sum()) == 0 for x in third.values()) == 1, "read from the cache, not made again"
    assert isinstance(dataset.reader.cache, DiskCache)
    assert not list((tmp_path / "kept").rglob("tmp*"))


def test_epoch_draw_and_seed_change_the_augmentation(small_set):
    dataset = train_loader(make_config(small_set)).dataset
    keys = [SampleKey(0), SampleKey(0, epoch=1), SampleKey(0, draw=1), SampleKey(0)]
    a, b, c, d = (dataset[key] for key in keys)
    assert a.images.keys() == d.images.keys()
    assert all(torch.equal(a.images[n], d.images[n]) for n in a.images)

    def differ(x, y):
        return x.images.keys() != y.images.keys() or any(
            not torch.equal(x.images[n], y.images[n]) for n in x.images
        )

    assert differ(a, b)
    assert differ(a, c)
    dataset.seed += 1
    assert differ(a, dataset[0])


def test_missing_modalities_are_zeros_and_marked(tmp_path, write_image, write_csv):
    for name in ("a", "b"):
        write_image(tmp_path / f"{name}.png")
    path = write_csv(
        tmp_path / "m.csv", "split,identity,camera,rgb,tir", "query,1,1,a.png,", "query,1,2,,b.png"
    )
    (batch,) = eval_loader(make_config(path), ["query"])
    assert batch.present.tolist() == [[True, False], [False, True]]
    assert (batch.images["tir"][0] == 0).all()
    assert (batch.images["rgb"][0] != 0).any()


def test_one_modality_is_enough(tmp_path, write_image, write_csv):
    write_image(tmp_path / "a.png")
    path = write_csv(tmp_path / "m.csv", "split,identity,camera,rgb", "query,1,1,a.png")
    (batch,) = eval_loader(make_config(path), ["query"])
    assert batch.modalities == ("rgb",)
    assert batch.present.shape == (1, 1)


def test_strips_become_aligned_samples(tmp_path, write_csv):
    strip = np.concatenate([np.full((24, 12, 3), v, np.uint8) for v in (0, 100, 200)], axis=1)
    Image.fromarray(strip).save(tmp_path / "s.png")
    header = "split,identity,camera,rgb,rgb_box,nir,nir_box,tir,tir_box"
    row = "query,1,1,s.png,0 0 12 24,s.png,12 0 24 24,s.png,24 0 36 24"
    (batch,) = eval_loader(make_config(write_csv(tmp_path / "m.csv", header, row)), ["query"])
    greys = [float(x.mean() * 0.5 + 0.5) * 255 for x in batch.images.values()]
    assert greys == pytest.approx([0, 100, 200], abs=1e-3)


def break_file(small_set):
    broken = small_set.parent / "tir" / "1_2_0.png"
    broken.write_bytes(b"")
    return broken


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file_stops_with_its_name(small_set, workers):
    broken = break_file(small_set)
    with pytest.raises(DataError, match="zero bytes") as caught:
        everything(train_loader(make_config(small_set, workers=workers)))
    message = str(caught.value)
    assert str(broken) in message
    assert "row 8" in message
    assert "Traceback" not in message
    dataset = ReIDDataset(read_manifest(small_set), ("train",), TransformConfig(**SIZE))
    with pytest.raises(DataError, match="zero bytes"):
        dataset[6]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file_can_be_skipped_once(small_set, workers, caplog):
    break_file(small_set)
    loader = train_loader(make_config(small_set, workers=workers, on_error="skip"))
    with caplog.at_level(logging.WARNING):
        batches = everything(loader, range(6))
    assert all(6 not in b.index for b in batches)
    assert {len(b) for b in batches} <= {5, 6, 4}
    assert list(loader.dropped) == [6]
    assert len(caplog.records) == 1, "said once"
    assert loader.report().startswith("1 of 24 samples dropped")
    assert "1_2_0.png" in loader.report()


def test_known_broken_samples_are_not_asked_for_again(small_set):
    break_file(small_set)
    loader = train_loader(make_config(small_set, on_error="skip"))
    everything(loader, range(6))
    asked = []
    original = loader.dataset.__class__.__getitems__
    loader.dataset.__class__.__getitems__ = lambda self, keys: asked.extend(keys) or original(self, keys)
    try:
        everything(loader, range(6))
    finally:
        loader.dataset.__class__.__getitems__ = original
    assert asked
    assert all(key.sample != 6 for key in asked)


def test_a_batch_of_broken_samples_is_left_out(tmp_path, write_image, write_csv):
    write_image(tmp_path / "good.png")
    rows = [f"query,1,1,{n}.png" for n in ("x", "x", "x", "x", "good")]
    config = make_config(write_csv(tmp_path / "m.csv", "split,identity,camera,rgb", *rows), on_error="skip")
    assert [len(b) for b in eval_loader(config, ["query"])] == [1]


def test_modalities_of_another_shape_are_refused(tmp_path, write_image, write_csv):
    write_image(tmp_path / "a.png", (16, 32))
    write_image(tmp_path / "b.png", (32, 32))
    write_image(tmp_path / "c.png", (8, 16))
    path = write_csv(
        tmp_path / "m.csv", "split,identity,camera,rgb,tir", "query,1,1,a.png,c.png", "query,1,1,a.png,b.png"
    )
    dataset = eval_loader(make_config(path), ["query"]).dataset
    assert len(dataset[0].images) == 2, "another size of the same shape is fine"
    with pytest.raises(DataError, match=r"b\.png: 'tir' is 32×32 but 'rgb' is 16×32"):
        dataset[1]


def test_windows_are_for_modalities_the_data_has(small_set):
    assert make_config(small_set, windows={"thermal": (0, 9)}).data.windows == {"tir": (0, 9)}
    with pytest.raises(ConfigError, match=r"data\.windows\.tirr: the data has rgb, nir, tir only"):
        eval_loader(make_config(small_set, windows={"tirr": (0, 9)}), ["query"])


def test_wishes_that_cannot_be_met(small_set):
    with pytest.raises(DataError, match="no rows of split val"):
        eval_loader(make_config(small_set), ["val"])
    with pytest.raises(ConfigError, match=r"data\.manifest is not set"):
        open_manifest(Config())
    config = make_config(small_set)
    with pytest.raises(ConfigError, match="more than the 6 identities"):
        train_loader(replace(config, batch=BatchConfig(num_ids=9, num_instances=2)))


def test_ranks_share_an_epoch(small_set):
    config = make_config(small_set)
    whole = everything(train_loader(config), [0])
    parts = [everything(train_loader(config, rank=r, world_size=2), [0]) for r in range(2)]
    for batch, first, second in zip(whole, *parts, strict=True):
        assert batch.index.tolist() == first.index.tolist() + second.index.tolist()


def test_loader_knows_its_length(small_set):
    loader = train_loader(make_config(small_set))
    assert isinstance(loader, BatchLoader)
    assert len(loader) == len(list(loader)) == 3
