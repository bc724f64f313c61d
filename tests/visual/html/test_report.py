"""The report: what it says, that it stands alone, and how it looks in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from markupsafe import Markup

from slimreid.cli.app import main
from slimreid.errors import DataError
from slimreid.evaluation.reports.evaluate import read_evaluation
from slimreid.inference.model_card import CHOSEN_ON_TEST
from slimreid.visual.html.figures import missing_section, thresholds_table
from slimreid.visual.html.models import headline_table, selection_notes
from slimreid.visual.html.parts import Section, Table, environment, render
from slimreid.visual.html.report import write_report
from slimreid.visual.html.run import gather_run, run_names
from support.models import write_random_model
from support.runs import write_set

OUTSIDE = re.compile(
    r"""(?:src|href)\s*=\s*["'](?!data:|#)|url\((?!#)|@import|<iframe|<link[^>]+stylesheet"""
)


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
    assert "best on the validation identities" in shown
    assert f"chance {100 * result.chance_map:.1f}" in shown


def test_an_evaluation_is_used_again_while_it_belongs_to_the_run(reported, capsys):
    file = reported / "tiny" / "evaluation" / "evaluation.json"
    before = file.stat().st_mtime_ns
    gather_run(reported / "tiny", "tiny")
    assert file.stat().st_mtime_ns == before
    values = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**values, "key": "of other weights"}), encoding="utf-8")
    gather_run(reported / "tiny", "tiny")
    assert read_evaluation(file).key == values["key"], "made again"
    file.write_text(file.read_text(encoding="utf-8")[:200], encoding="utf-8")
    gather_run(reported / "tiny", "tiny")
    assert read_evaluation(file).fingerprint == values["fingerprint"], "a damaged one too"


def test_the_page_stands_alone(text):
    assert not OUTSIDE.search(re.sub(r"data:[^\"')]+", "data:", text))
    assert len(text) < 3_000_000


def test_every_part_is_there_and_has_a_heading(text):
    keys = re.findall(r'<section id="(\w+)"', text)
    assert keys == [
        "result", "retrieval", "ranks", "patches", "missing", "verification", "map", "training", "provenance",
        "reproduce",
    ]  # fmt: skip
    assert re.findall(r'<a href="#(\w+)">', text) == keys
    assert text.count("<h1>") == 1
    assert text.count("<h2") == len(keys)


def test_pictures_tell_in_words_what_they_show(text):
    figures = re.findall(r"<svg [^>]*>", text)
    assert len(figures) == 7
    assert all(re.search(r'role="img" aria-label="[^"]{20,}"', figure) for figure in figures)
    photos = re.findall(r"<img [^>]*>", text)
    assert len(photos) > 100
    assert all(re.search(r'alt="[^"]+"', photo) for photo in photos)
    told = re.findall(r'<ol aria-label="Rank list, [^"]*"', text)
    assert len(told) == 7
    assert all("among the first" in words for words in told)


def test_a_choice_on_the_test_set_is_marked(trained_run, tmp_path):
    run = gather_run(shutil.copytree(trained_run, tmp_path / "run"), "run")
    chosen = replace(run, evaluation=replace(run.evaluation, select_on="test"))
    assert selection_notes([run]) == []
    assert selection_notes([chosen]) == [("run", CHOSEN_ON_TEST)]
    for given, name in ((run, "run"), (chosen, "⚠ run")):
        assert headline_table([given], {}).rows[0][0] == name


def test_a_model_of_one_modality_without_its_run(tmp_path):
    """No curves, no matrix of modalities, no kept patches: those sections are left out, the rest is there."""
    manifest = write_set(tmp_path / "set")
    options = ("model.reduction=none", "model.fusion=none", "data.modalities=[rgb]")
    write_random_model(tmp_path / "bare", manifest, *options, modalities=("rgb",))
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "bare" / "model.safetensors"), "--out", str(out)]) == 0
    keys = re.findall(r'<section id="(\w+)"', out.read_text(encoding="utf-8"))
    assert keys == ["result", "retrieval", "ranks", "verification", "map", "provenance", "reproduce"]


def test_a_model_slimmed_inside_on_other_data(tmp_path):
    """Its patches are shown with a row per stage, and the commands name the data."""
    manifest = write_set(tmp_path / "set")
    write_random_model(tmp_path / "bare", manifest, "model.reduction=in_backbone")
    other = shutil.copytree(tmp_path / "set", tmp_path / "other")
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "bare"), "--out", str(out), "--data", str(other)]) == 0
    text = out.read_text(encoding="utf-8")
    assert '<section id="patches"' in text
    assert "there is a row per stage" in text
    named = re.findall(r">(slimreid (?:evaluate|report) [^<]*)<", text)
    assert len(named) == 2
    assert all("--data" in line and "other/manifest.csv" in line for line in named)


def test_chance_has_a_range_where_samples_lack_modalities(tmp_path):
    manifest = write_set(tmp_path / "set", missing=True)
    write_random_model(tmp_path / "bare", manifest)
    run = gather_run(tmp_path / "bare", "bare")
    matrix = run.evaluation.missing["both"]
    low, high, whole = (f"{100 * v:.1f}" for v in (matrix.chances.min(), matrix.chances.max(), matrix.chance))
    assert low != high
    assert f"(chance {low} to {high}, complete {whole})" in missing_section([run]).body


def test_the_mixed_gallery_is_shown_beside_the_uniform_cells(reported, text):
    mixed = read_evaluation(reported / "tiny" / "evaluation").missing["both"].mixed
    section = text.partition('<section id="missing"')[2].partition("</section>")[0]
    assert "Mixed gallery" in section
    for share in (mixed.map, mixed.uniform_map, mixed.rank1, mixed.equal_share, mixed.equal_chance):
        assert f"<td>{100 * share:.1f}</td>" in section


def test_thresholds_have_the_digits_they_need(reported):
    run = gather_run(reported / "tiny", "tiny")
    roc = replace(run.scores.roc, thresholds=run.scores.roc.thresholds * 1e-6)
    scores = replace(run.scores, result=replace(run.scores.result, roc=roc))
    features = {**run.evaluation.features, run.evaluation.main: scores}
    packed = replace(run, evaluation=replace(run.evaluation, features=features))
    shown = [float(row[2]) for row in thresholds_table([packed]).rows]
    assert shown == [point.threshold for point in scores.operating_points]


def test_wrong_input_is_refused_in_a_line(trained_run, tmp_path, capsys):
    for words, told in [
        (["report", str(tmp_path / "nothing")], "no such model"),
        (["report", str(trained_run), "--out", "report.pdf"], "end its name in .html"),
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


HOSTILE = '甲 <img src=x onerror="document.title=1"> $x_{'


@pytest.fixture(scope="module")
def compared(trained_run, tmp_path_factory) -> Path:
    """The page of one run under two names, one of them hostile and partly Chinese."""
    folder = tmp_path_factory.mktemp("compared")
    run = gather_run(shutil.copytree(trained_run, folder / "run"), HOSTILE)
    write_report([run, replace(run, name="_second")], folder / "report.html", speeds={})
    return folder / "report.html"


def test_names_are_text_everywhere(compared):
    text = compared.read_text(encoding="utf-8")
    assert "<img src=x" not in text
    assert text.count("甲 &lt;img src=x onerror=") > 10
    figures = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
    assert any(">甲 &lt;img" in figure for figure in figures), "in legends, not as mathematics"
    assert any("_second<" in figure for figure in figures), "an underscore does not hide a run"


def test_equal_facts_are_told_once(compared):
    provenance = compared.read_text(encoding="utf-8").partition('<section id="provenance"')[2]
    provenance = provenance.partition("</section>")[0]
    assert provenance.count("fingerprint") == 1
    assert "Where the runs differ" not in provenance


@pytest.mark.browser
@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_sticks_out_of_the_page(compared, browser_page, width):
    page, complaints = browser_page
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(compared.as_uri())
    assert page.title().startswith("甲 <img"), "nothing was run"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = page.evaluate(
        """[...document.querySelectorAll(".scroll")].filter(
            (box) => box.scrollWidth > box.clientWidth + 1 && !box.classList.contains("wide")).length"""
    )
    assert cut == 0, "what goes on beyond the edge says so"
    pictures = page.locator(".ranks ol").first.bounding_box()
    inner = page.locator("main h1").bounding_box()
    assert pictures["width"] == pytest.approx(inner["width"], abs=2), "rank lists are as wide as the page"
    commands = page.locator("#reproduce pre").first
    assert commands.evaluate("(box) => box.scrollWidth <= box.clientWidth"), "long commands are wrapped"
    lines = commands.inner_text().splitlines()
    assert len(lines) > 2
    assert all(line.startswith("slimreid ") for line in lines), "and copied as one line each"
    assert complaints == []


@pytest.mark.browser
def test_a_wide_table_scrolls_and_says_so(browser_page, tmp_path):
    cameras = [f"camera {k}" for k in range(30)]
    wide, narrow = Table(cameras, [cameras]), Table(["a"], [["b"]])
    source = '{% import "parts.html" as parts %}{{ parts.table(wide) }}{{ parts.table(narrow) }}'
    body = Markup(environment().from_string(source).render(wide=wide, narrow=narrow))
    path = tmp_path / "page.html"
    section = Section("s", "Section", "S", body)
    path.write_text(
        render("report.html", title="t", lead="", sections=[section], footer=""), encoding="utf-8"
    )
    page, _ = browser_page
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    hints = page.evaluate(
        """[...document.querySelectorAll(".scroll")].map((box) => getComputedStyle(box, "::after").content)"""
    )
    assert "scroll sideways" in hints[0]
    assert hints[1] == "none"
    box = page.locator(".scroll").first
    box.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('.scroll').scrollLeft > 0")
