"""Middleware: authentication by token, cross-origin and DNS-rebinding protection, security headers, body limits."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nfad.service.errors import ApiError
from nfad.service.throttle import TokenThrottle

COOKIE = "nfad"
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
PUBLIC_PATHS = frozenset({"/healthz", "/v1/login", "/v1/logout", "/v1/me"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def session_cookie(token: str) -> str:
    """What the page's cookie holds: derived from the token, so that the browser need not keep the token itself."""
    return hmac.new(token.encode(), b"nfad page", hashlib.sha256).hexdigest()


def tokens_match(given: str, token: str) -> bool:
    """A constant-time comparison: its duration says nothing about the token."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def is_authenticated(headers: Mapping[str, str], token: str | None) -> bool:
    """Whether a request carries the token or the session cookie; where there is no token, every request is."""
    if token is None:
        return True
    given = bearer_token(headers)
    if given is not None and tokens_match(given, token):
        return True
    return any(tokens_match(each, session_cookie(token)) for each in cookies(headers.get("cookie", ""), COOKIE))


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """What a program sends with every request; None where it sends none."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def cookies(header: str, name: str) -> Iterator[str]:
    """The values under that name. Programs of the same host share this header and write what they like into it, at
    which `http.cookies` stops reading, so it is only cut at its semicolons, as browsers do."""
    for each in header.split(";"):
        key, _, value = each.partition("=")
        if key.strip() == name:
            yield value.strip()


def is_cross_origin(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that another origin's page made this request; other clients send no such headers."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:  # e.g. http://[, which is nobody's
        return True


def is_local_host(host: str) -> bool:
    """Whether a Host header names this machine."""
    try:
        return urlsplit(f"//{host}").hostname in LOCAL_HOSTS
    except ValueError:
        return False


class Authentication:
    """Checks every request before the application sees it, and adds the security headers to every response. Whatever
    is not listed as public needs the token. A wrong one counts at every address, else a public one could be asked."""

    def __init__(self, app: ASGIApp, token: str | None, public: Collection[str], throttle: TokenThrottle) -> None:
        self._app, self._token, self._throttle = app, token, throttle
        self._public = PUBLIC_PATHS | frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # there are no websockets here
            return await send({"type": "websocket.close", "code": 1008})

        async def send_hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await (self._error(scope) or self._app)(scope, receive, send_hardened)

    def _error(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        # Without a token the only protection is that no other host name leads here (DNS rebinding).
        if self._token is None and not is_local_host(headers.get("host", "")):
            return _error(403, "this service answers only to localhost, 127.0.0.1 and [::1]; open it by that name")
        if scope["method"] not in SAFE_METHODS and is_cross_origin(headers):
            return _error(403, "this request comes from another site's page; use the service's own")
        given = bearer_token(headers)
        if self._token is not None and given is not None:
            client = scope["client"][0] if scope.get("client") else ""
            try:
                self._throttle.admit(client, tokens_match(given, self._token))
            except ApiError as error:
                return JSONResponse({"error": str(error)}, error.status, error.headers)
        if scope["path"] not in self._public and not is_authenticated(headers, self._token):
            response = _error(401, "this needs the service's token; log in, or send Authorization: Bearer TOKEN")
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        return None


class BodyLimit:
    """Bounds every request body, except uploads, which are written to disk under limits of their own. Also before a
    login, whose body is read into memory before anybody is authenticated."""

    def __init__(self, app: ASGIApp, uploads: Collection[str], limit: int = 64_000) -> None:
        self._app, self._uploads, self._limit = app, uploads, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._uploads:
            return await self._app(scope, receive, send)
        left = self._limit

        async def receive_limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"the body may have {self._limit // 1000} kB; this one has more")
            return message

        await self._app(scope, receive_limited, send)


class LingeringClose:
    """Reads and discards the rest of a request before an error is sent (nginx's `lingering_close`): a client that is
    still sending would see a broken connection instead of the error. At most `limit` bytes and `seconds`."""

    def __init__(self, app: ASGIApp, limit: int, seconds: float = 5.0) -> None:
        self._app, self._limit, self._seconds = app, limit, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        continued = False  # whether a client that sent Expect: 100-continue was told to go on
        complete = False

        async def receive_watched() -> Message:
            nonlocal continued, complete
            continued = True
            message = await receive()
            complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
            return message

        async def discard() -> None:
            left = self._limit
            while not complete and left > 0:
                left -= len((await receive_watched()).get("body", b""))

        async def send_after_discarding(message: Message) -> None:
            waits = "expect" in Headers(scope=scope) and not continued
            if message["type"] == "http.response.start" and message["status"] >= 400 and not complete and not waits:
                with suppress(TimeoutError):
                    await asyncio.wait_for(discard(), self._seconds)
            await send(message)

        await self._app(scope, receive_watched, send_after_discarding)


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
