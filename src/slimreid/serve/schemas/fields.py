"""Types of fields that requests share, and what every request has in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from slimreid.errors import ConfigError
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
