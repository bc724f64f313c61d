"""How the service is, its thresholds, who is asking, and what went wrong."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from slimreid.gallery.decisions.rates import Estimate
from slimreid.serve.schemas.fields import Given
from slimreid.serve.settings import Role


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

    token: str = Field(min_length=1, max_length=200, examples=["srid_3Jt0kq…"])


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
        default=None, min_length=1, max_length=10, examples=[[0.01, 0.003]]
    )
    """FPIR to make thresholds for; default: 1 %, 0.3 % and 0.1 %."""


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
