"""Jobs on disk: a folder each, with its state and the parts that are not enrolled yet.

A part is what one request brought. It is on disk before the request is answered, and goes when the gallery
has committed it; a service that was killed between the two finds its samples in the gallery, by their hashes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

from slimreid.errors import DataError
from slimreid.files import atomic_write, write_text
from slimreid.json_files import check_object, parse_json
from slimreid.serve.decoding.messages import pack, unpack
from slimreid.serve.enrolment import Labelled
from slimreid.serve.http.uploads import Upload
from slimreid.serve.schemas.enrolling import Labels

_STATE = "job.json"
_PART = re.compile(r"part-([0-9]{6})\.bin")
_ID = re.compile(r"[0-9a-f]{16}")
MOST_PROBLEMS = 20
"""Problems and concerns that are kept of a job."""
_KINDS = {"id": str, "kind": str, "state": str, "by": str, "created": float, "received": int, "enrolled": int}


@dataclass(frozen=True)
class JobState:
    """A job as it is on disk."""

    id: str
    kind: Literal["enrol", "calibrate"]
    by: str
    created: float
    """Seconds since 1970."""
    state: Literal["open", "running", "done", "failed", "cancelled"] = "open"
    labels: Mapping[str, str] = field(default_factory=dict)
    rates: Sequence[float] = ()
    received: int = 0
    enrolled: int = 0
    known: int = 0
    broken: int = 0
    problems: Sequence[str] = ()
    concerns: Sequence[str] = ()
    entry: int | None = None
    parts: int = 0
    """Number of the last part that was enrolled and counted."""
    pending: Sequence[str] = ()
    """Hashes of samples that were not in the gallery before the commit that is under way."""

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen any more."""
        return self.state in ("done", "failed", "cancelled")

    def with_problem(self, text: str) -> JobState:
        """With one more problem; only the first few are kept."""
        return replace(self, problems=[*self.problems, text][:MOST_PROBLEMS])


def write_state(folder: Path, state: JobState) -> None:
    """Keep the state of a job."""
    write_text(folder / _STATE, json.dumps(asdict(state), ensure_ascii=False))


def read_state(folder: Path) -> JobState:
    """The state of a job; raises `DataError` where it is damaged."""
    try:
        values = check_object(parse_json((folder / _STATE).read_bytes()), _KINDS)
        return JobState(**{f.name: values[f.name] for f in fields(JobState) if f.name in values})
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{folder}: the job cannot be read ({error})") from None


def job_folders(root: Path) -> list[Path]:
    """The folders of all jobs."""
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if _ID.fullmatch(path.name) and (path / _STATE).is_file())


def write_part(folder: Path, number: int, samples: Sequence[Labelled]) -> int:
    """Keep samples until they are enrolled; on disk when this returns. How many bytes."""
    described = [{"labels": s.labels.model_dump(), "images": list(s.upload.images)} for s in samples]
    blobs = [blob for sample in samples for blob in sample.upload.images.values()]
    content = pack({"samples": described}, blobs)
    with atomic_write(folder / f"part-{number:06d}.bin") as file:
        file.write(content)
    return len(content)


def read_part(path: Path) -> list[Labelled]:
    """Samples that `write_part` kept; raises `DataError` where they are damaged."""
    try:
        header, blobs = unpack(path.read_bytes())
        left, samples = map(bytes, blobs), []
        for number, values in enumerate(header["samples"]):
            upload = Upload(number, {name: next(left) for name in values["images"]})
            samples.append(Labelled(upload, Labels.model_validate(values["labels"])))
        return samples
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None


def part_files(folder: Path) -> dict[int, Path]:
    """Number -> file of the parts that are not enrolled yet, in order."""
    found = {int(m[1]): path for path in folder.iterdir() if (m := _PART.fullmatch(path.name))}
    return dict(sorted(found.items()))
