"""What a service answers, as objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from slimreid.client.errors import UnreachableError
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
    try:
        return kind(**{field.name: values[field.name] for field in fields(kind)})  # type: ignore[arg-type]
    except (KeyError, TypeError):
        raise UnreachableError(f"the service answers no {kind.__name__}; is it of another version?") from None


def read_answers(values: Any, names: Sequence[str]) -> list[Answer]:
    """Answers to searches; `names`: what the queries are called here."""
    try:
        return [_answer(value, name) for value, name in zip(values["answers"], names, strict=True)]
    except (KeyError, TypeError, ValueError):
        raise UnreachableError("the service answers no search; is it of another version?") from None


def _answer(values: Mapping[str, Any], name: str) -> Answer:
    matches = tuple(Match(m["rank"], float(m["score"]), read_row(m["row"])) for m in values["matches"])
    return Answer(name, tuple(values["modalities"]), matches, values["searched"])


def read_row(values: Mapping[str, Any]) -> Row:
    """A row; where its files lie, only the service knows."""
    return Row(
        id=values["id"],
        identity=values["identity"],
        group=values["group"],
        modalities=tuple(values["modalities"]),
        camera=values["camera"],
        time=values["time"],
        files={},
        hash="",
        quality=values["quality"],
        reasons=tuple(values["reasons"]),
    )


def read_identifications(values: Any, names: Sequence[str]) -> list[Identification]:
    """Answers to `identify`."""
    try:
        return [
            Identification(name, tuple(value["modalities"]), _decision(value))
            for value, name in zip(values["answers"], names, strict=True)
        ]
    except (KeyError, TypeError, ValueError):
        raise UnreachableError("the service answers no decision; is it of another version?") from None


def _decision(values: Mapping[str, Any]) -> Decision:
    candidates = tuple(Candidate(c["name"], float(c["score"])) for c in values["candidates"])
    return Decision(values["state"], values["reason"], values["name"], candidates, values["rate"])
