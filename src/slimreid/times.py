"""Times of samples: seconds since 1970, written as ISO 8601."""

from __future__ import annotations

from datetime import datetime, timezone

from slimreid.errors import ConfigError


def parse_time(text: str) -> float | None:
    """Seconds since 1970 of an ISO 8601 time (UTC unless it says otherwise) or a number; None for ''.

    Raises `ConfigError` for anything else.
    """
    text = text.strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ConfigError(
            f"'{text}' is not a time; write 2026-03-01T14:30:00, or seconds since 1970"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def show_time(time: float | None) -> str:
    """A time as people read it (UTC); '' for None."""
    if time is None:
        return ""
    return datetime.fromtimestamp(time, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
