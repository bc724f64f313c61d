"""Samples, searches and decisions."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from slimreid.serve.schemas.fields import Given, Rate, Text
from slimreid.serve.schemas.rows import Filters, Row


class Sample(BaseModel):
    """What was seen in the images of one sample."""

    number: int
    modalities: list[str]
    quality: float
    """0 to 1."""
    reasons: list[str]
    """What speaks against the images."""


class EmbeddedSample(Sample):
    """A sample with its feature."""

    embedding: list[float]


class Embedded(BaseModel):
    """Features of samples."""

    feature: str
    dimension: int
    fingerprint: str
    samples: list[EmbeddedSample]


class Match(BaseModel):
    """A row that was found."""

    rank: int
    score: float
    row: Row


class EmbedForm(Given):
    """Options of an embedding."""

    query_camera: Text = ""
    """Camera that took the samples; it matters where the model was adapted to a site."""


class SearchForm(Filters, EmbedForm):
    """Options of a search."""

    k: int = Field(default=10, ge=1, le=200)
    identities: bool = False
    """Whether each identity is one answer, by its best row."""
    pooled: bool = False
    """Whether the samples show one object and are one query."""


class IdentifyForm(SearchForm):
    """Options of an identification."""

    rate: Rate | None = None
    """Share of strangers that may be taken for somebody; default: the highest it is calibrated for."""


class Answer(BaseModel):
    """What was found for one query."""

    query: str
    modalities: list[str]
    searched: int
    """Rows that the filter left."""
    matches: list[Match]


class SearchResult(BaseModel):
    """Answers, one per query."""

    answers: list[Answer]


class Candidate(BaseModel):
    """An identity that may be meant."""

    name: str
    score: float


class Identification(Answer):
    """Who one query is."""

    state: Literal["known", "unsure", "unknown", "undecided"]
    name: str | None
    """Who it is, for `known`."""
    reason: str = Field(examples=["one stranger in 300 would be taken for somebody"])
    rate: float | None
    """FPIR at the gallery's present size; None for `undecided`."""
    candidates: list[Candidate]
    strict: float | None
    """Score above which it is `known`; None without a valid calibration."""
    lax: float | None
    """Score above which it is `unsure`."""


class IdentifyResult(BaseModel):
    """Decisions, one per query; scores are on the scale of the calibration where there is a valid one."""

    answers: list[Identification]
    samples: list[Sample]
    """What was seen in the images, before any pooling."""


class PatchGrid(BaseModel):
    """Patches of one modality."""

    rows: int
    columns: int
    kept: list[int]
    """Numbers of the patches that were kept, row by row from 0."""


class KeptPatches(BaseModel):
    """Per sample and modality, what the model looked at to the end."""

    samples: list[dict[str, PatchGrid]]
