"""The command that trains a run again: as it was typed, or from its resolved options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slimreid.config.files import known_keys, load_config
from slimreid.errors import ConfigError, DataError
from slimreid.files import relative_posix
from slimreid.runs.folder import RunFolder
from slimreid.runs.identity import deciding_options

MANIFEST, INIT_FROM, TEACHER = "data.manifest", "train.init_from", "train.teacher"


@dataclass(frozen=True)
class Typed:
    """A `train` command taken apart: its config files, and the options over them."""

    files: tuple[str, ...]
    options: Mapping[str, str]

    def words(self) -> list[str]:
        """The words after `slimreid`."""
        files = list(self.files) if len(self.files) == 1 else [w for f in self.files for w in ("--config", f)]
        return ["train", *files, *(word for key, text in self.options.items() for word in (f"--{key}", text))]


def train_words(run: RunFolder, places: Mapping[str, str], out: str) -> list[str]:
    """The words after `slimreid` that train a run again.

    Args:
        run: A run with its config.
        places: Options that name data and models -> where these lie now.
        out: Folder for the new run.

    Returns:
        The command as it was typed, where that still leads to the same options; otherwise one that reads the
        resolved options from the run's folder.
    """
    typed = _typed(run)
    config = run.config()
    if typed is None or config is None:
        words = ["train", "--config", shown_path(run.config_file)]
    else:
        words = typed.words()
        named = {MANIFEST: config.data.manifest}
        named |= {INIT_FROM: config.train.init_from or "", TEACHER: config.train.teacher or ""}
        places = {**{key: shown_path(Path(place)) for key, place in named.items() if place}, **places}
    return [*words, *(word for key, place in places.items() for word in (f"--{key}", place)), "--out", out]


def _typed(run: RunFolder) -> Typed | None:
    """The command that began a run, without places; None where it is unknown or means something else now."""
    try:
        starts = run.starts()
        typed = take_apart(starts[0].command) if starts else None
        config = run.config()
        if typed is None or config is None:
            return None
        again = load_config(typed.files, [f"{key}={text}" for key, text in typed.options.items()])
    except (ConfigError, DataError):
        return None
    kept = {key: text for key, text in typed.options.items() if key not in (MANIFEST, INIT_FROM, TEACHER)}
    same = deciding_options(again) == deciding_options(config) and again.seed == config.seed
    return Typed(typed.files, kept) if same else None


def take_apart(command: Sequence[str]) -> Typed | None:
    """Config files and options of a `train` command; None for any other, or one with options of DeMo."""
    if not command or command[0] != "train":
        return None
    files: list[str] = []
    options: dict[str, str] = {}
    words = iter(command[1:])
    for word in words:
        key, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            files.append(word)
            continue
        text = text if equals else next(words, "")
        if key == "config":
            files.append(text)
        elif key in known_keys():
            options[key] = text
        elif key not in ("out", "resume"):
            return None
    return Typed(tuple(files), options)


def shown_path(path: Path) -> str:
    """A path as a person would type it here."""
    near = relative_posix(path, Path.cwd())
    return path.as_posix() if near.startswith("../..") else near
