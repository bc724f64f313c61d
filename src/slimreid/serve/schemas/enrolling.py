"""Enrolment: a few samples at once, or many as a job."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from slimreid.serve.schemas.fields import Given, Text, Time
from slimreid.serve.schemas.searching import Sample


class Labels(Given):
    """What is said of samples; `identity.1` and so on for one of them alone."""

    identity: Text = Field(default="", examples=["0413"])
    group: Text = ""
    camera: Text = Field(default="", examples=["gate"])
    time: Time | None = None


class EnrolForm(Labels):
    """Options of an enrolment."""

    dry_run: bool = False


class SampleResult(Sample):
    """What became, or would become, of one sample."""

    state: Literal["enrolled", "known"]
    """known: it is in the gallery already, by content."""
    row: int | None
    """Its row; None in a dry run."""
    concerns: list[str]
    """Why one should look at it: near-duplicate, closer to somebody else, ..."""


class Enrolled(BaseModel):
    """What became, or would become, of the samples."""

    dry_run: bool
    entry: int | None
    """In the log; None where nothing was enrolled."""
    samples: list[SampleResult]


class NewJob(Labels):
    """An enrolment in many parts; labels that samples do not name themselves."""


class Job(BaseModel):
    """Work that goes on after the answer, and after a restart."""

    id: str
    kind: Literal["enrol", "calibrate"]
    state: Literal["open", "running", "done", "failed", "cancelled"]
    """open: takes more samples; those it has are being enrolled already."""
    by: str
    created: float
    received: int
    """Samples it was given."""
    enrolled: int
    known: int
    """In the gallery already."""
    broken: int
    problems: list[str]
    """Of broken samples, the first few; why it failed."""
    concerns: list[str]
    """Rows that should be looked at, the first few."""
    entry: int | None
    """In the log."""


class JobList(BaseModel):
    """Jobs, newest first."""

    jobs: list[Job]
