"""`run.json`: how a run was started, and every time it was resumed."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from slimreid.errors import DataError
from slimreid.files import write_text
from slimreid.json_files import check_object, parse_json

_PACKAGES = ("slimreid", "torch", "accelerate", "numpy", "safetensors", "pytorch-metric-learning")


@dataclass(frozen=True)
class Surroundings:
    """What equality to the last bit depends on, besides the options."""

    processes: int
    threads: int
    torch: str
    """Version of torch."""
    device: str


@dataclass(frozen=True)
class Start:
    """One start of a run."""

    time: str
    """ISO 8601, UTC."""
    after_epoch: int
    """Epochs done before; 0 = a new run."""
    command: tuple[str, ...]
    """The words after `slimreid`, as they were typed; empty when it was started from Python."""
    surroundings: Surroundings
    platform: str
    versions: dict[str, str]
    dataset: str
    """Fingerprint of the manifest's rows."""
    origin: str = ""
    """What the pixels of the data are, if the manifest says so."""
    git_commit: str | None = None
    """Commit of the source code, with `+changes` where it differed; None outside a checkout."""
    sources: dict[str, str] = field(default_factory=dict)
    """Fingerprints of the models that the run began from (`init_from`) or follows (`teacher`)."""

    def facts(self) -> dict[str, Any]:
        """What the record of the run keeps of it."""
        where = {name: getattr(self.surroundings, name) for name in ("threads", "processes", "device")}
        return {"git_commit": self.git_commit, "versions": self.versions, **where, "platform": self.platform}


@dataclass(frozen=True)
class DataSource:
    """What a run is trained on: fingerprint of its rows, and what the manifest says of its pixels."""

    dataset: str
    origin: str = ""


def new_start(
    command: Sequence[str],
    after_epoch: int,
    surroundings: Surroundings,
    data: DataSource,
    sources: Mapping[str, str],
) -> Start:
    """A start that happens now, on this machine and with this software."""
    return Start(
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        after_epoch=after_epoch,
        command=tuple(command),
        surroundings=surroundings,
        platform=platform.platform(),
        versions={"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        dataset=data.dataset,
        origin=data.origin,
        git_commit=git_commit(),
        sources=dict(sources),
    )


def write_starts(path: Path, seed: int, starts: Sequence[Start]) -> None:
    """Write the starts of a run, the first one first."""
    values = {"seed": seed, "starts": [asdict(start) for start in starts]}
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def read_starts(path: Path) -> tuple[Start, ...]:
    """The starts of a run; none where the file is absent. Raises `DataError` for one that is damaged."""
    try:
        values = check_object(parse_json(path.read_bytes()), {"starts": list})
        return tuple(_start(start) for start in values["starts"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: damaged ({error}); it only tells how the run was started, so remove it and go on"
        ) from None


def _start(values: Any) -> Start:
    """One start; raises `ValueError` for what is none."""
    kinds = {"time": str, "after_epoch": int, "command": list, "surroundings": dict, "platform": str}
    kinds |= {"versions": dict, "dataset": str, "origin": str, "sources": dict}
    found = check_object(values, {**kinds, "git_commit": (str, type(None))})
    where = check_object(
        found["surroundings"], {"processes": int, "threads": int, "torch": str, "device": str}
    )
    texts = [*found["command"], *found["versions"].values(), *found["sources"].values()]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("'command', 'versions' and 'sources' must hold texts")
    known = {name: found[name] for name in Start.__dataclass_fields__}
    surroundings = Surroundings(**{name: where[name] for name in Surroundings.__dataclass_fields__})
    return Start(**{**known, "command": tuple(found["command"]), "surroundings": surroundings})


def git_commit() -> str | None:
    """Commit of the source code that runs, with `+changes` where it differs; None outside a checkout."""
    package = Path(__file__).parents[1]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        return f"{commit}+changes" if git("status", "--porcelain", "--", str(package)) else commit
    except (OSError, subprocess.SubprocessError):
        return None
