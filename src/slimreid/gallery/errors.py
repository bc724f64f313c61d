"""What can go wrong with a gallery, by name; the message says which one, and the cure."""

from __future__ import annotations

from slimreid.errors import SlimReIDError


class GalleryError(SlimReIDError):
    """A gallery cannot do what was asked."""


class GalleryBusyError(GalleryError):
    """Another process writes to the gallery and did not finish in time."""


class GalleryFullError(GalleryError):
    """There is no room left on the disk; nothing was changed."""


class GalleryDamagedError(GalleryError):
    """The file of a gallery is not whole."""


class OtherModelError(GalleryError):
    """Features of another model, or of the same one with other precision or preprocessing."""
