"""Modality dropout of whole batches: how often, what stays, and that it follows from seed and step alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import slimreid.cli.commands.data.images as preview
from slimreid.cli.app import main as slimreid
from slimreid.config import TransformConfig
from slimreid.data.augment.whole_batches import batch_dropout, draw_dropout, drop_from_batch
from slimreid.data.batches import ModalBatch
from slimreid.data.loader import train_loader
from slimreid.errors import ConfigError
from slimreid.training.loop import train
from support.runs import make_config

NAMES = ("rgb", "nir", "tir")
GAPS = [[1, 1, 1], [1, 0, 1], [0, 1, 0], [0, 0, 1], [1, 1, 0]]


def make_batch(gaps, names=NAMES, seed=0):
    """A batch of tiny images; `gaps` says what each sample has."""
    present = torch.tensor(gaps, dtype=torch.bool)
    generator = torch.Generator().manual_seed(seed)
    B, numbers = len(present), torch.arange(len(present))
    images = {
        name: torch.randn(B, 3, 2, 1, generator=generator) * present[:, m, None, None, None]
        for m, name in enumerate(names)
    }
    paths = tuple(
        {n: f"{n}/{b}.png" for n, there in zip(names, row, strict=True) if there}
        for b, row in enumerate(gaps)
    )
    return ModalBatch(images, present, numbers, numbers, numbers, paths)


def part(batch, rows):
    """Some samples of a batch, as another process gets them."""
    of_samples = {
        name: getattr(batch, name)[rows] for name in ("present", "identity", "camera", "index", "paths")
    }
    return ModalBatch({n: x[rows] for n, x in batch.images.items()}, **of_samples)


def config(probability=0.5):
    return TransformConfig(modality_dropout=probability)


def loops(gaps, names, stay):
    """What each sample has left, one by one."""
    left = []
    for row in gaps:
        rest = [bool(there) and name in stay for name, there in zip(names, row, strict=True)]
        left.append(rest if any(rest) else [bool(there) for there in row])
    return left


rows = st.lists(st.booleans(), min_size=3, max_size=3).filter(any)


@settings(deadline=None, max_examples=60)
@given(st.lists(rows, min_size=1, max_size=5), st.floats(0, 0.99), st.integers(0, 2**31))
def test_a_batch_equals_the_loops_and_keeps_its_word(gaps, probability, seed):
    batch = make_batch(gaps)
    dropped = batch_dropout(batch, config(probability), np.random.default_rng(seed))
    stay = draw_dropout(NAMES, config(probability), np.random.default_rng(seed))
    assert dropped.present.tolist() == loops(gaps, NAMES, stay)
    assert bool(dropped.present.any(1).all()), "every sample keeps something"
    assert not (dropped.present & ~batch.present).any(), "nothing is added"
    for m, name in enumerate(NAMES):
        here = dropped.present[:, m]
        assert torch.equal(dropped.images[name][here], batch.images[name][here])
        assert not dropped.images[name][~here].any(), "zeros where absent"
    for files, here in zip(dropped.paths, dropped.present.tolist(), strict=True):
        assert list(files) == [name for name, there in zip(NAMES, here, strict=True) if there]
    for name in ("identity", "camera", "index"):
        assert torch.equal(getattr(dropped, name), getattr(batch, name))


def test_the_batch_that_is_given_stays_as_it_is():
    batch, again = make_batch(GAPS), make_batch(GAPS)
    dropped = [batch_dropout(batch, config(0.9), np.random.default_rng(seed)) for seed in range(5)]
    assert any(not torch.equal(d.present, batch.present) for d in dropped)
    assert torch.equal(batch.present, again.present)
    assert all(torch.equal(batch.images[name], again.images[name]) for name in NAMES)


def test_images_that_are_not_finite_are_zeros_too():
    batch = make_batch([[1, 1, 1]])
    for image in batch.images.values():
        image.fill_(float("nan"))
    dropped = batch_dropout(batch, config(0.99), np.random.default_rng(0))
    absent = [name for m, name in enumerate(NAMES) if not dropped.present[0, m]]
    assert len(absent) == 2
    assert all(not dropped.images[name].any() for name in absent)


def test_a_sample_that_would_lose_everything_keeps_what_it_has():
    seed = next(
        s for s in range(99) if draw_dropout(NAMES, config(0.5), np.random.default_rng(s)) == ("nir",)
    )
    dropped = batch_dropout(make_batch(GAPS), config(0.5), np.random.default_rng(seed))
    assert dropped.present.int().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0]]


def test_steps_hit_the_probability_and_one_always_stays():
    batch = make_batch([[1, 1, 1]])
    found = torch.cat([drop_from_batch(batch, config(0.4), 3, step).present for step in range(3000)])
    assert int(found.sum(1).min()) == 1
    assert float(found.all(1).float().mean()) == pytest.approx(0.6**3, abs=0.03)
    assert found.float().mean(0).tolist() == pytest.approx([0.6 + 0.4**3 / 3] * 3, abs=0.03)
    patterns, counts = found.unique(dim=0, return_counts=True)
    assert len(patterns) == 7, "every subset is seen"
    assert int(counts.min()) > 60


def test_each_modality_has_its_own_rate():
    batch, rates = make_batch([[1, 1, 1]]), {"visible": 0.2, "nir": 0.7}
    found = torch.cat([drop_from_batch(batch, config(rates), 3, step).present for step in range(3000)])
    assert found.float().mean(0).tolist() == pytest.approx([0.8, 0.3, 1.0], abs=0.03)
    assert config(rates).dropout_of("rgb") == 0.2, "names are those of the field, however written"


@pytest.mark.parametrize("rates", [1.5, -0.1, 1.0, {"rgb": 1.0}, {"nir": 2.0}, {"vis": 0.1, "rgb": 0.1}])
def test_rates_outside_their_range_are_refused(rates):
    with pytest.raises(ConfigError, match="modality_dropout"):
        config(rates)


def test_a_rate_of_a_modality_that_the_data_lacks_is_refused(small_set, tmp_path):
    made = make_config(small_set)
    wrong = replace(made, transforms=replace(made.transforms, modality_dropout={"rbg": 0.5}))
    with pytest.raises(ConfigError, match=r"modality_dropout\.rbg: .*rgb"):
        train(wrong, tmp_path / "run")


def test_the_draw_follows_from_seed_and_step_alone():
    batch = make_batch(GAPS)

    def draws(seed, of=batch):
        return torch.stack([drop_from_batch(of, config(), seed, step).present for step in range(40)])

    first = draws(7)
    torch.manual_seed(99)
    assert torch.equal(draws(7), first)
    assert not torch.equal(draws(8), first)
    assert len(first.unique(dim=0)) > 3, "steps differ"
    for rank, of_rank in enumerate((slice(0, 2), slice(2, 5))):
        assert torch.equal(draws(7, part(batch, of_rank)), first[:, of_rank]), f"process {rank}"


def test_nothing_is_dropped_where_it_is_off_or_one_modality_is_there():
    batch = make_batch(GAPS)
    for step in range(20):
        assert drop_from_batch(batch, config(0.0), 0, step) is batch
    alone = make_batch([[1], [1]], ("tir",))
    assert drop_from_batch(alone, config(0.9), 0, 0) is alone, "a single modality always stays"


def test_samples_are_loaded_whole_when_batches_are_dropped_from(small_set):
    options = make_config(
        small_set, "transforms.modality_dropout=0.9", "batch.num_ids=2", "batch.num_instances=2"
    )
    whole = next(iter(train_loader(options)))
    assert whole.present.all()


def test_the_preview_shows_what_training_will_see(small_set, tmp_path, monkeypatch):
    shown = []
    real = preview.batch_rows
    monkeypatch.setattr(
        preview, "batch_rows", lambda batch, data: (shown.append(batch), real(batch, data))[1]
    )
    options = ["--data.manifest", str(small_set), "--data.workers", "0", "--transforms.height", "32"]
    options += [
        "--transforms.width",
        "16",
        "--batch.num_ids",
        "2",
        "--batch.num_instances",
        "2",
        "--batches",
        "3",
    ]
    options += ["--transforms.modality_dropout", "0.6", "--seed", "4", "--out", str(tmp_path / "p")]
    assert slimreid(["data", "preview", *options]) == 0
    assert len(shown) == len(list((tmp_path / "p").glob("batch_*.png"))) > 1
    for step, batch in enumerate(shown):
        stay = drop_from_batch(make_batch([[1, 1, 1]]), config(0.6), 4, step).present
        assert torch.equal(batch.present, stay.expand(len(batch), 3))
    assert not all(batch.present.all() for batch in shown)
