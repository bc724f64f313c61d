"""What the service takes and answers under `/v1`, as JSON; the contract that page and client are written to.

Images are sent as `multipart/form-data`. A part `rgb`, `nir` or `tir` (whatever modalities the model knows)
is an image of sample 0; `rgb.1`, `nir.1` … are of sample 1, and so on. Any subset of the modalities will do.
The other parts are the fields of a `...Form` below; a list is a part that is there several times. A label
such as `identity` holds for all samples, `identity.1` for sample 1 alone.

| route                         | role   | takes                  | gives                                    |
|-------------------------------|--------|------------------------|------------------------------------------|
| GET    /v1/health             | anyone |                        | `Health`: the process answers            |
| GET    /v1/ready              | anyone |                        | `Health`, or 503 while it cannot work    |
| GET    /v1/session            | anyone |                        | `Session`: who am I, must I log in       |
| POST   /v1/session            | anyone | `Login`                | `Session`, and a cookie                  |
| DELETE /v1/session            | anyone |                        | `Session`; the cookie is gone            |
| GET    /v1/status             | viewer |                        | `Status`                                 |
| GET    /v1/metrics            | viewer |                        | Prometheus text                          |
| POST   /v1/embed              | viewer | images                 | `Embedded`                               |
| POST   /v1/search             | viewer | images, `SearchForm`   | `SearchResult`                           |
| POST   /v1/identify           | viewer | images, `IdentifyForm` | `IdentifyResult`, with ranked matches    |
| POST   /v1/patches            | viewer | images                 | `KeptPatches`, or 404 where not possible |
| GET    /v1/identities         | viewer | query, after, limit    | `IdentityPage`                           |
| GET    /v1/cameras            | viewer |                        | `CameraList`                             |
| GET    /v1/rows               | viewer | filter, after, limit   | `RowPage`                                |
| GET    /v1/rows/{id}          | viewer |                        | `Row`                                    |
| GET    /v1/rows/{id}/thumbnail | viewer | modality              | image/jpeg: all side by side, or one     |
| GET    /v1/rows/{id}/image    | viewer | modality               | image/jpeg, larger where the file is     |
| GET    /v1/clusters           | viewer | rate or threshold      | `ClusterList`                            |
| GET    /v1/log                | viewer | before, limit          | `LogPage`                                |
| GET    /v1/calibration        | viewer |                        | `Calibration`                            |
| POST   /v1/calibration        | admin  | `Calibrate`            | `Job` (202)                              |
| POST   /v1/enrol              | editor | images, `EnrolForm`    | `Enrolled` (201; 200 for a dry run)      |
| POST   /v1/identities/rename  | editor | `Rename`               | `Change`                                 |
| POST   /v1/identities/merge   | editor | `Merge`                | `Change`                                 |
| POST   /v1/identities/split   | editor | `Split`                | `Change`                                 |
| POST   /v1/rows/assign        | editor | `Assign`               | `Change`                                 |
| POST   /v1/rows/remove        | editor | `Remove`               | `Change`; `forget` needs an admin        |
| POST   /v1/undo               | editor | `Undo`                 | `Change`                                 |
| GET    /v1/jobs               | viewer |                        | `JobList`                                |
| POST   /v1/jobs               | editor | `NewJob`               | `Job` (201): an enrolment in many parts  |
| POST   /v1/jobs/{id}/samples  | editor | images, labels         | `Job` (202): kept, will be enrolled      |
| POST   /v1/jobs/{id}/finish   | editor |                        | `Job`: no more samples will come         |
| GET    /v1/jobs/{id}          | viewer |                        | `Job`                                    |
| GET    /v1/jobs/{id}/events   | viewer |                        | text/event-stream of `Job`s              |
| DELETE /v1/jobs/{id}          | editor |                        | `Job`: the rest is dropped               |

Everything that changes the gallery takes `dry_run`: the answer then says what would happen, and nothing does.
Errors are `application/problem+json`, see `Problem`; 401 = log in, 403 = your role does not allow it,
413 = too large, 422 = a field is wrong, 429 and 503 = too busy, try again after `Retry-After` seconds.
Times are seconds since 1970 (UTC); fields that take a time also take ISO 8601.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from slimreid.errors import ConfigError
from slimreid.serve.settings import Role
from slimreid.times import parse_time

LARGEST_ID = 2**40 - 1
MOST_ITEMS = 10_000
"""Rows or names in one request."""


def _plain_text(text: str) -> str:
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise ValueError("must not hold control characters")
    return text


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return _plain_text(text)


def _time(text: str) -> str:
    try:
        parse_time(text)
    except (ConfigError, OverflowError) as error:
        raise ValueError(str(error)) from None
    return text


Text = Annotated[str, Field(max_length=200), AfterValidator(_plain_text)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_name)]
Time = Annotated[str, Field(max_length=40, examples=["2026-03-01T14:30:00"]), AfterValidator(_time)]
RowId = Annotated[int, Field(ge=1, le=LARGEST_ID)]
Rate = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False, examples=[0.01])]


class Given(BaseModel):
    """What a request holds: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """RFC 9457: what went wrong."""

    type: str = Field(examples=["urn:slimreid:error:GalleryError"])
    name: str = Field(examples=["GalleryError"])
    """The name of the error, as in Python and on the command line."""
    title: str
    """What kind of error it is, in words."""
    status: int
    detail: str = Field(examples=["there is no identity '0431'; did you mean '0413'?"])
    """This case, and the cure; what the command line would print."""
    instance: str
    """Number of the request, as in the log of the service."""
    errors: list[dict[str, str]] | None = None
    """For 422: {"field": ..., "message": ...} for each field that is wrong."""


class Health(BaseModel):
    """Whether the service is well."""

    status: Literal["ok", "starting", "stopping"]


class Login(Given):
    """A token, as `slimreid serve token add` showed it once."""

    token: str = Field(min_length=1, max_length=200)


class Session(BaseModel):
    """Who is asking."""

    login: bool
    """Whether tokens are in use; False on a loopback service without tokens, where everyone is admin."""
    name: str | None
    """Of the token; None where one must log in first."""
    role: Role | None


class ModelState(BaseModel):
    """The model behind the gallery."""

    name: str
    fingerprint: str
    feature: str = Field(examples=["both"])
    dimension: int
    modalities: list[str] = Field(examples=[["rgb", "nir", "tir"]])
    engine: Literal["torch", "onnxruntime", "other"]
    precision: str = Field(examples=["int8"])
    patches: bool
    """Whether it can say which patches it kept."""


class Limits(BaseModel):
    """What a request may hold."""

    body_bytes: int
    images: int
    """Per request."""
    pixels: int
    """Per image."""
    seconds: float
    """Per request."""


class Load(BaseModel):
    """How busy the service is."""

    queued: int
    """Samples that wait to be embedded."""
    capacity: int
    """Samples that may wait; beyond that requests are refused with 503."""
    requests: int
    """Requests under way."""
    embedded: int
    """Samples since the start."""
    refused: int
    """Requests refused for being too many since the start."""


class CalibrationState(BaseModel):
    """Whether the gallery can decide."""

    state: Literal["none", "ok", "void", "outgrown"]
    reason: str
    rates: list[float]
    """That can be chosen."""


class Status(BaseModel):
    """State of the service."""

    version: str
    gallery: str
    rows: int
    identities: int
    unknown: int
    """Rows without identity."""
    uptime: float
    model: ModelState
    calibration: CalibrationState
    limits: Limits
    load: Load


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


class Match(BaseModel):
    """A row that was found."""

    rank: int
    score: float
    row: Row


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
    """Rows that are like no other."""
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


class Estimate(BaseModel):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


class CalibrationPoint(BaseModel):
    """One promised rate for queries of one subset of the modalities ('' = all of them together)."""

    subset: str
    rate: float
    searches: int
    strangers: int
    threshold: Estimate | None
    fnir: Estimate | None
    achieved: Estimate | None
    """FPIR on identities that were held out."""
    refusal: str
    """Why there is no threshold; '' where there is one."""


class Calibration(CalibrationState):
    """Thresholds of the gallery: per subset, points of a curve of FPIR and FNIR over the threshold."""

    identities: int | None
    """Of the gallery when it was calibrated."""
    rows: int | None
    points: list[CalibrationPoint]


class Calibrate(Given):
    """Calibrate with the rows of the gallery."""

    rates: list[Annotated[float, Field(gt=0, lt=0.1, allow_inf_nan=False)]] | None = Field(
        default=None, min_length=1, max_length=10
    )
    """FPIR to make thresholds for; default: 1 %, 0.3 % and 0.1 %."""


class Labels(Given):
    """What is said of samples; `identity.1` and so on for one of them alone."""

    identity: Text = ""
    group: Text = ""
    camera: Text = ""
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

    identities: list[Name] = Field(min_length=1, max_length=1000)
    into: Name


class Split(Preview):
    """Make some rows of an identity another one."""

    rows: list[RowId] = Field(min_length=1, max_length=MOST_ITEMS)
    new: Name


class Assign(Preview):
    """Give rows identities; '' = nobody knows."""

    identities: dict[RowId, Text] = Field(min_length=1, max_length=MOST_ITEMS, examples=[{"17": "0413"}])


class Remove(Preview):
    """Take rows, or all rows of identities, out of the gallery."""

    rows: list[RowId] = Field(default=[], max_length=MOST_ITEMS)
    identities: list[Name] = Field(default=[], max_length=1000)
    forget: bool = False
    """Erase them for good; this cannot be undone."""


class Undo(Preview):
    """Undo the last changes."""

    steps: int = Field(default=1, ge=1, le=100)
    expect: int | None = Field(default=None, ge=1, le=LARGEST_ID)
    """Entry of the log that is to be undone first; refused with 409 where another one is the last by now."""


class NewJob(Given):
    """An enrolment in many parts; labels that samples do not name themselves."""

    identity: Text = ""
    group: Text = ""
    camera: Text = ""
    time: Time | None = None


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
