"""Who may: a token or this machine's own names, no other site's page, and an answer that no browser misreads."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Collection
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "nfad"
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN = frozenset({"/healthz", "/v1/login", "/v1/logout", "/v1/me"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def cookie_of(token: str) -> str:
    """What the page carries instead of the token, which it then need not keep."""
    return hmac.new(token.encode(), b"nfad page", hashlib.sha256).hexdigest()


def is_token(given: str, token: str) -> bool:
    """In a time that does not tell how much of it was right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def is_known(headers: Headers, token: str | None) -> bool:
    """Whether a request carries the token, or the cookie made of it."""
    if token is None:
        return True
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and is_token(given.strip(), token):
        return True
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return False
    return cookie is not None and is_token(cookie.value, cookie_of(token))


def is_foreign(headers: Headers) -> bool:
    """Whether a browser says that another site's page made this request; programs say nothing of the kind."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def is_local_name(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in LOCAL_NAMES
    except ValueError:
        return False


class Guard:
    """Before everything else. Whatever is not known to be open is closed."""

    def __init__(self, app: ASGIApp, token: str | None, page: Collection[str]) -> None:
        self._app, self._token = app, token
        self._open = OPEN | frozenset(page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # there are no websockets here
            return await send({"type": "websocket.close", "code": 1008})

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, hardened)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        # Without a token the only protection is that nobody else's name leads here (DNS rebinding).
        if self._token is None and not is_local_name(headers.get("host", "")):
            return _refused(403, "this service answers only to localhost, 127.0.0.1 and [::1]; open it by that name")
        if scope["method"] not in SAFE and is_foreign(headers):
            return _refused(403, "this request comes from another site's page; use the service's own")
        if scope["path"] not in self._open and not is_known(headers, self._token):
            answer = _refused(401, "this needs the service's token; log in, or send Authorization: Bearer TOKEN")
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        return None


class Brevity:
    """Bound every body but those that go to the disk: a login's, too, is read into memory before anybody is asked who
    they are."""

    def __init__(self, app: ASGIApp, uploads: Collection[str], limit: int = 64_000) -> None:
        self._app, self._uploads, self._limit = app, uploads, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._uploads:
            return await self._app(scope, receive, send)
        left = self._limit

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"the body may have {self._limit // 1000} kB; this one has more")
            return message

        await self._app(scope, counted, send)


class Patience:
    """Read the rest of a refused request before answering: a client that is still sending would otherwise see a broken
    connection instead of its answer. Nothing is kept of it, and not for long."""

    def __init__(self, app: ASGIApp, limit: int, seconds: float = 5.0) -> None:
        self._app, self._limit, self._seconds = app, limit, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        asked = False  # whether the client, if it waits for leave to send, was given it
        whole = False

        async def watched() -> Message:
            nonlocal asked, whole
            asked = True
            message = await receive()
            whole = message["type"] == "http.disconnect" or not message.get("more_body", False)
            return message

        async def discard() -> None:
            left = self._limit
            while not whole and left > 0:
                left -= len((await watched()).get("body", b""))

        async def patient(message: Message) -> None:
            waits = "expect" in Headers(scope=scope) and not asked
            if message["type"] == "http.response.start" and message["status"] >= 400 and not whole and not waits:
                with suppress(TimeoutError):
                    await asyncio.wait_for(discard(), self._seconds)
            await send(message)

        await self._app(scope, watched, patient)


def _refused(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status)
