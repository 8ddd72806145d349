"""What the service logs: lines for people, or JSON with the time and the request that each is about."""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import time
from contextvars import ContextVar
from datetime import UTC, datetime

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("nfad.service.requests")
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")
HEADER = "X-Request-Id"
OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, request, then what else was given (`extra`)."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request": request_id.get(),
        }
        said |= {name: value for name, value in vars(record).items() if name not in OWN}
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=True, default=str)


def configure(form: str) -> None:
    """Text: warnings, as before. JSON: also a line a request. The stream is stderr; its rotation is the system's."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    log.setLevel(logging.INFO if form == "json" else logging.WARNING)


class RequestIds:
    """Names every request, by its X-Request-Id if it is a plain word, tells the name in the answer, and logs it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given, since, status = Headers(scope=scope).get(HEADER, ""), time.perf_counter(), 0
        id = given if GIVEN.fullmatch(given) else secrets.token_hex(8)
        token = request_id.set(id)

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = id
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        finally:
            caller = scope.get("state", {}).get("caller")
            log.info(
                "%s %s", scope["method"], scope["path"],
                extra={
                    "status": status, "seconds": round(time.perf_counter() - since, 4),
                    "client": scope["client"][0] if scope.get("client") else None, "caller": caller and caller.name,
                },
            )  # fmt: skip
            request_id.reset(token)
