"""The report: what it says, that it stands alone, and how it looks in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from evaluation.model_cases import write_random_model
from slimreid.cli import main
from slimreid.errors import DataError
from slimreid.evaluation.evaluation import read_evaluation
from slimreid.visual.report_html import Section, element, escape, page, table, tabs
from slimreid.visual.report_run import gather_run, run_names
from slimreid.visual.report_sections import missing_section
from training.run_cases import write_set

OUTSIDE = re.compile(r"""(?:src|href)\s*=\s*["'](?!data:|#)|url\(|@import|<iframe|<link[^>]+stylesheet""")


@pytest.fixture(scope="session")
def reported(trained_run, tmp_path_factory) -> Path:
    """A folder with a copy of a tiny run that was never evaluated, and its report."""
    folder = tmp_path_factory.mktemp("report")
    shutil.copytree(trained_run, folder / "tiny", ignore=shutil.ignore_patterns("evaluation*", "pictures"))
    assert main(["report", str(folder / "tiny"), "--out", str(folder / "report.html")]) == 0
    return folder


@pytest.fixture(scope="session")
def text(reported) -> str:
    return (reported / "report.html").read_text(encoding="utf-8")


def test_a_run_that_was_not_evaluated_is_evaluated_first(reported, text):
    evaluation = read_evaluation(reported / "tiny" / "evaluation")
    result = evaluation.scores.result
    assert evaluation.missing, "with the missing-modality matrix"
    shown = re.sub(r"<[^>]+>", " ", text)
    assert f"{100 * result.map:.1f}" in shown
    assert (
        f"{100 * evaluation.scores.interval.low:.1f} to {100 * evaluation.scores.interval.high:.1f}" in shown
    )
    assert "real rgb; simulated nir/tir" in shown
    assert "best epoch on the validation identities" in shown
    assert f"chance {100 * result.chance_map:.1f}" in shown


def test_an_evaluation_is_used_again_while_it_belongs_to_the_run(reported, capsys):
    file = reported / "tiny" / "evaluation" / "evaluation.json"
    before = file.stat().st_mtime_ns
    gather_run(reported / "tiny", "tiny")
    assert file.stat().st_mtime_ns == before
    values = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**values, "fingerprint": "of other weights"}), encoding="utf-8")
    gather_run(reported / "tiny", "tiny")
    assert read_evaluation(file).fingerprint == values["fingerprint"], "made again"
    file.write_text(file.read_text(encoding="utf-8")[:200], encoding="utf-8")
    gather_run(reported / "tiny", "tiny")
    assert read_evaluation(file).fingerprint == values["fingerprint"], "a damaged one too"


def test_the_page_stands_alone(text):
    assert not OUTSIDE.search(re.sub(r"data:[^\"')]+", "data:", text))
    assert "http://" not in re.sub(r"data:[^\"')]+", "data:", text)
    assert len(text) < 3_000_000


def test_every_part_is_there_and_has_a_heading(text):
    keys = re.findall(r'<section id="(\w+)"', text)
    assert keys == [
        "result", "origin", "training", "retrieval", "found", "patches", "missing", "verification", "map",
        "reproduce",
    ]  # fmt: skip
    assert re.findall(r'<a href="#(\w+)">', text) == keys
    assert text.count("<h1>") == 1
    assert text.count("<h2") == len(keys)


def test_pictures_tell_in_words_what_they_show(text):
    pictures = re.findall(r"<img [^>]*>", text)
    assert len(pictures) > 20
    assert all(re.search(r'alt="[^"]{20,}"', picture) for picture in pictures)
    for kind in ("by-day", "by-night"):
        assert sum(f'class="{kind}"' in picture for picture in pictures) == len(pictures) / 2


def test_a_choice_on_the_test_set_is_marked(trained_run, tmp_path, monkeypatch):
    from dataclasses import replace

    from slimreid.visual.report_tables import headline_table, selection_note

    run = gather_run(shutil.copytree(trained_run, tmp_path / "run"), "run")
    assert "too good" not in selection_note([run])
    chosen = replace(run, evaluation=replace(run.evaluation, select_on="test"))
    assert "chosen on the test set, so its figures are too good" in selection_note([chosen])
    assert "⚠" in headline_table([chosen])
    assert "⚠" not in headline_table([run])


def test_a_model_of_one_spectrum_without_its_run(tmp_path):
    """No curves, no matrix of spectra, no kept patches: those sections are left out, the rest is there."""
    manifest = write_set(tmp_path / "set")
    options = ("model.fusion=none", "data.modalities=[rgb]")
    write_random_model(tmp_path / "bare", manifest, *options, modalities=("rgb",))
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "bare" / "model.safetensors"), "--out", str(out)]) == 0
    keys = re.findall(r'<section id="(\w+)"', out.read_text(encoding="utf-8"))
    assert keys == ["result", "origin", "retrieval", "found", "verification", "map", "reproduce"]


def test_a_model_slimmed_inside_on_other_data(tmp_path):
    """Its patches are shown with a row per stage, and the commands name the data."""
    manifest = write_set(tmp_path / "set")
    write_random_model(tmp_path / "bare", manifest, "model.slimming.where=inside")
    other = shutil.copytree(tmp_path / "set", tmp_path / "other")
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "bare"), "--out", str(out), "--data", str(other)]) == 0
    text = out.read_text(encoding="utf-8")
    assert '<section id="patches"' in text
    assert "a row per stage" in text
    named = [line for line in text.splitlines() if "slimreid evaluate" in line or "slimreid report" in line]
    assert len(named) == 2
    assert all("--data" in line and "other/manifest.csv" in line for line in named)


def test_chance_has_a_range_where_samples_lack_spectra(tmp_path):
    manifest = write_set(tmp_path / "set", missing=True)
    write_random_model(tmp_path / "bare", manifest)
    run = gather_run(tmp_path / "bare", "bare")
    matrix = run.evaluation.missing["both"]
    low, high, whole = (f"{100 * v:.1f}" for v in (matrix.chances.min(), matrix.chances.max(), matrix.chance))
    assert low != high
    assert f"(chance {low} to {high}, complete {whole})" in missing_section([run]).body


def test_wrong_input_is_refused_in_a_line(trained_run, tmp_path, capsys):
    for words, told in [
        (["report", str(tmp_path / "nothing")], "no such model"),
        (["report", str(trained_run), "--out", "report.pdf"], "call it .html"),
        (["report", str(trained_run), str(trained_run)], "given twice"),
        (
            ["report", str(tmp_path / "nothing"), "--out", str(Path(__file__) / "r.html")],
            "choose another place",
        ),
        (["report"], "required"),
    ]:
        assert main(words) != 0
        complaint = capsys.readouterr().err
        assert told in complaint
        assert "Traceback" not in complaint


def test_runs_are_named_by_what_tells_them_apart():
    assert run_names([Path("runs/a"), Path("runs/b")]) == ["a", "b"]
    assert run_names([Path("x/run"), Path("y/run")]) == ["x/run", "y/run"]
    assert run_names([Path("x/run/model.safetensors")]) == ["run"]
    with pytest.raises(DataError, match="given twice"):
        run_names([Path("a"), Path("a")])


def test_text_is_escaped_and_html_is_not():
    assert escape("<b>") == "&lt;b&gt;"
    assert escape(element("b", "<", class_='a"b')) == '<b class="a&quot;b">&lt;</b>'
    found = table(["run", "<mAP>"], [["<x>", 1]], "a & b")
    assert "<x>" not in found
    assert "&lt;mAP&gt;" in found
    assert "a &amp; b" in found


def test_the_best_cells_of_a_column_are_bold():
    found = table(["run", "mAP"], [["a", "1"], ["b", "2"]], best={1: max}, values={1: [1.0, 2.0]})
    assert '<td class="best">2</td>' in found
    assert found.count("best") == 1
    assert "best" not in table(["run", "mAP"], [["a", "1"]], best={1: max}, values={1: [1.0]})


@pytest.mark.browser
def test_without_scripts_and_for_keyboards(browser_page, tmp_path):
    body = tabs("t", {"one": element("p", "first"), "two": element("p", "second")})
    path = tmp_path / "page.html"
    path.write_text(page("A <title>", [Section("s", "Section", "S", body)], "lead", "end"), encoding="utf-8")
    page_, complaints = browser_page
    page_.goto(path.as_uri())
    first, second = page_.get_by_role("tab", name="one"), page_.get_by_role("tab", name="two")
    assert page_.get_by_text("first").is_visible()
    assert not page_.get_by_text("second").is_visible()
    first.focus()
    page_.keyboard.press("ArrowRight")
    assert page_.get_by_text("second").is_visible()
    assert second.get_attribute("aria-selected") == "true"
    page_.keyboard.press("Home")
    assert page_.get_by_text("first").is_visible()
    page_.emulate_media(media="print")
    assert page_.get_by_text("first").is_visible()
    assert page_.get_by_text("second").is_visible()
    assert complaints == []
