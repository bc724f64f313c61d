"""What the files of the page hold: words in both languages, nothing from elsewhere, text only as text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import slimreid.serve
from slimreid.modalities import MODALITIES
from slimreid.visual.style import LOOKS

PAGE = Path(slimreid.serve.__file__).parent / "page"
SCRIPTS = sorted(PAGE.rglob("*.js"))
STYLES = sorted(PAGE.rglob("*.css"))
ENTRY = re.compile(r'^  (?:"([^"]+)"|(\w+)): (.+),$', re.M)
"""A line of a table of words: key and value."""


def words(language: str) -> dict[str, str]:
    text = (PAGE / "words" / f"{language}.js").read_text(encoding="utf-8")
    found = {quoted or plain: value for quoted, plain, value in ENTRY.findall(text)}
    lines = [line for line in text.splitlines() if line.startswith("  ")]
    assert len(found) == len(lines), "a line is no entry, or a key is there twice"
    return found


def code() -> str:
    """All scripts but the tables of words."""
    return "\n".join(path.read_text(encoding="utf-8") for path in SCRIPTS if path.parent.name != "words")


def placeholders(value: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", value))


def test_both_languages_have_the_same_keys_and_placeholders():
    english, chinese = words("en"), words("zh")
    assert list(english) == list(chinese)
    for key, value in english.items():
        assert placeholders(value) == placeholders(chinese[key]), key


def test_every_key_that_is_used_has_words_and_every_key_is_used():
    english = words("en")
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    literal = set(re.findall(r'\b(?:t|parts|working)\((?:[^"`\n;]*\? )?"([^"]+)"', code()))
    literal |= set(re.findall(r'data-t(?:-label)?="([^"]+)"', html))
    assert literal <= set(english)
    built = [re.escape(stem) + "[^.]+$" for stem in re.findall(r"`([a-z]+\.)\$\{", code())]
    mentioned = set(re.findall(r'"([a-z]+(?:\.\w+)*)"', code()))
    for key in english:
        known = key in literal or key in mentioned or any(re.match(pattern, key) for pattern in built)
        assert known, f"nobody says {key}"


def test_no_visible_text_is_written_into_the_page_itself():
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    body = re.sub(r"<noscript>.*</noscript>", "", html[html.index("<body>") :], flags=re.S)
    body = re.sub(r'<(span|option)[^>]*(?:translate="no"|lang=)[^>]*>[^<]*</\1>', "", body)
    assert re.sub(r"<[^>]+>", "", body).strip() == ""


def test_scripts_make_elements_from_text_alone():
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "DOMParser",
    ):
        assert word not in code(), word


@pytest.mark.parametrize("path", [*SCRIPTS, *STYLES, PAGE / "index.html"], ids=lambda p: p.name)
def test_nothing_is_loaded_from_elsewhere_and_nothing_is_inline(path):
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//[a-z0-9-]+\.[a-z]{2,}/|@import|url\(", text)
    assert not re.search(r'<script(?![^>]*\bsrc=)|<style|\sstyle="|\son\w+="|setAttribute\("style"', text)


def test_the_colours_are_those_of_the_report():
    text = (PAGE / "styles" / "base.css").read_text(encoding="utf-8")
    blocks = re.findall(r"color-scheme: (light|dark);\n(.*?)\}", text, flags=re.S)
    assert [name for name, _ in blocks] == ["light", "dark", "dark"]
    for name, block in blocks:
        found = dict(re.findall(r"--([a-z]+): (#\w+);", block))
        wanted = {key: value for key, value in LOOKS[name].colours().items() if not key.startswith("series")}
        assert wanted.items() <= found.items(), name


def test_files_are_sorted_by_the_words_that_the_command_line_knows():
    text = (PAGE / "files.js").read_text(encoding="utf-8")
    table = re.search(r"ALIASES = \{(.*?)\};", text, flags=re.S)
    assert table
    found = {
        name: re.findall(r'"([\w-]+)"', values)
        for name, values in re.findall(r"(\w+): \[(.*?)\]", table.group(1))
    }
    assert found == {name: list(modality.aliases) for name, modality in MODALITIES.items()}
