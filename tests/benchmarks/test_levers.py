"""Ideas for token reduction: each against a plain loop, and the benchmark on a tiny run."""

from __future__ import annotations

import json

import pytest
import torch

from slimreid.data.loader import train_loader
from slimreid.token_reduction.merge import nearest_weights, patch_similarity
from slimreid.token_reduction.select import stable_top
from slimreid.training.distributed.processes import Processes
from slimreid.training.learner import Learner
from support.models import write_random_model
from support.runs import make_config, write_set

SMALL = ("transforms.height=64", "transforms.width=32")


@pytest.fixture
def script(load_benchmark):
    threads = torch.get_num_threads()
    yield load_benchmark("levers")
    torch.set_num_threads(threads)


def test_isolation_is_the_distance_to_the_nearest_other_patch(script):
    similarity = patch_similarity(torch.randn(2, 5, 8))
    expected = [
        [1 - max(float(row[j]) for j in range(5) if j != i) for i, row in enumerate(of_image)]
        for of_image in similarity
    ]
    torch.testing.assert_close(script.isolation(similarity), torch.tensor(expected))


def test_counts_follow_the_image_within_the_buffer_and_are_as_many_in_all(script):
    score = torch.randn(4, 10)
    score[0] += 10  # all of its patches are better than any of another image
    index, kept = script.best_of_batch(score, 4)
    assert index.shape == kept.shape == (4, 6)
    assert int(kept.sum()) == 16
    assert kept.sum(1)[0] == 6
    assert bool((kept.sum(1) >= 1).all())
    left = sorted((float(score[b, i]) for b in range(1, 4) for i in index[b][kept[b]]), reverse=True)
    chosen = [float(score[b, index[b, 0]]) for b in range(1, 4)]
    others = sorted(
        (float(v) for b in range(1, 4) for v in score[b].sort(descending=True).values[1:6]), reverse=True
    )
    assert left == sorted(chosen + others[:7], reverse=True)


def test_places_that_are_not_kept_get_nothing(script):
    similarity = patch_similarity(torch.randn(3, 9, 8))
    index = stable_top(torch.randn(3, 9), 5)
    size = torch.randint(1, 4, (3, 9)).float()
    whole, sizes = nearest_weights(similarity, index[:, :3], size)
    kept = (torch.arange(5) < 3).expand(3, 5)
    weights, found = script.nearest_of(similarity, index, kept, size)
    torch.testing.assert_close(weights[:, :3], whole)
    torch.testing.assert_close(found[:, :3], sizes)
    assert not weights[:, 3:].any()
    assert not found[:, 3:].any()


def test_ideas_are_compared_with_plain_merging_and_a_second_start_goes_on(
    script, tmp_path, capsys, monkeypatch
):
    manifest = write_set(tmp_path / "set")
    write_random_model(tmp_path / "run", manifest, "model.reduction=none", "model.fusion=mean", *SMALL)
    path = tmp_path / "found.json"
    command = [str(tmp_path / "run"), "--choose-on", str(manifest), "--test", str(manifest)]
    command += ["--schedule", "[[0.25, 0.6], [0.5, 0.3]]", "--json", str(path)]
    assert script.main(command) == 0
    assert "without training" in capsys.readouterr().out
    found = json.loads(path.read_text())["points"]
    assert len(found) == 2 * (len(script.IDEAS) + 1)
    plain = {p["side"]: p["map"] for p in found if p["idea"] == script.MERGING}
    for point in found:
        if "difference" in point:
            assert point["difference"]["value"] == pytest.approx(point["map"] - plain[point["side"]])
    monkeypatch.setattr(script.points, "retrieve", None)  # nothing is measured twice
    assert script.main(command) == 0
    assert script.main(["--train-patches", str(tmp_path)]) == 2
    assert "needs --out" in capsys.readouterr().err


def test_plain_merging_is_that_of_the_package(script, tmp_path):
    """The reducer of the ideas with none of them gives the same features as the package's."""
    manifest = write_set(tmp_path / "set")
    loaded = write_random_model(
        tmp_path / "run", manifest, "model.reduction=none", "model.fusion=mean", *SMALL
    )
    schedule = [[0.25, 0.6], [0.5, 0.3]]
    ours = script.points.slimmed_by(loaded, script.way_of(script.MERGING, schedule, ["redundancy=0.75"]))
    plain = script.points.stage_way(script.points.OURS, schedule, ["redundancy=0.75"])
    theirs = script.points.slimmed_by(loaded, plain)
    a, b = (script.points.retrieve(model, manifest) for model in (ours, theirs))
    assert a.average_precision.tolist() == b.average_precision.tolist()


def test_tokens_follow_the_mean_of_the_patches_they_stand_for(script, tmp_path):
    """The distance is that of the features plus 1 − cosine, computed token by token."""
    manifest = write_set(tmp_path / "set")
    teacher = write_random_model(tmp_path / "t", manifest, "model.reduction=none", "model.fusion=mean")
    options = ("model.reduction=in_backbone", "model.in_backbone.schedule=[[0.25, 0.6], [0.5, 0.3]]")
    config = make_config(
        manifest, f"train.teacher={teacher.path.parent}", "loss.distill_weight=1", *options, "train.threads=1"
    )
    loader = train_loader(config)
    with script.patch_distillation():
        learner = Learner(config, loader, Processes(0, 1, torch.device("cpu")))
        batch = next(iter(loader))
        output = learner.model.train()(batch)
        distillation = learner.batch_losses.distillation
        both = distillation(batch, output).item()
        plain = distillation.plain(batch, output).item()
    product = distillation.merges[1] @ distillation.merges[0]
    tokens, patches = distillation.seen["student"].detach(), distillation.seen["teacher"]
    apart = []
    for row in range(len(tokens)):
        for token, weights in zip(tokens[row], product[row], strict=True):
            mean = sum(w * p for w, p in zip(weights, patches[row], strict=True))
            apart.append(1 - float(torch.cosine_similarity(token, mean, dim=0)))
    assert both - plain == pytest.approx(sum(apart) / len(apart), rel=1e-4)
