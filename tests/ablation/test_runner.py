"""Running jobs: results are written one by one, finished runs stay, interrupted ones go on, failed ones are told."""

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from slimreid.ablation import process
from slimreid.ablation.grid import parse_axes
from slimreid.ablation.plan import grid_experiments, make_jobs
from slimreid.ablation.runner import job_state, run_jobs, seconds_left
from slimreid.config.files import load_config, save_config
from slimreid.errors import ConfigError, TrainingError
from slimreid.runs.record import read_record
from slimreid.training.callbacks.base import Callback
from slimreid.training.loop import train
from support.runs import SMALL, write_set
from support.skips import NOT_LINUX


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablation")
    manifest = write_set(folder / "set")
    return save_config(load_config(overrides=[*SMALL, f"data.manifest={manifest.as_posix()}"]), folder)


@pytest.fixture(scope="module")
def make(base):
    def jobs(folder, *grids):
        axes = parse_axes(grids or ["model.after_backbone.keep_ratio=0.3,0.6"])
        experiments = grid_experiments(base, axes, (0,))
        return make_jobs(experiments, folder / "runs", folder / "results")

    return jobs


def in_process(job):
    train(job.config, job.run, "auto")


@pytest.fixture(scope="module")
def finished(make, tmp_path_factory):
    """Two settings, both run."""
    folder = tmp_path_factory.mktemp("finished")
    said = []
    outcome = run_jobs(make(folder), start=in_process, say=said.append)
    return folder, outcome, said


@pytest.fixture
def copy(finished, tmp_path):
    """The same, to spoil."""
    shutil.copytree(finished[0], tmp_path / "copy")
    return tmp_path / "copy"


def refuse(job):
    raise AssertionError(f"{job.name} must not run again")


def test_every_run_leaves_a_result(finished, make):
    folder, outcome, said = finished
    jobs = make(folder)
    assert outcome.failures == []
    assert [record.name for record in outcome.records] == [job.name for job in jobs]
    for job, record in zip(jobs, outcome.records, strict=True):
        kept = read_record(job.result)
        result = json.loads((job.run / "result.json").read_text())
        assert kept.figures("both").map == pytest.approx(result["test"]["map"], abs=1e-9)
        assert kept.figures("both").cmc[1] == pytest.approx(result["test"]["cmc"]["1"])
        assert kept.figures().map == record.figures().map
        assert kept.seed == job.config.seed
        assert kept.options["model.after_backbone.keep_ratio"] == job.config.model.after_backbone.keep_ratio
        assert kept.dataset == job.dataset
        assert set(kept.features) == {"original", "slimmed", "both"}
        assert kept.source["command"].startswith("slimreid train --config ")
        assert kept.source["command"].endswith(f"--seed {job.config.seed}")
        assert {"options_hash", "weights", "git_commit", "versions"} <= set(kept.source)
        assert kept.seconds["train"] > 0
        assert str(folder) not in json.dumps({**kept.to_dict(), "source": ""})
    assert said[0] == "[1/2] keep_ratio=0.3, seed 0"
    assert said[1].startswith("[1/2] keep_ratio=0.3, seed 0: mAP ")
    assert said[2].endswith(" left")


def test_finished_runs_are_not_repeated(finished, make):
    folder, outcome, _ = finished
    said = []
    again = run_jobs(make(folder), start=refuse, say=said.append)
    assert [r.to_dict() for r in again.records] == [read_record(j.result).to_dict() for j in make(folder)]
    assert said == []
    more = make(folder, "model.after_backbone.keep_ratio=0.3,0.6,0.9")
    assert [job_state(job) for job in more] == ["finished", "finished", "new"]


def test_other_options_are_refused_or_run_again(copy, make, base, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(base.read_text().replace("lr: 0.001", "lr: 0.002", 1))
    axes = parse_axes(["model.after_backbone.keep_ratio=0.3"])
    jobs = make_jobs(grid_experiments(other, axes, (0,)), copy / "runs", copy / "results")
    with pytest.raises(ConfigError, match=r"optim\.lr: 0\.001 before, 0\.002 now") as error:
        run_jobs(jobs, start=refuse)
    assert "--rerun" in str(error.value)
    jobs[0].result.unlink()  # a run without result is looked at too
    with pytest.raises(ConfigError, match=r"optim\.lr: 0\.001 before, 0\.002 now"):
        run_jobs(jobs, start=refuse)
    outcome = run_jobs(jobs, start=in_process, rerun=True)
    assert outcome.records[0].options["optim.lr"] == 0.002


def test_other_rows_are_refused(copy, make):
    (job,) = make(copy, "model.after_backbone.keep_ratio=0.3")
    values = json.loads(job.result.read_text())
    values["dataset"] = "other"
    job.result.write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="the rows of the manifest"):
        job_state(job)


def test_options_that_are_no_more_had_no_effect_or_are_named(copy, make):
    (job,) = make(copy, "model.after_backbone.keep_ratio=0.3")
    values, today = json.loads(job.result.read_text()), read_record(job.result).options
    values["options"] |= {"model.patch_mean": False, "model.completion": False, "loss.completion_weight": 1.0}
    job.result.write_text(json.dumps(values))
    assert job_state(job) == "finished"
    assert read_record(job.result).options == today, "so that it is grouped with runs of today"
    values["options"]["model.completion"] = True
    job.result.write_text(json.dumps(values))
    assert read_record(job.result).options == {**today, "model.completion": True}
    with pytest.raises(
        ConfigError, match=r"an earlier version with options that no longer exist \(model\.completion\)"
    ) as error:
        job_state(job)
    assert "--rerun" in str(error.value)


class Stop(Callback):
    """Ctrl-C after the first epoch."""

    def saved(self, folder):
        raise KeyboardInterrupt


def test_an_interrupted_run_goes_on(make, tmp_path, finished):
    jobs = make(tmp_path, "model.after_backbone.keep_ratio=0.3")
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, start=lambda job: train(job.config, job.run, "auto", [Stop()]))
    assert job_state(jobs[0]) == "started"
    said = []
    outcome = run_jobs(jobs, start=in_process, say=said.append)
    assert said[0] == "[1/1] keep_ratio=0.3, seed 0, resuming after epoch 1"
    whole = next(r for r in finished[1].records if r.name == jobs[0].name)
    assert outcome.records[0].source["weights"] == whole.source["weights"]  # as if never stopped


def test_a_failed_run_does_not_stop_the_rest(make, tmp_path):
    jobs = make(tmp_path)

    def start(job):
        if job is jobs[0]:
            raise TrainingError("the disk is full")
        in_process(job)

    said = []
    outcome = run_jobs(jobs, start=start, say=said.append)
    assert [(f.job.name, f.reason) for f in outcome.failures] == [(jobs[0].name, "the disk is full")]
    assert [record.name for record in outcome.records] == [jobs[1].name]
    assert "[1/2] keep_ratio=0.3, seed 0 failed: the disk is full" in said
    assert not jobs[0].result.exists()


def test_time_left_by_what_finished(finished, make, tmp_path):
    jobs = make(tmp_path, "model.after_backbone.keep_ratio=0.3,0.6,0.9")
    assert seconds_left(jobs, {}) is None
    times = {jobs[0].key: [10.0, 20.0], jobs[1].key: [30.0]}
    assert seconds_left(jobs, times) == 15.0 + 30.0 + 20.0
    jobs[1].run.mkdir(parents=True)
    (jobs[1].run / "timing.jsonl").write_text(
        '{"epoch": 1, "seconds": 1.0, "images_per_second": 9.0}\n{"epo'
    )  # 1 of 2 epochs
    assert seconds_left(jobs, times) == 15.0 + 15.0 + 20.0


def replaced_command(monkeypatch, code):
    """Let our commands be a few lines of Python."""
    popen = subprocess.Popen
    monkeypatch.setattr(
        process.subprocess, "Popen", lambda words, **kw: popen([sys.executable, "-c", code], **kw)
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('epoch 1'); print('error: no such file: a.png'); exit(1)", "no such file: a.png"),
        ("print('Traceback'); print('Boom'); exit(3)", "it ended with code 3.*Boom"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it was ended by signal 9"),
    ],
)
def test_what_a_process_complained_of_is_told(make, tmp_path, monkeypatch, code, message):
    replaced_command(monkeypatch, code)
    jobs = make(tmp_path, "model.after_backbone.keep_ratio=0.3")
    outcome = run_jobs(jobs)
    assert outcome.records == []
    reason = " ".join(outcome.failures[0].reason.split())
    assert re.search(message, reason)
    assert "log.txt" in reason


def test_ctrl_c_stops_the_running_process(make, tmp_path, monkeypatch):
    """The signal comes to us alone; the run is asked to end, and is gone when we are."""
    ended = tmp_path / "ended"
    code = (
        "import signal, sys, time, pathlib\n"
        f"def end(*_): pathlib.Path({str(ended)!r}).touch(); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"pathlib.Path({str(tmp_path / 'up')!r}).touch()\n"
        "time.sleep(60)\n"
    )
    replaced_command(monkeypatch, code)
    monkeypatch.setattr(process, "_GRACE", 0.1)
    jobs = make(tmp_path, "model.after_backbone.keep_ratio=0.3")

    def press():
        while not (tmp_path / "up").exists():
            time.sleep(0.02)
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_jobs(jobs)
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert ended.exists()


@pytest.mark.skipif(sys.platform != "linux", reason=NOT_LINUX)
def test_a_killed_parent_takes_its_run_along(tmp_path):
    """Nobody can tidy up after SIGKILL, so the child must notice by itself."""
    child = "import time, pathlib; pathlib.Path('up').touch(); time.sleep(60)"
    parent = (
        "import subprocess, sys\n"
        "from slimreid.ablation.process import _ending_with_parent\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], preexec_fn=_ending_with_parent())\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    started = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, cwd=tmp_path)
    number = int(started.stdout.readline())
    while not (tmp_path / "up").exists():
        time.sleep(0.02)
    started.kill()
    started.wait()
    deadline = time.monotonic() + 10
    while is_running(number) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(number)


def is_running(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
