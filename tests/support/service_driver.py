"""A service in a process of its own, which a test may kill: GALLERY PORT SECONDS."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path

from slimreid.gallery.store.open import open_store
from slimreid.serve.http import server
from slimreid.serve.service import Service
from slimreid.serve.settings import ServiceLimits, Settings
from support.galleries import ColourModel
from support.services import LIMITS


def main() -> None:
    """Serve until stopped."""
    place, port, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    logging.basicConfig(level=logging.INFO)
    server.HEADER_SECONDS = seconds / 4
    settings = Settings(
        place.with_name(place.name + ".service"),
        port=port,
        decoders=1,
        request=replace(LIMITS, seconds=seconds),
        service=ServiceLimits(rate=0),
    )
    server.run_server(Service(open_store(place), ColourModel(), settings))


if __name__ == "__main__":
    main()
