"""From a gallery and a model on disk to a service, or an error by name."""

from __future__ import annotations

from pathlib import Path

from slimreid.config.model import DEFAULT_MODEL
from slimreid.errors import ConfigError
from slimreid.gallery.store.open import open_store
from slimreid.inference.load import load
from slimreid.serve.service import Service
from slimreid.serve.settings import Settings
from slimreid.serve.tokens import TokenFile


def open_service(gallery: str, model: Path | None, settings: Settings) -> Service:
    """Open a gallery and its model (None = the one it was made with) as a service.

    Raises `GalleryError`, `ModelError` or `OtherModelError` where either is damaged or they do not belong
    together, `ConfigError` for an address that others can reach without any token.
    """
    if not settings.is_local and not TokenFile(settings.tokens).tokens():
        raise ConfigError(
            f"--host {settings.host} can be reached from other machines, and there is no token: make one "
            f"with 'slimreid serve token add {gallery} --role admin', or leave --host out"
        )
    store = open_store(gallery)
    try:
        loaded = load(model or store.model.path or DEFAULT_MODEL)
        return Service(store, loaded, settings)
    except BaseException:
        store.close()
        raise
