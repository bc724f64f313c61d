"""Who is asking, and may they: tokens in a header, sessions in a cookie, where a request comes from."""

from __future__ import annotations

import getpass
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from slimreid.serve.errors import NotAllowedError, NotLoggedInError, RateError
from slimreid.serve.settings import Role, Settings
from slimreid.serve.tokens import ROLES, Token, TokenFile, hash_text

COOKIE = "slimreid_session"
SESSION_SECONDS = 12 * 3600
_MOST_SESSIONS = 1000
_SAFE = ("GET", "HEAD", "OPTIONS")
_MOST_CALLERS = 10_000
_LOGINS_PER_SECOND, _LOGIN_BURST = 1.0, 20
"""Wrong tokens from one address."""


@dataclass(frozen=True)
class Who:
    """Somebody who may ask."""

    name: str
    """Of the token; the log names it."""
    role: Role


class Bucket:
    """So many requests per second in the long run, and a few more at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> bool:
        """Whether one more request of this caller is within the limit."""
        if not self.rate:
            return True
        now = time.monotonic()
        left, then = self._left.pop(key, (float(self.burst), now))
        left = min(self.burst, left + (now - then) * self.rate)
        self._left[key] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > _MOST_CALLERS:
            self._left.popitem(last=False)
        return left >= 1


class Access:
    """The door of the service."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tokens = TokenFile(settings.tokens)
        self._local = Who(getpass.getuser(), "admin")
        self._locked = not settings.is_local
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._requests = Bucket(settings.service.rate, settings.service.burst)
        self._failures = Bucket(_LOGINS_PER_SECOND, _LOGIN_BURST)

    @property
    def login(self) -> bool:
        """Whether a token is needed: off the loopback, and from the first token on."""
        # Once there were tokens, a file that vanishes opens nothing.
        self._locked = self._locked or bool(self.tokens.tokens())
        return self._locked

    def who(self, method: str, headers: Headers, client: str) -> Who | None:
        """Who sends a request, None for nobody we know.

        Raises `NotLoggedInError` for a wrong token, `NotAllowedError` for a request that another site made a
        browser send, `RateError` for one too many.
        """
        found: Who | None
        given = headers.get("authorization")
        if given is not None:
            found = self._bearer(given, client)
        else:
            # A browser adds cookies, and reaches the loopback, on behalf of any page: only ours may.
            self._check_origin(method, headers)
            found = self._from_cookie(headers) if self.login else self._local
        if found is not None and not self._requests.take(found.name):
            raise RateError(f"more than {self.settings.service.rate:g} requests per second; wait a little")
        return found

    def _bearer(self, given: str, client: str) -> Who:
        scheme, _, secret = given.partition(" ")
        token = self._token(secret.strip() if scheme.lower() == "bearer" else "", client)
        return Who(token.name, token.role)

    def _token(self, secret: str, client: str) -> Token:
        """The token with this secret; raises `NotLoggedInError`, or `RateError` after too many wrong ones."""
        token = self.tokens.find(secret)
        if token is None:
            if not self._failures.take(client):
                raise RateError("too many wrong tokens; wait a little")
            raise NotLoggedInError("this token is not valid: it is wrong or was revoked")
        return token

    def _check_origin(self, method: str, headers: Headers) -> None:
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None:
            is_ours = site in ("same-origin", "none")
        else:
            is_ours = origin is None or urlsplit_host(origin) == headers.get("host", "").lower()
        if not is_ours:
            raise NotAllowedError("another site made the browser send this request")
        if site is None and origin is None and method not in _SAFE and COOKIE in headers.get("cookie", ""):
            raise NotAllowedError("a browser that says where a request comes from is needed")

    def _from_cookie(self, headers: Headers) -> Who | None:
        key = _session_key(headers)
        secret, expires = self._sessions.get(key, ("", 0.0)) if key else ("", 0.0)
        if time.monotonic() > expires:
            return None
        for token in self.tokens.tokens():
            if token.hash == secret:  # not by name: a new token of the same name is somebody else's
                return Who(token.name, token.role)
        return None

    def log_in(self, secret: str, client: str) -> tuple[Who, str]:
        """A session for a token: who it is, and the value of the cookie; raises `NotLoggedInError`."""
        token = self._token(secret, client)
        cookie = secrets.token_urlsafe(32)
        self._sessions[hash_text(cookie)] = (token.hash, time.monotonic() + SESSION_SECONDS)
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return Who(token.name, token.role), cookie

    def log_out(self, headers: Headers) -> None:
        """End the session of a request."""
        if key := _session_key(headers):
            self._sessions.pop(key, None)

    def cookie_options(self) -> Mapping[str, object]:
        """How the cookie is set: scripts cannot read it, other sites cannot use it."""
        return {"httponly": True, "samesite": "strict", "secure": self.settings.secure, "path": "/"}


def require_role(who: Who | None, role: Role) -> Who:
    """`who`, if they may; raises `NotLoggedInError` or `NotAllowedError`."""
    if who is None:
        raise NotLoggedInError("log in, or send a token: Authorization: Bearer TOKEN")
    if ROLES.index(who.role) < ROLES.index(role):
        raise NotAllowedError(f"'{who.name}' is {who.role}; this needs the role {role}")
    return who


def urlsplit_host(origin: str) -> str:
    """Host and port of an origin as a Host header writes them; '' for anything else."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _session_key(headers: Headers) -> str:
    try:
        jar = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return hash_text(jar[COOKIE].value) if COOKIE in jar else ""
