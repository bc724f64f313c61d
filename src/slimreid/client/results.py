"""What a service answers, as objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from slimreid.client.transport import UnreachableError
from slimreid.gallery.answers import Answer, Match
from slimreid.gallery.decisions.identify import Candidate, Decision
from slimreid.gallery.identification import Identification
from slimreid.gallery.store.rows import Row

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class EnrolledSample:
    """What became of a sample."""

    number: int
    state: str
    """enrolled, or known: it was there already."""
    row: int | None
    quality: float
    concerns: Sequence[str]


@dataclass(frozen=True)
class Changed:
    """What was, or would be, changed."""

    dry_run: bool
    operation: str
    entry: int | None
    rows: int
    moves: Sequence[Mapping[str, Any]]
    effects: Sequence[Mapping[str, Any]]
    notes: Sequence[str]


@dataclass(frozen=True)
class Job:
    """An enrolment in many parts."""

    id: str
    state: str
    received: int
    enrolled: int
    known: int
    broken: int
    problems: Sequence[str]
    concerns: Sequence[str]
    entry: int | None

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen any more."""
        return self.state in ("done", "failed", "cancelled")


def read_result(kind: type[Kind], values: Any) -> Kind:
    """An object from JSON; fields that this version does not know are left out.

    Raises `UnreachableError` where the answer is not of this kind.
    """
    with _expecting(kind.__name__):
        return kind(**{field.name: values[field.name] for field in fields(kind)})  # type: ignore[arg-type]


def read_answers(values: Any, names: Sequence[str]) -> list[Answer]:
    """Answers to searches; `names`: what the queries are called here."""
    answers = []
    with _expecting("search"):
        for value, name in zip(values["answers"], names, strict=True):
            matches = tuple(Match(m["rank"], float(m["score"]), _row(m["row"])) for m in value["matches"])
            answers.append(Answer(name, tuple(value["modalities"]), matches, value["searched"]))
    return answers


@contextmanager
def _expecting(what: str) -> Iterator[None]:
    """Raise `UnreachableError` where an answer lacks something or has it in another form."""
    try:
        yield
    except (KeyError, TypeError, ValueError):
        raise UnreachableError(f"the service returned no {what}; is it of another version?") from None


def _row(values: Mapping[str, Any]) -> Row:
    """A row; where its files lie, only the service knows."""
    given = {name: values[name] for name in ("id", "identity", "group", "camera", "time", "quality")}
    seen, reasons = tuple(values["modalities"]), tuple(values["reasons"])
    return Row(**given, modalities=seen, reasons=reasons, files={}, hash="")


def read_identifications(values: Any, names: Sequence[str]) -> list[Identification]:
    """Answers to `identify`."""
    found = []
    with _expecting("decision"):
        for value, name in zip(values["answers"], names, strict=True):
            candidates = tuple(Candidate(c["name"], float(c["score"])) for c in value["candidates"])
            decision = Decision(value["state"], value["reason"], value["name"], candidates, value["rate"])
            found.append(Identification(name, tuple(value["modalities"]), decision))
    return found
