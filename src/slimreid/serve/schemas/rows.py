"""What is in the gallery: rows, identities, clusters, the log."""

from __future__ import annotations

from pydantic import BaseModel, Field

from slimreid.serve.schemas.fields import Given, RowId, Text, Time


class Row(BaseModel):
    """A row of the gallery."""

    id: int
    identity: str
    """'' where nobody knows."""
    group: str
    """Tracklet; '' = none."""
    modalities: list[str]
    camera: str
    time: float | None
    quality: float | None
    reasons: list[str]
    thumbnail: str = Field(examples=["/v1/rows/17/thumbnail"])
    """Address of its picture; `?modality=tir` gives one modality alone."""


class Filters(Given):
    """Rows to search in; what is not given does not matter."""

    camera: list[Text] = Field(default=[], max_length=100)
    identity: list[Text] = Field(default=[], max_length=100)
    modality: list[Text] = Field(default=[], max_length=10)
    """Rows that were seen at least in these."""
    group: list[Text] = Field(default=[], max_length=100)
    id: list[RowId] = Field(default=[], max_length=1000)
    since: Time | None = None
    until: Time | None = None


class Identity(BaseModel):
    """A name and how many rows it has."""

    name: str
    rows: int


class IdentityPage(BaseModel):
    """Identities by name; '' (rows without identity) is not among them."""

    identities: list[Identity]
    total: int
    next: str | None
    """`after` of the next page; None = this is the last one."""


class CameraList(BaseModel):
    """Cameras that rows name, by name."""

    cameras: list[Identity]


class RowPage(BaseModel):
    """Rows by ascending id."""

    rows: list[Row]
    total: int
    next: int | None


class Cluster(BaseModel):
    """Rows that are alike and may be one identity."""

    name: str
    """Proposed, not taken yet."""
    rows: list[Row]


class ClusterList(BaseModel):
    """Clusters of rows without identity, the largest first."""

    clusters: list[Cluster]
    alone: int
    """Rows that resemble no other."""
    threshold: float


class LogEntry(BaseModel):
    """A change or a search."""

    id: int
    time: float
    by: str
    operation: str
    count: int
    details: dict[str, object]
    undoable: bool
    undone_by: int | None


class LogPage(BaseModel):
    """The log, newest first."""

    entries: list[LogEntry]
    next: int | None
    """`before` of the next page."""
