"""Routes: judge images, one or many."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect

from nfad.service.answers import Batch, BatchItem, Inspected
from nfad.service.models import ServedModel
from nfad.service.queue import Ticket
from nfad.service.record import Inspection
from nfad.service.refusal import Refused
from nfad.service.routes import Here, ModelName, refusals
from nfad.service.uploads import FIELD, OVERHEAD, Upload, checked, received

router = APIRouter(prefix="/v1", tags=["Judging"])
ADDRESSES = frozenset({"/v1/inspect", "/v1/batch"})  # whose bodies go to the disk
BATCH_FILES, BATCH_SIZES, BATCH_SECONDS = 64, 16, 600.0
PATIENCE = 30.0  # seconds an image of a batch waits for a place in the line


def body(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    """OpenAPI cannot see what is read from the stream."""
    form = {"type": "object", "required": [FIELD], "properties": {FIELD: schema}}
    content = {"multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "description": description, "content": content}}


FILE = {"type": "string", "format": "binary"}


@router.post(
    "/inspect",
    summary="Judge an image",
    responses=refusals(400, 404, 408, 413, 429, 500, 507),
    openapi_extra=body("One image: PNG, JPEG, TIFF, BMP, WebP, GIF or PPM.", FILE),
)
async def inspect(request: Request, here: Here, model: ModelName = None) -> Inspected:
    """Answered once the inspection is kept: its row committed, its photo and maps on the disk."""
    chosen, settings = here.model(model), here.settings
    chosen.queue.check_place()
    here.shelf.check_room(_announced(request))
    limit = settings.upload_limit
    async with (
        request.app.state.uploads.one(),
        received(request, here.shelf, limit=limit, files=1, total=limit, seconds=settings.upload_seconds) as [upload],
    ):
        ticket = chosen.queue.put(await asyncio.to_thread(checked, upload))
        return Inspected.of(await _answer(request, ticket))


@router.post(
    "/batch",
    summary="Judge many images",
    responses=refusals(400, 404, 408, 413, 429, 507),
    openapi_extra=body(f"Up to {BATCH_FILES} images in fields of the same name.", {"type": "array", "items": FILE}),
)
async def batch(request: Request, here: Here, model: ModelName = None) -> Batch:
    """A result or an error for each file, in their order. A batch waits for places in the queue."""
    chosen, settings = here.model(model), here.settings
    chosen.queue.check_place()
    here.shelf.check_room(_announced(request))
    limit = settings.upload_limit
    total = BATCH_SIZES * limit
    seconds = max(BATCH_SECONDS, settings.upload_seconds)
    async with (
        request.app.state.uploads.one(),
        received(request, here.shelf, limit=limit, files=BATCH_FILES, total=total, seconds=seconds) as uploads,
    ):
        at_once = asyncio.Semaphore(max(1, min(2 * chosen.model.config.batch, settings.places // 2)))

        async def judged(upload: Upload) -> BatchItem:
            async with at_once:
                try:
                    ticket = await _place(chosen, await asyncio.to_thread(checked, upload))
                    kept = await _answer(None, ticket)
                except Refused as error:
                    here.metrics.refused.labels(error.status).inc()
                    return BatchItem(file_name=upload.file_name, inspection=None, error=str(error), status=error.status)
                return BatchItem(file_name=upload.file_name, inspection=Inspected.of(kept), error=None, status=200)

        return Batch(results=await asyncio.gather(*(judged(upload) for upload in uploads)))


async def _place(model: ServedModel, upload: Upload) -> Ticket:
    """A place in the line, waited for."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return model.queue.put(upload)
        except Refused as error:
            if error.status != 429 or time.monotonic() > until:
                raise
            await asyncio.sleep(0.05)


async def _answer(request: Request | None, ticket: Ticket) -> Inspection:
    """The answer, or nothing more for a client that has hung up before its image's turn."""
    answer = asyncio.wrap_future(ticket.answer)
    if request is None:
        return await answer
    gone = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done() and ticket.answer.cancel():  # once judging has begun it is finished and kept
            raise ClientDisconnect
        return await answer
    finally:
        gone.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _announced(request: Request) -> int:
    """The bytes a client says it will send, at most what is taken."""
    given = request.headers.get("content-length", "0")
    most = BATCH_SIZES * request.app.state.service.settings.upload_limit + OVERHEAD
    return min(int(given), most) if given.isdecimal() and len(given) < 20 else 0
