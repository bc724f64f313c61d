"""research/int8.py on a model that is exported already."""

from __future__ import annotations

import json

import int8
import pytest


@pytest.mark.usefixtures("ready_graphs")
def test_a_run_is_measured_once_and_shown(exported, tmp_path, monkeypatch, capsys):
    run, manifest = exported.parent / "run", exported.parent / "set" / "manifest.csv"
    words = [str(run), "--data", str(manifest), "--results", str(tmp_path)]
    assert int8.main(words) == 0
    table = capsys.readouterr().out
    found = json.loads((tmp_path / "run.json").read_text())
    ways = found["ways"]
    assert list(ways) == ["torch", "float32", "int8"]
    assert ways["float32"]["map"] == pytest.approx(ways["torch"]["map"], abs=1e-6)
    assert ways["float32"]["cosine"] > max(0.9999, ways["int8"]["cosine"])
    assert ways["int8"]["weight_bytes"] < 0.45 * ways["float32"]["weight_bytes"]
    assert f"| run | 0 | {100 * ways['torch']['map']:.2f} | +0.00 |" in table.replace("−0.00", "+0.00")
    monkeypatch.setattr(int8, "measure", None)  # a second time would fail
    assert int8.main(words) == 0
    assert capsys.readouterr().out == table


def test_seeds_share_a_row():
    def result(seed, torch, exported):
        def way(precisions):
            names = ["a", "a", "b"]
            return {"protocol": "camera", "query_ids": names, "average_precision": precisions}

        more = {"cosine": 0.9, "mean_cosine": 0.95, "float_layers": ["x"] * seed}
        ways = {"torch": way(torch), "float32": way(torch) | more, "int8": way(exported) | more}
        return {"label": "slim", "seed": seed, "ways": ways}

    results = [result(0, [0.5, 0.5, 1.0], [0.5, 0.5, 0.7]), result(1, [0.5, 0.3, 1.0], [0.6, 0.3, 1.0])]
    lines = int8.markdown(results).splitlines()
    assert len(lines) == 2 + 3
    assert lines[2].startswith("| slim | 0 | 66.67 | +0.00 | 56.67 | −10.00 |")
    assert lines[4].startswith("| slim | all 2 | 63.33 | +0.00 | 60.00 | −3.33 |")
    assert lines[4].endswith("| 0 to 1 | 0.9000 | 0.9500 |")
