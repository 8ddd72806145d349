"""Routes: upload one image, or many, and get inspections."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect

from nfad.service.errors import ApiError
from nfad.service.models import ServedModel
from nfad.service.queue import Ticket
from nfad.service.record import Inspection
from nfad.service.routes.dependencies import ConcurrentUploads, ModelName, ServiceDep, errors
from nfad.service.schemas import Batch, BatchItem, Inspected, InspectionOut
from nfad.service.uploads import FIELD, OVERHEAD, Upload, checked, received

router = APIRouter(prefix="/v1", tags=["Judging"])
UPLOAD_PATHS = frozenset({"/v1/inspect", "/v1/batch"})  # whose bodies are streamed to the disk
BATCH_FILES, BATCH_SIZES, BATCH_SECONDS = 64, 16, 600.0
BATCH_WAIT = 30.0  # seconds that an image of a batch waits for a place in the queue
FILE = {"type": "string", "format": "binary"}


def form(description: str, schema: dict[str, object]) -> dict[str, object]:
    """For OpenAPI, which cannot see what is read from the stream: a multipart form with the field `image`."""
    fields = {"type": "object", "required": [FIELD], "properties": {FIELD: schema}}
    content = {"multipart/form-data": {"schema": fields}}
    return {"requestBody": {"required": True, "description": description, "content": content}}


@router.post(
    "/inspect",
    summary="Judge an image",
    responses=errors(400, 404, 408, 413, 429, 500, 507),
    openapi_extra=form("One image: PNG, JPEG, TIFF, BMP, WebP, GIF or PPM.", {**FILE}),
)
async def inspect(request: Request, service: ServiceDep, model: ModelName = None) -> Inspected:
    """Answered once the inspection is kept: its row committed, its photo and maps on the disk."""
    chosen, settings = service.model(model), service.settings
    chosen.queue.check_place()
    service.pictures.check_room(_announced_size(request, settings.upload_limit))
    limit = settings.upload_limit
    async with (
        _uploads(request).one(),
        received(request, service.pictures, limit=limit, files=1, total=limit, seconds=settings.upload_seconds) as [
            upload
        ],
    ):
        ticket = chosen.queue.put(await asyncio.to_thread(checked, upload))
        kept = Inspected.from_inspection(await _answer_unless_disconnected(request, ticket))
        return replace(kept, camera=chosen.monitor.camera()[0])


@router.post(
    "/batch",
    summary="Judge many images",
    responses=errors(400, 404, 408, 413, 429, 507),
    openapi_extra=form(f"Up to {BATCH_FILES} images in fields of the same name.", {"type": "array", "items": FILE}),
)
async def batch(request: Request, service: ServiceDep, model: ModelName = None) -> Batch:
    """A result or an error for each file, in their order. A batch waits for places in the queue."""
    chosen, settings = service.model(model), service.settings
    chosen.queue.check_place()
    service.pictures.check_room(_announced_size(request, settings.upload_limit))
    limit = settings.upload_limit
    total = BATCH_SIZES * limit
    seconds = max(BATCH_SECONDS, settings.upload_seconds)
    async with (
        _uploads(request).one(),
        received(request, service.pictures, limit=limit, files=BATCH_FILES, total=total, seconds=seconds) as uploads,
    ):
        at_once = asyncio.Semaphore(max(1, min(2 * chosen.model.config.batch, settings.places // 2)))

        async def result(upload: Upload) -> BatchItem:
            async with at_once:
                try:
                    ticket = await _wait_for_place(chosen, await asyncio.to_thread(checked, upload))
                    kept = await asyncio.wrap_future(ticket.answer)
                except ApiError as error:
                    service.metrics.refused.labels(error.status).inc()
                    return BatchItem(image=upload.image, inspection=None, error=str(error), status=error.status)
                inspection = InspectionOut.from_inspection(kept)
                return BatchItem(image=upload.image, inspection=inspection, error=None, status=200)

        return Batch(results=await asyncio.gather(*(result(upload) for upload in uploads)))


async def _wait_for_place(model: ServedModel, upload: Upload) -> Ticket:
    until = time.monotonic() + BATCH_WAIT
    while True:
        try:
            return model.queue.put(upload)
        except ApiError as error:
            if error.status != 429 or time.monotonic() > until:
                raise
            await asyncio.sleep(0.05)


async def _answer_unless_disconnected(request: Request, ticket: Ticket) -> Inspection:
    """The answer; a client that hangs up before its image's turn takes the image out of the queue."""
    answer = asyncio.wrap_future(ticket.answer)
    disconnected = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done() and ticket.answer.cancel():  # once its turn has come it is finished and kept
            raise ClientDisconnect
        return await answer
    finally:
        disconnected.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _uploads(request: Request) -> ConcurrentUploads:
    return request.app.state.uploads


def _announced_size(request: Request, limit: int) -> int:
    """The bytes a client says it will send, at most what is taken."""
    given = request.headers.get("content-length", "0")
    return min(int(given), BATCH_SIZES * limit + OVERHEAD) if given.isdecimal() and len(given) < 20 else 0
