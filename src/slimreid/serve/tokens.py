"""Tokens: who may do what. Shown once, kept as a hash, revocable.

A token is 256 random bits, so its hash needs no salt and no slow function: nobody can try them all, whereas a
slow one would have to run with every request. The file is read again whenever it changed, so that a token
that was revoked is refused from the next request on.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast, get_args

from slimreid.errors import DataError, did_you_mean
from slimreid.files import write_text
from slimreid.json_files import check_object, parse_json
from slimreid.serve.settings import Role

PREFIX = "srid_"
"""So that programs which look for secrets in published text find them."""
ROLES: tuple[str, ...] = get_args(Role)
"""From the one that may least."""


@dataclass(frozen=True)
class Token:
    """A token without its secret."""

    name: str
    role: Role
    hash: str
    created: float
    """Seconds since 1970."""


class TokenFile:
    """The tokens of one service."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._tokens: tuple[Token, ...] = ()

    def tokens(self) -> tuple[Token, ...]:
        """All tokens, oldest first; raises `DataError` where the file is damaged."""
        try:
            now = self.path.stat()
        except FileNotFoundError:
            self._seen, self._tokens = None, ()
            return ()
        seen = now.st_mtime_ns, now.st_ino, now.st_size
        if seen != self._seen:
            self._tokens = _read(self.path)
            self._seen = seen
        return self._tokens

    def add(self, name: str, role: Role) -> str:
        """Make a token; its secret, which is kept nowhere. Raises `DataError` where the name is taken."""
        if not name or len(name) > 100 or not name.isprintable():
            raise DataError("a token needs a name of up to 100 letters")
        if any(token.name == name for token in self.tokens()):
            raise DataError(f"there is a token '{name}' already; choose another name, or revoke it first")
        secret = PREFIX + secrets.token_urlsafe(32)
        self._write([*self.tokens(), Token(name, role, hash_text(secret), time.time())])
        return secret

    def revoke(self, name: str) -> None:
        """Make a token invalid; raises `DataError` where there is none of this name."""
        known = [token.name for token in self.tokens()]
        if name not in known:
            raise DataError(f"there is no token '{name}'{did_you_mean(name, known)}")
        self._write([token for token in self.tokens() if token.name != name])

    def find(self, secret: str) -> Token | None:
        """The token with this secret, None for none; takes as long for a wrong one as for a right one."""
        wanted = hash_text(secret)
        found = None
        for token in self.tokens():
            if hmac.compare_digest(token.hash, wanted):
                found = token
        return found

    def _write(self, tokens: list[Token]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps([asdict(token) for token in tokens], indent=1))
        self.path.chmod(0o600)


def hash_text(secret: str) -> str:
    """How a secret is kept."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _read(path: Path) -> tuple[Token, ...]:
    try:
        values: Any = parse_json(path.read_bytes())
        if not isinstance(values, list):
            raise ValueError("no list")
        kinds = {"name": str, "role": str, "hash": str, "created": float}
        tokens = [check_object(value, kinds) for value in values]
        if any(token["role"] not in ROLES for token in tokens):
            raise ValueError("an unknown role")
        return tuple(Token(t["name"], cast(Role, t["role"]), t["hash"], float(t["created"])) for t in tokens)
    except (OSError, ValueError, DataError) as error:
        raise DataError(
            f"{path}: the tokens cannot be read ({error}); restore the file, or remove it"
        ) from None
