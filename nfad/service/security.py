"""Middleware: authentication by token, cross-origin and DNS-rebinding protection, security headers, body limits."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nfad.service.access import OPERATE, VIEW, Access, Caller, bearer_token
from nfad.service.errors import ApiError
from nfad.service.throttle import TokenThrottle

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
PUBLIC_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/v1/login", "/v1/logout", "/v1/me"})
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
    is not listed as public needs a token: the role view to read, operate for all else; routes may ask for more. A
    wrong one counts at every address, else a public one could be asked."""

    def __init__(self, app: ASGIApp, access: Access, public: Collection[str], throttle: TokenThrottle) -> None:
        self._app, self._access, self._throttle = app, access, throttle
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

        if self._access.is_stale:
            await run_in_threadpool(self._access.refresh)
        await (self._error(scope) or self._app)(scope, receive, send_hardened)

    def _error(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        # Without a token the only protection is that no other host name leads here (DNS rebinding).
        if self._access.is_open and not is_local_host(headers.get("host", "")):
            return _error(403, "this service answers only to localhost, 127.0.0.1 and [::1]; open it by that name")
        safe = scope["method"] in SAFE_METHODS
        if not safe and is_cross_origin(headers):
            return _error(403, "this request comes from another site's page; use the service's own")
        given = bearer_token(headers)
        if not self._access.is_open and given is not None:
            client = scope["client"][0] if scope.get("client") else ""
            try:
                self._throttle.admit(client, self._access.by_secret(given) is not None)
            except ApiError as error:
                return JSONResponse({"error": str(error)}, error.status, error.headers)
        caller = scope.setdefault("state", {})["caller"] = self._access.caller(headers)
        if scope["path"] in self._public:
            return None
        if caller is None:
            response = _error(401, "this needs the service's token; log in, or send Authorization: Bearer TOKEN")
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        needed = VIEW if safe else OPERATE
        return None if caller.may(needed) else _error(403, not_allowed(caller, needed))


def not_allowed(caller: Caller, needed: str) -> str:
    return f"this needs a token of the role {needed}; {caller.name} may {caller.role}"


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
