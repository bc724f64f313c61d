"""The first minutes, and the report of two runs in a real browser."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from slimreid.cli.app import main
from slimreid.cli.quickstart import FAST, FULL, MODELS, first_search, model_config
from slimreid.config.recipes import recipe_path, recipes_folder
from slimreid.inference import load as loading
from support.exported import write_exported_model
from support.runs import write_set


@pytest.fixture(scope="session")
def quickstarted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "minutes"
    assert main(["quickstart", "--fast", "--out", str(folder)]) == 0
    return folder


def test_everything_is_made(quickstarted):
    for name in ("world/manifest.csv", "sheet.html", "sheet.png", "report.html"):
        assert (quickstarted / name).is_file(), name
    for model in MODELS:
        assert (quickstarted / model / "model.safetensors").is_file()
        assert (quickstarted / model / "evaluation" / "evaluation.json").is_file()


def test_a_second_call_makes_nothing_again_and_ends_with_table_and_report(quickstarted, capsys):
    made = [
        quickstarted / "report.html",
        quickstarted / "speed.json",
        quickstarted / "world" / "manifest.csv",
    ]
    made += [quickstarted / model / "model.safetensors" for model in MODELS]
    before = [path.stat().st_mtime_ns for path in made]
    capsys.readouterr()
    assert main(["quickstart", "--fast", "--out", str(quickstarted)]) == 0
    assert [path.stat().st_mtime_ns for path in made] == before
    told = capsys.readouterr().out
    for model in MODELS:
        assert re.search(rf"│ {model} +│ +\d+\.\d │ +\d+\.\d–\d+\.\d │", told), told
    assert re.search(r"mAP with ┃ +r ┃ +n ┃ +t ┃ +rn ┃ +rt ┃ +nt ┃ +rnt", told)
    assert re.search(r"train sdtps .* \d+\.\d s", told), "times per stage"
    assert re.search(r"all modalities: mAP \d+\.\d \(95 % .* for the best subset \(\w+\): ", told)
    assert re.search(r"slim against baseline: mAP [+−]\d.* × the throughput \(vit_s16 at 256×128", told)
    assert told.rstrip().endswith("report.html")


def test_it_goes_on_where_something_is_missing(quickstarted, tmp_path, monkeypatch):
    folder = shutil.copytree(quickstarted, tmp_path / "copy")
    (folder / "sdtps" / "evaluation" / "evaluation.json").unlink()
    before = (folder / "sdtps" / "model.safetensors").stat().st_mtime_ns
    before_threads, threads = torch.get_num_threads(), []

    def write(_runs, path):
        threads.append(torch.get_num_threads())
        path.write_text("new")

    monkeypatch.setattr("slimreid.cli.quickstart.write_report", write)
    try:
        torch.set_num_threads(2)
        assert main(["quickstart", "--fast", "--out", str(folder)]) == 0
        assert (threads, torch.get_num_threads()) == ([1], 2), "one thread, and only meanwhile"
    finally:
        torch.set_num_threads(before_threads)
    assert (folder / "sdtps" / "evaluation" / "evaluation.json").is_file()
    assert (folder / "report.html").read_text() == "new", "what it shows has changed"
    assert (folder / "sdtps" / "model.safetensors").stat().st_mtime_ns == before


def test_other_options_are_refused_by_name(quickstarted, capsys):
    assert main(["quickstart", "--out", str(quickstarted)]) != 0
    told = capsys.readouterr().err
    assert "holds another dataset" in told
    assert "--out" in told


@pytest.mark.parametrize("size", [FULL, FAST], ids=["full", "fast"])
@pytest.mark.parametrize("model", MODELS)
def test_the_models_are_the_shipped_ones_and_choose_on_val(size, model):
    config = model_config(model, Path("w"), size)
    assert config.model.backbone == "nano"
    assert config.data.manifest == "w/world/manifest.csv"
    assert config.model.fusion == ("none" if model == "baseline" else "mean")
    reductions = {"baseline": "none", "sdtps": "after_backbone", "slim": "in_backbone"}
    assert config.model.reduction == reductions[model]
    assert config.train.teacher == config.train.init_from == ("w/baseline" if model == "slim" else None)
    assert config.train.select_on == "val"
    assert config.train.threads == 1
    assert config.transforms.size == size.world.image_size


def test_shipped_configs_are_found_and_others_are_listed():
    assert recipe_path("synthetic/sdtps").is_relative_to(recipes_folder())
    from slimreid.errors import ConfigError

    with pytest.raises(ConfigError, match=r"no recipe is called 'synthetic/nothing'; .*synthetic/sdtps"):
        recipe_path("synthetic/nothing")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_report_of_two_runs_in_a_real_browser(quickstarted, browser_page, tmp_path, width, scheme):
    report = quickstarted / "report.html"
    assert report.stat().st_size < 6_000_000
    page, complaints = browser_page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto(report.as_uri())
    assert page.title() == "baseline, sdtps and slim on world"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing scrolls sideways"
    page.evaluate("document.querySelectorAll('img').forEach(i => { i.loading = 'eager' })")
    page.wait_for_function("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) > 384) == (scheme == "light")
    widths = page.evaluate(
        "[...document.querySelectorAll('.plot svg')].map(plot => plot.getBoundingClientRect().width)"
    )
    assert len(widths) >= 5
    assert all(100 < shown <= width for shown in widths)
    if width == 1280:
        assert page.locator("#result .scroll.wide").count() == 0, "the figures fit"
    page.screenshot(path=str(tmp_path / "report.png"), full_page=True)
    page.get_by_role("button", name="Dark" if scheme == "light" else "Light").click()
    other = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert other != paper
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert complaints == []


def test_it_searches_other_cameras_and_draws_what_it_found(tmp_path, monkeypatch):
    write_exported_model(tmp_path / "package" / "people-tiny")
    monkeypatch.setattr(loading, "PRETRAINED", tmp_path / "package")
    manifest = write_set(tmp_path / "set", val=False)
    told = first_search(manifest, tmp_path / "search.png")
    who, _, found = told.partition("? ")
    names = found.partition(" among ")[0].split()
    assert who == "who is id9"
    assert len(names) == 5
    assert set(names) <= {"id9", "id10", "id11"}
    assert " among 6 (" in told, "3 identities in the other camera, twice each"
    with Image.open(tmp_path / "search.png") as picture:
        assert picture.width > picture.height
