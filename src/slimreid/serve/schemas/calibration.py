"""Thresholds with their error rates."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from slimreid.gallery.decisions.rates import Estimate
from slimreid.serve.schemas.fields import Given
from slimreid.serve.schemas.service import CalibrationState


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
