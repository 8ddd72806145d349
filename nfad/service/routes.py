"""What all routes share: the service they belong to, and how refusals are documented."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, Query, Request

from nfad.service.answers import Error
from nfad.service.refusal import Refused
from nfad.service.service import Service

REASONS = {
    400: "The request or the image cannot be read.",
    401: "The token is missing or wrong.",
    403: "Another site's page, or another host name.",
    404: "There is no such thing.",
    408: "The upload took too long.",
    413: "The upload is too large.",
    422: "A parameter is not allowed.",
    429: "The queue is full; Retry-After says when to try again.",
    500: "The image could not be judged for a reason that lies with the service.",
    503: "The database does not answer, or the service is stopping.",
    507: "The disk is full.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: those named, and those any request may meet."""
    return {s: {"model": Error, "description": REASONS[s]} for s in sorted({*statuses, 401, 403, 422, 503})}


async def service_of(request: Request) -> Service:
    return request.app.state.service  # async, or every request would first go to a thread for this


Here = Annotated[Service, Depends(service_of)]
ModelName = Annotated[
    str | None, Query(description="Name of the model; may be left out when there is one.", max_length=64)
]


class Uploads:
    """How many uploads are arriving; each holds a connection and room on the disk."""

    def __init__(self, most: int) -> None:
        self._most, self._count = most, 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        if self._count >= self._most:
            raise Refused(429, f"{self._most} uploads are arriving already; send this one again in 1 s", 1)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
