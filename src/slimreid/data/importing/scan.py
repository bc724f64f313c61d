"""Which image files of a folder belong to a dataset, and what their paths say.

Paths are read by templates, such as `{split}/{modality}/{identity}_cam{camera}_{}`. A field `{name}` matches
any text within one path part, as short as possible; `{name:regex}` matches the regular expression; `{}`
matches anything within a part and is not kept; text outside braces stands for itself. A template may end in
a suffix such as `.jpg`, and is then for such files only.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slimreid.data.importing.layouts import Layout
from slimreid.data.importing.modality_names import NamedPath, read_name
from slimreid.data.manifest import Split
from slimreid.errors import ConfigError, DataError
from slimreid.files import IMAGE_SUFFIXES, natural_key, printable, require_utf8
from slimreid.modalities import canonical, find_modality

FIELDS = ("split", "modality", "identity", "camera", "scene")
_STRANGE, _LEFT_OUT = "strange", "left out"
_DEEP, _MANY = 3, 6
"""Levels of folders, and entries of each, that an error message shows."""


def image_files(root: Path, only: Collection[str] | None = None) -> Iterator[Path]:
    """Image files below `root` (inside its sub-folders `only`, if given), sorted by path.

    Hidden files and folders are left out. Raises `DataError` for a name that is not UTF-8: neither a
    manifest nor a file of embeddings could hold it.
    """
    for folder, folders, files in os.walk(root):
        if only is not None and Path(folder) == root:
            folders[:] = [name for name in folders if name in only]
            files = []
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=natural_key)
        for name in sorted(files, key=natural_key):
            path = Path(folder, name)
            if path.suffix.lower() in IMAGE_SUFFIXES and not name.startswith("."):
                require_utf8(path)
                yield path


def describe_tree(root: Path) -> str:
    """The first few folders and files below `root`, indented, for error messages."""
    lines: list[str] = []

    def walk(folder: Path, level: int) -> None:
        entries = sorted(folder.iterdir(), key=lambda p: (p.is_file(), natural_key(p.name)))
        for entry in entries[:_MANY]:
            lines.append(f"{'  ' * (level + 1)}{printable(entry.name)}{'/' if entry.is_dir() else ''}")
            if entry.is_dir() and level + 1 < _DEEP:
                walk(entry, level + 1)
        if len(entries) > _MANY:
            lines.append(f"{'  ' * (level + 1)}... and {len(entries) - _MANY} more")

    walk(root, 0)
    return "\n".join(lines) or "  (nothing)"


@dataclass(frozen=True)
class Template:
    """A compiled path template."""

    text: str
    pattern: re.Pattern[str]
    suffix: str = ""
    """Suffix that files must have, in lower case; '' = that of any image."""

    @property
    def fields(self) -> frozenset[str]:
        """Names of the fields that are kept."""
        return frozenset(self.pattern.groupindex)

    def match(self, relative: str, suffix: str = "") -> re.Match[str] | None:
        """Match a path (forward slashes) without its suffix as a whole."""
        if self.suffix and self.suffix != suffix.lower():
            return None
        return self.pattern.fullmatch(relative)


def compile_template(text: str) -> Template:
    """Compile a template; raises `ConfigError` for unknown fields, repeated fields or bad braces."""
    pattern = ""
    seen: set[str] = set()
    at = 0
    suffix = next((s for s in IMAGE_SUFFIXES if text.lower().endswith(s)), "")
    end_of_name = len(text) - len(suffix)
    while at < end_of_name:
        if text[at] == "}":
            raise ConfigError(f"template '{text}': '}}' without '{{' at position {at}")
        if text[at] != "{":
            pattern += re.escape(text[at])
            at += 1
            continue
        end = _closing_brace(text, at)
        name, _, regex = text[at + 1 : end].partition(":")
        at = end + 1
        if not name:
            pattern += f"(?:{regex or '[^/]*?'})"
            continue
        if name not in FIELDS and not name.startswith("x_"):
            raise ConfigError(
                f"template '{text}': unknown field '{name}'; use {', '.join(FIELDS)}, x_... or {{}}"
            )
        if name in seen:
            raise ConfigError(f"template '{text}': field '{name}' appears twice; write {{}} for the second")
        seen.add(name)
        pattern += f"(?P<{name}>{regex or '[^/]+?'})"
    if "identity" not in seen:
        raise ConfigError(f"template '{text}': needs at least the field {{identity}}")
    try:
        return Template(text, re.compile(pattern), suffix)
    except re.error as error:
        raise ConfigError(f"template '{text}': {error}") from None


def _closing_brace(text: str, start: int) -> int:
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ConfigError(f"template '{text}': '{{' at position {start} is never closed")


@dataclass(frozen=True)
class SourceFile:
    """An image file of the source, taken apart."""

    path: Path
    key: str
    """The same for all modalities of one sample."""
    fields: Mapping[str, str]
    modality: str | None
    """None where the path names none."""
    splits: tuple[Split, ...]
    unclear: str = ""
    """A word in the path that may mean two modalities."""


@dataclass
class Scan:
    """What was found below a folder."""

    flat: bool
    """Whether the source has no split folders, so that all rows are marked `train`."""
    fields: frozenset[str]
    """What the paths say: split, modality, identity, camera, ..."""
    files: list[SourceFile] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    """Images whose path does not fit the layout."""


def scan_source(
    source: Path, layout: Layout, declared: tuple[str, ...] | None, identities: int | None = None
) -> Scan:
    """All image files below `source` that fit a layout; stops after so many `identities`, if given.

    Raises `DataError` for a word in place of a modality that means none.
    """
    root, template = source, compile_template(layout.template)
    if layout.template.startswith("{split}/"):
        for sub in layout.roots:
            if any((source / sub / folder).is_dir() for folder in layout.splits):
                root = source / sub
                break
        else:
            template = compile_template(layout.template.removeprefix("{split}/"))
    scan = Scan("split" not in template.fields, template.fields)
    seen: set[str] = set()
    for path in image_files(root, layout.splits if template.text.startswith("{split}/") else None):
        file = _read_path(path, root, template, layout, declared, lenient=identities is not None)
        if isinstance(file, SourceFile):
            scan.files.append(file)
            seen.add(file.fields["identity"])
        elif file == _STRANGE:
            scan.strangers.append(path.relative_to(root).as_posix())
        if len(seen) == identities:
            break
    return scan


def _read_path(
    path: Path,
    root: Path,
    template: Template,
    layout: Layout,
    declared: tuple[str, ...] | None,
    lenient: bool,
) -> SourceFile | str:
    """The file taken apart, or why it is not one of the dataset."""
    relative = unicodedata.normalize("NFC", path.relative_to(root).with_suffix("").as_posix())
    named = NamedPath(layout.modality, relative)
    if layout.named_by_file and "modality" not in template.fields:
        # The suffix is cut off again when the name is read, so it must not take a part of the name.
        named = read_name(f"{relative}.x", declared or ())
    match = template.match(named.key, path.suffix)
    if match is None:
        return _STRANGE
    fields = match.groupdict()
    splits = layout.splits.get(fields["split"]) if "split" in fields else ("train",)
    if splits is None:
        return _STRANGE
    if fields["identity"] in layout.ignore:
        return _LEFT_OUT
    modality, key = named.modality, named.key
    if "modality" in fields:
        word = fields["modality"]
        modality = word if declared and word in declared else find_modality(word)
        if modality is None and declared is None and not lenient:
            raise DataError(_unknown_modality(path, word))
        if modality is None:
            return _LEFT_OUT
        start, end = match.span("modality")
        key = f"{key[:start]}*{key[end:]}"
    if declared and modality and modality not in declared:
        return _LEFT_OUT
    return SourceFile(path, key, fields, modality, splits, named.unclear)


def _unknown_modality(path: Path, word: str) -> str:
    try:
        hint = canonical(word)
    except ConfigError as error:
        hint = str(error)
    return f"{path}: {hint}; rename the folder, or name all your modalities: --modalities rgb,{word.lower()}"
