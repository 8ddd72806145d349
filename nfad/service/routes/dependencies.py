"""What routes share: the service, common parameters, how errors are documented, and a limit on concurrent uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, Query, Request

from nfad.service.access import Caller
from nfad.service.errors import ApiError
from nfad.service.schemas import Error
from nfad.service.service import Service

REASONS = {
    400: "The request or the image cannot be read.",
    401: "The token is missing, wrong or revoked.",
    403: "Another site's page, another host name, or a token whose role does not allow it.",
    404: "There is no such thing.",
    408: "The upload took too long.",
    413: "The upload is too large.",
    422: "A parameter is not allowed.",
    429: "The queue is full, or too many wrong tokens came; Retry-After says when to try again.",
    500: "The image could not be judged for a reason that lies with the service.",
    503: "The database does not answer, or the service is stopping.",
    507: "The disk is full.",
}
ALWAYS = {401, 403, 422, 429, 503}  # errors that any request may get

Responses = dict[int | str, dict[str, Any]]  # as FastAPI wants them


def errors(*statuses: int) -> Responses:
    """For OpenAPI: the errors named, and those that any request may get."""
    return {s: {"model": Error, "description": REASONS[s]} for s in sorted({*statuses, *ALWAYS})}


def errors_or(media_type: str, *statuses: int) -> Responses:
    """For OpenAPI: the same, and a 200 that is not JSON."""
    return errors(*statuses) | {200: {"content": {media_type: {}}}}


async def get_service(request: Request) -> Service:
    return request.app.state.service  # async, or FastAPI would use a thread for it at every request


async def get_caller(request: Request) -> Caller:
    return request.scope["state"]["caller"]


CallerDep = Annotated[Caller, Depends(get_caller)]
ServiceDep = Annotated[Service, Depends(get_service)]
ModelName = Annotated[
    str | None, Query(description="Name of the model; may be left out when there is one.", max_length=64)
]


class ConcurrentUploads:
    """Bounds how many uploads arrive at once; each holds a connection and room on the disk."""

    def __init__(self, most: int) -> None:
        self._most, self._count = most, 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        if self._count >= self._most:
            raise ApiError(429, f"{self._most} uploads are arriving already; send this one again in 1 s", 1)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
