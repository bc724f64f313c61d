"""What the option parser complains of, in plain words: which option, what is wrong with it, what is meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_UNKNOWN = (
    re.compile(r"Group '(?P<group>[^']+)' does not accept option '(?P<key>[^']+)'"),
    re.compile(r"Option '(?P<key>[^']+)' is not accepted"),
    re.compile(r"unrecognized arguments: --(?P<key>[^\s=]+)"),
)
_KEY = re.compile(r'Parser key "(?P<key>[^"]+)"')
_EXPECTED = re.compile(
    r"Expected an? (?:typing\.Literal\[(?P<choices>[^\]]*)\]|<class '(?P<type>\w+)'>"
    r"|tuple with (?P<length>\d+) elements)(?:\. Got value: (?P<got>.*))?"
)
_GIVEN = re.compile(r"Given value: (?P<value>.*)")
_COMMAND = re.compile(r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<choices>[^)]*)\)")
_REQUIRED = re.compile(r"(?P<start>the following arguments are required: )(?P<names>.+)")
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "tuple": "a list such as [a,b]",
    "list": "a list such as [a,b]",
    "dict": "a table such as {a: b}",
}


def explain(message: str, known: Sequence[str]) -> str:
    """The parser's complaint in plain words, with the nearest of the `known` keys where one is unknown.

    What is not recognised stays as it is.
    """
    for pattern in _UNKNOWN:
        if match := pattern.search(message):
            groups = match.groupdict()
            key = f"{groups['group']}.{groups['key']}" if "group" in groups else groups["key"]
            return f"unknown option '{key}'{nearest(key, known)}"
    if match := _COMMAND.search(message):
        word, choices = match["word"], _words(match["choices"])
        return f"unknown command '{word}'{nearest(word, choices) or '; there are ' + ', '.join(choices)}"
    if match := _REQUIRED.search(message):
        names = [name.rpartition(".")[2] for name in match["names"].split(", ")]
        return match["start"] + ", ".join(names)
    return _wrong_value(message) or message


def _wrong_value(message: str) -> str | None:
    """`train.epochs: 'many' is not a whole number`; None for a complaint of another kind."""
    key = _KEY.search(message)
    wanted = [match for match in _EXPECTED.finditer(message) if match["type"] != "NoneType"]
    given = _GIVEN.search(message)
    value = next((m["got"] for m in wanted if m["got"] is not None), given and given["value"])
    if key is None or value is None or not wanted:
        return None
    if choices := [word for match in wanted for word in _words(match["choices"] or "")]:
        return f"{key['key']}: '{value}' is not one of {', '.join(choices)}{nearest(value, choices)}"
    kinds = [_TYPES.get(m["type"] or "") or (m["length"] and f"a list of {m['length']}") for m in wanted]
    return f"{key['key']}: '{value}' is not {' or '.join(k for k in kinds if k)}" if all(kinds) else None


def _words(text: str) -> list[str]:
    """The quoted words of a list, or all of them where none is quoted."""
    return re.findall(r"'([^']*)'", text) or [word.strip() for word in text.split(",") if word.strip()]


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean '...'?` where one of the known words is near, else nothing."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""
