"""An evaluation is used again while nothing has changed that decides it, and made anew otherwise."""

import os

import pytest
from PIL import Image

from slimreid.evaluation.reports.evaluate import JSON_NAME
from slimreid.inference.load import load
from slimreid.runs.measure import fresh_evaluation
from support.models import write_random_model
from support.runs import write_set


@pytest.fixture
def model(tmp_path):
    """A model with its evaluation, whose file tells whether it was written again."""
    manifest = write_set(tmp_path / "set")
    run = write_random_model(tmp_path / "run", manifest).path.parent
    fresh_evaluation(load(run))
    os.utime(run / "evaluation" / JSON_NAME, (1, 1))
    return run, manifest


def is_made_again(run, **options):
    found = fresh_evaluation(load(run), **options)
    return (run / "evaluation" / JSON_NAME).stat().st_mtime > 1, found


def test_it_is_used_again_while_nothing_has_changed(model):
    assert not is_made_again(model[0])[0]


def test_rows_appended_to_the_gallery(model):
    run, manifest = model
    rows = manifest.read_text().splitlines()
    more = [row.replace("query,id9", "gallery,id99") for row in rows if row.startswith("query,id9,")]
    manifest.write_text("\n".join([*rows, *more]) + "\n")
    again, found = is_made_again(run)
    assert again
    assert len(found.gallery) == 12 + len(more)


@pytest.mark.parametrize(
    ("before", "after"),
    [(",1,,", ",7,,"), ("gallery,id9,", "gallery,id10,"), (",1,,", ",1,day,")],
    ids=["cameras", "identities", "scenes"],
)
def test_labels_that_changed(model, before, after):
    run, manifest = model
    rows = manifest.read_text().splitlines()
    changed = [row.replace(before, after) if row.startswith("gallery") else row for row in rows]
    manifest.write_text("\n".join(changed) + "\n")
    assert is_made_again(run)[0]


def test_images_that_changed(model):
    run, manifest = model
    Image.new("RGB", (16, 32)).save(manifest.parent / "tir" / "9_1_0.png")
    assert is_made_again(run)[0]


def test_other_weights(model, tmp_path):
    run, manifest = model
    other = write_random_model(tmp_path / "other", manifest, seed=1).path.parent
    (other / "model.safetensors").replace(run / "model.safetensors")
    assert is_made_again(run)[0]


def test_what_it_lacks_and_what_is_damaged(model):
    run, _ = model
    again, found = is_made_again(run, missing=True)
    assert again
    assert found.missing
    (run / "evaluation" / JSON_NAME).write_text("[" * 100_000)
    assert is_made_again(run)[0]
