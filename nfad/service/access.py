"""Who may do what: tokens with roles, made and revoked while the service runs. The database has only their hashes."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from nfad.errors import NfadError
from nfad.service.changes import OPERATOR, TOKEN, note
from nfad.service.record import iso
from nfad.service.tables import TOKENS
from nfad.system.files import replacing

VIEW, OPERATE, ADMINISTER = ROLES = ("view", "operate", "administer")  # each may do what those before it may
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
KNOWN_FOR = 1.0  # seconds: a token that was revoked is refused after that at the latest
COOKIE = "nfad"
GIVEN = "token"  # the name of the one that the service was started with


@dataclass(frozen=True)
class Token:
    name: str
    role: str
    sha256: str  # of 32 random bytes, in which no search finds anything
    made: str = ""
    revoked: str | None = None


@dataclass(frozen=True)
class Caller:
    """Who makes a request; without any token everyone on this machine may do all."""

    name: str = "local"
    role: str = ADMINISTER

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


def all_tokens(engine: sa.Engine) -> list[Token]:
    with engine.connect() as connection:
        return [Token(**row) for row in connection.execute(sa.select(TOKENS).order_by(TOKENS.c.name)).mappings()]


def make_token(engine: sa.Engine, name: str, role: str) -> str:
    """A new one, told this once."""
    if not NAME.fullmatch(name) or name == GIVEN:
        raise NfadError(f"{name!r} cannot be a token's name; use up to 64 of A-Z a-z 0-9 . _ -, none of . - first")
    if role not in ROLES:
        raise NfadError(f"a role is one of {', '.join(ROLES)}; got {role}")
    if any(each.name == name for each in all_tokens(engine)):
        raise NfadError(f"there is a token {name} already; rotate it, or choose another name")
    secret, row = _secret()
    with engine.begin() as connection:
        connection.execute(TOKENS.insert(), {"name": name, "role": role, **row})
        note(connection, OPERATOR, TOKEN, name, None, {"role": role})
    return secret


def rotate_token(engine: sa.Engine, name: str) -> str:
    """A new secret of the same name and role; the old one is void at once, and a revoked one comes back."""
    known, (secret, row) = _existing(engine, name), _secret()
    with engine.begin() as connection:
        connection.execute(TOKENS.update().where(TOKENS.c.name == name).values(**row, revoked=None))
        before = {"made": known.made, "revoked": known.revoked}
        note(connection, OPERATOR, TOKEN, name, before, {"made": row["made"], "revoked": None})
    return secret


def revoke_token(engine: sa.Engine, name: str) -> None:
    known, now = _existing(engine, name), iso(datetime.now(UTC))
    with engine.begin() as connection:
        connection.execute(TOKENS.update().where(TOKENS.c.name == name).values(revoked=now))
        note(connection, OPERATOR, TOKEN, name, {"revoked": known.revoked}, {"revoked": now})


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class Access:
    """Finds the caller of a request; for any thread. Once there was a token, nothing is open without one."""

    def __init__(self, engine: sa.Engine, given: str | None, key: bytes) -> None:
        self._engine, self._key = engine, key
        self._given = [] if given is None else [Token(GIVEN, ADMINISTER, hashed(given))]
        self._lock = threading.Lock()
        self._read()

    @property
    def is_open(self) -> bool:
        return not self._known

    @property
    def is_stale(self) -> bool:
        return time.monotonic() > self._until

    def refresh(self) -> None:
        """Read the tokens anew; those last known stay while the database does not answer."""
        with self._lock:
            if self.is_stale:
                try:
                    self._read()
                except SQLAlchemyError:
                    self._until = time.monotonic() + KNOWN_FOR

    def _read(self) -> None:
        self._known = [*self._given, *all_tokens(self._engine)]
        self._until = time.monotonic() + KNOWN_FOR

    def cookie(self, token: Token) -> str:
        """For the page. It needs a key that is in no backup, so that who has the hashes cannot make one."""
        return hmac.new(self._key, token.sha256.encode(), "sha256").hexdigest()

    def by_secret(self, secret: str) -> Token | None:
        return self._found(hashed(secret), ((each.sha256, each) for each in self._known))

    def caller(self, headers: Mapping[str, str]) -> Caller | None:
        """None if the request needs a token and has none that holds."""
        if self.is_open:
            return Caller()
        given = bearer_token(headers)
        token = None if given is None else self.by_secret(given)
        for value in cookies(headers.get("cookie", ""), COOKIE):
            token = token or self._found(value, ((self.cookie(each), each) for each in self._known))
        return token and Caller(token.name, token.role)

    def _found(self, value: str, known: Iterable[tuple[str, Token]]) -> Token | None:
        """By constant-time comparison with all: its duration says nothing about a token."""
        given = value.encode("utf-8", "replace")
        matching = [token for wanted, token in known if hmac.compare_digest(given, wanted.encode())]
        return next((token for token in matching if token.revoked is None), None)


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """What a program sends with every request; None where it sends none."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def cookies(header: str, name: str) -> Iterable[str]:
    """The values under that name. Programs of the same host share this header and write what they like into it, at
    which `http.cookies` stops reading, so it is only cut at its semicolons, as browsers do."""
    for each in header.split(";"):
        key, _, value = each.partition("=")
        if key.strip() == name:
            yield value.strip()


def session_key(data: Path) -> bytes:
    """What cookies are made with, kept in the data folder, so that a restart logs nobody out."""
    place = data / "session.key"
    if not place.exists():
        with replacing(place) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(secrets.token_bytes(32))
    return place.read_bytes()


def _existing(engine: sa.Engine, name: str) -> Token:
    for each in all_tokens(engine):
        if each.name == name:
            return each
    raise NfadError(f"there is no token {name}; `nfad station token list` names them")


def _secret() -> tuple[str, dict[str, str]]:
    secret = f"nfad_{secrets.token_urlsafe(32)}"
    return secret, {"sha256": hashed(secret), "made": iso(datetime.now(UTC))}
