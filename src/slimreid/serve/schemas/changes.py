"""Changes of the gallery, and what they would do."""

from __future__ import annotations

from pydantic import BaseModel, Field

from slimreid.serve.schemas.fields import LARGEST_ID, MOST_ITEMS, Given, Name, RowId, Text


class Change(BaseModel):
    """What was, or would be, changed."""

    dry_run: bool
    operation: str
    entry: int | None
    """In the log."""
    rows: int
    moves: list[Move]
    effects: list[Effect]
    notes: list[str]


class Move(BaseModel):
    """Rows that go from one identity to another; None = out of the gallery, '' = nobody knows."""

    source: str | None
    target: str | None
    rows: list[int]


class Effect(BaseModel):
    """An identity before and after."""

    identity: str
    before: int
    after: int
    """Rows."""


class Preview(Given):
    """Anything that changes the gallery."""

    dry_run: bool = False
    """Say what would happen, and do nothing."""


class Rename(Preview):
    """Give an identity another name."""

    old: Name = Field(examples=["cluster-3"])
    new: Name = Field(examples=["0413"])


class Merge(Preview):
    """Make several identities one."""

    identities: list[Name] = Field(min_length=1, max_length=1000, examples=[["cluster-3", "cluster-7"]])
    into: Name = Field(examples=["0413"])


class Split(Preview):
    """Make some rows of an identity another one."""

    rows: list[RowId] = Field(min_length=1, max_length=MOST_ITEMS, examples=[[17, 18]])
    new: Name = Field(examples=["0414"])


class Assign(Preview):
    """Give rows identities; '' = nobody knows."""

    identities: dict[RowId, Text] = Field(min_length=1, max_length=MOST_ITEMS, examples=[{"17": "0413"}])


class Remove(Preview):
    """Take rows, or all rows of identities, out of the gallery."""

    rows: list[RowId] = Field(default=[], max_length=MOST_ITEMS, examples=[[17, 18]])
    identities: list[Name] = Field(default=[], max_length=1000)
    forget: bool = False
    """Erase them for good; this cannot be undone."""


class Undo(Preview):
    """Undo the last changes."""

    steps: int = Field(default=1, ge=1, le=100, examples=[1])
    expect: int | None = Field(default=None, ge=1, le=LARGEST_ID)
    """Entry of the log that is to be undone first; refused with 409 where another one is the last by now."""
