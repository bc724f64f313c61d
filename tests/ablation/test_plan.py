"""Plans: which runs there are, checked before anything is started."""

import re
from pathlib import Path

import pytest
from plan_file import read_plan

from slimreid.ablation.grid import parse_axes
from slimreid.ablation.plan import Experiment, grid_experiments, make_jobs
from slimreid.config import Config
from slimreid.config.files import load_config, save_config
from slimreid.errors import ConfigError, SlimReIDError
from slimreid.runs.identity import deciding_options
from support.runs import SMALL, make_config, write_set

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    manifest = write_set(folder / "set")
    return save_config(load_config(overrides=[*SMALL, f"data.manifest={manifest.as_posix()}"]), folder)


def test_a_grid_becomes_named_runs(base, tmp_path):
    axes = parse_axes(["model.after_backbone.keep_ratio=0.3,0.5", "data.modalities=[rgb],[rgb,tir]"])
    experiments = grid_experiments(base, axes, (0, 3))
    assert [e.title for e in experiments][:2] == [
        "keep_ratio=0.3, modalities=[rgb]",
        "keep_ratio=0.3, modalities=[rgb,tir]",
    ]
    jobs = make_jobs(experiments, tmp_path / "runs", tmp_path / "results")
    assert len({job.run for job in jobs}) == len(jobs) == 8
    job = jobs[3]
    assert job.name == "keep_ratio=0.3_modalities=rgb-tir-seed3"
    assert (job.config.model.after_backbone.keep_ratio, job.config.data.modalities, job.config.seed) == (
        0.3,
        ("rgb", "tir"),
        3,
    )
    words = job.command()
    assert words[:3] == ["train", "--config", base.as_posix()]
    assert words[-5:] == ["3", "--out", str(job.run), "--resume", "auto"]
    assert (
        load_config([base], [f"{k}={v}" for k, v in job.experiment.changes.items()]).data == job.config.data
    )


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        (
            {"changes": {"model.after_backbone.keep_ratio": "7"}},
            "experiment 'x': model.after_backbone.keep_ratio: 7.0 is not in",
        ),
        ({"changes": {"train.epohcs": "7"}}, "unknown option 'train.epohcs'"),
        ({"changes": {"data.manifest": "nowhere"}}, "nowhere: no such manifest"),
        ({"changes": {"model.pretrained": "no.pth"}}, "model.pretrained no.pth: no such file"),
        ({"name": "a/b"}, "use letters, digits"),
        ({"seeds": ()}, "has no seeds"),
    ],
)
def test_faults_are_found_before_anything_starts(base, tmp_path, experiment, message):
    with pytest.raises(SlimReIDError, match=re.escape(message)):
        make_jobs([Experiment(**{"name": "x", "config": base, **experiment})], tmp_path, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_names_are_unique(base, tmp_path):
    with pytest.raises(ConfigError, match="two experiments are called 'x'"):
        make_jobs([Experiment("x", base), Experiment("x", base)], tmp_path, tmp_path)


def test_places_and_workers_decide_nothing():
    def options(*overrides):
        return deciding_options(make_config(Path("m"), *overrides))

    assert options() == options(
        "data.manifest=n", "data.workers=3", "seed=5", "train.threads=1", "batch.test=3"
    )
    assert options("model.pretrained=/a/w.pth") == options("model.pretrained=b/w.pth") != options()
    assert options("optim.lr=1") != options()
    begun = options("train.init_from=/a/base-seed0")
    assert begun == options("train.init_from=b/base-seed5/", "seed=5")
    assert begun != options("train.init_from=b/base-seed1", "seed=5"), "the seed of another run"
    assert begun not in (options(), options("train.init_from=b/other-seed0"))
    assert deciding_options(Config()).keys() == options().keys()


def test_the_shipped_plans_are_sound(monkeypatch):
    monkeypatch.chdir(ROOT)
    files = sorted(Path("research/plans").glob("*.yaml"))
    assert {"synthetic", "market"} <= {path.stem for path in files}
    for path in files:
        plan = read_plan(path, {"market": "m", "market_sim": "ms", "cameras": "u", "weights": "w.pth"})
        for experiment in plan.experiments:
            changes = [f"{key}={value}" for key, value in experiment.changes.items()]
            config = load_config([experiment.config], changes)
            assert "$" not in f"{config.data.manifest}{config.model.pretrained}"


def test_needs_have_a_place_or_are_lacking(tmp_path, monkeypatch):
    path = tmp_path / "p.yaml"
    path.write_text(
        "needs:\n  market: {what: images, environment: MY_MARKET}\n"
        "  world: {what: a world, place: w, make: data synth $world --seed 1}\n"
        "set: {data.manifest: $market, data.cache_dir: $world}\n"
        "experiments: [{name: a, config: c.yaml, seeds: [0, 1], set: {data.modalities: [rgb]}}]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MY_MARKET", raising=False)
    plan = read_plan(path)
    assert [need.name for need in plan.lacking] == ["market"]
    assert plan.to_make({}) == [["data", "synth", "w", "--seed", "1"]]
    monkeypatch.setenv("MY_MARKET", "/there")
    plan = read_plan(path)
    assert plan.lacking == ()
    (experiment,) = plan.experiments
    assert experiment.changes == {
        "data.manifest": "/there",
        "data.cache_dir": "w",
        "data.modalities": '["rgb"]',
    }
    assert experiment.shown == {"data.manifest": "$MY_MARKET", "data.cache_dir": "w"}
    assert read_plan(path, {"market": "/here"}).experiments[0].changes["data.manifest"] == "/here"
    (tmp_path / "w").mkdir()
    assert plan.to_make({}) == []


def test_runs_name_earlier_runs_of_their_own_seed(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(
        "experiments: [{name: b, config: c.yaml, seeds: [0, 7], set: {train.init_from: '$runs/a-seed{seed}'}}]"
    )
    (experiment,) = read_plan(path, runs=Path("elsewhere")).experiments
    assert experiment.at(7).changes == {"train.init_from": "elsewhere/p/a-seed7"}
    assert experiment.at(0).shown == {"train.init_from": "runs/experiments/p/a-seed0"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("experiments: [{name: a, config: c, sed: {}}]", "experiment 'a' has no 'sed'"),
        ("experiments: [{name: a}]", "experiment 'a' lacks 'config'"),
        ("about: nothing", "a plan lacks 'experiments'"),
        ("needs: {a: {what: x}}\nexperiments: []", "neither a place nor an environment variable"),
        ("experiments: [{name: a, config: c, set: {data.manifest: $b}}]", "names $b, which is not among"),
        ("a: [", "not a readable plan"),
        ("- a", "must be 'key: value' lines"),
    ],
)
def test_faulty_plans_are_refused(tmp_path, text, message):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_plan(path)
