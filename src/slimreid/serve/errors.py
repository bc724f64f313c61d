"""Why the service does not do what it is asked, by name."""

from __future__ import annotations

from slimreid.errors import SlimReIDError


class ServiceError(SlimReIDError):
    """A request is refused."""


class NotLoggedInError(ServiceError):
    """No token, or one that is not (or no longer) valid."""


class NotAllowedError(ServiceError):
    """The role of the token, or where the request comes from, does not allow it."""


class NotFoundError(ServiceError):
    """There is nothing of this name or number."""


class NotAvailableError(ServiceError):
    """The model or the gallery behind the service cannot do this."""


class TooLargeError(ServiceError):
    """A request holds more than the service takes."""


class TooSlowError(ServiceError):
    """A request was not sent in time."""


class BusyError(ServiceError):
    """The service has as much to do as it takes; try again later."""


class RateError(ServiceError):
    """This token asks more often than it may; try again later."""
