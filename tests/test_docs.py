"""Commands, links and examples of the documentation are valid."""

import re
import shlex
from pathlib import Path

import pytest

from slimreid.cli import make_parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, *languages):
    return [
        code for language, code in FENCE.findall(page.read_text(encoding="utf-8")) if language in languages
    ]


def commands(page):
    for code in blocks(page, "", "sh", "bash", "console"):
        joined = code.replace("\\\n", " ")
        for line in joined.splitlines():
            if line.startswith("slimreid "):
                yield shlex.split(line, comments=True)[1:]


ALL = [(page.name, words) for page in PAGES for words in commands(page)]


@pytest.mark.parametrize(
    ("page", "words"), ALL, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_commands_exist_with_these_options(page, words, monkeypatch):
    monkeypatch.chdir(ROOT)
    if "--help" in words or words == ["--version"]:
        return
    parser, arguments = make_parser(words)
    parser.parse_args(arguments)


def test_the_readme_has_commands():
    assert any(page == "README.md" for page, _ in ALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_are_there(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, page.name


def test_the_example_of_the_readme_runs():
    (code,) = blocks(ROOT / "README.md", "python")
    values = {}
    exec(code, values)
    assert values["features"].shape == (2, 576)
