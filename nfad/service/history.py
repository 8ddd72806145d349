"""Routes: past inspections, their pictures, and what the operator says of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, BinaryIO, Literal

import numpy as np
from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse

from nfad.records import ANOMALOUS, Geometry
from nfad.report.pictures import bounded, heatmap, levels, outlined_at, overlay
from nfad.service.answers import Inspected, Page, ReviewIn
from nfad.service.record import ID_PATTERN, NOTE_LENGTH, Inspection, as_text, iso
from nfad.service.refusal import Refused
from nfad.service.routes import Here, refusals
from nfad.service.service import Service
from nfad.service.shelf import jpeg, png, raw
from nfad.service.store import Filters

router = APIRouter(prefix="/v1/inspections", tags=["History"])
OVERLAY_SIDE = 1024
FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}  # an inspection never changes

Id = Annotated[str, Path(pattern=ID_PATTERN, description="An inspection's id.")]
MapName = Literal["map", "detection_map", "unfiltered_map"]
Look = Annotated[
    Literal["overlay", "heatmap", "levels", "raw"],
    Query(description="Over the photo; coloured; 8-bit, z = value / 255 × scale; 16-bit, z = value / 65535 × 128 − 8."),
]


def picture(kind: str) -> dict:
    """For OpenAPI: a picture, not JSON."""
    return {"response_class": Response, "responses": refusals(404) | {200: {"content": {kind: {}}}}}


@router.get("", summary="Past inspections, newest first", responses=refusals())
def find(
    here: Here,
    model: Annotated[str | None, Query(max_length=64)] = None,
    verdict: Literal["normal", "anomalous"] | None = None,
    changed: Annotated[bool | None, Query(description="Whether filter and control disagree.")] = None,
    review: Annotated[
        Literal["good", "bad", "unsure", "none", "any"] | None,
        Query(description="What the operator said; `none`: nothing yet, `any`: something."),
    ] = None,
    since: Annotated[datetime | None, Query(description="From this moment on.")] = None,
    until: Annotated[datetime | None, Query(description="Before this moment.")] = None,
    search: Annotated[str | None, Query(max_length=255, description="Part of the file name.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(pattern=ID_PATTERN, description="`next` of the page before.")] = None,
) -> Page:
    """Paging goes by id, so that new inspections do not shift it. A time without a zone is UTC."""
    filters = Filters(
        model=model and as_text(model, 64),
        verdict=verdict,
        changed=changed,
        review=review,
        since=_utc(since),
        until=_utc(until),
        search=search and as_text(search, 255),
        before=before,
    )
    found = here.store.find(filters, limit + 1)
    shown = found[:limit]
    return Page(inspections=[Inspected.of(each) for each in shown], next=shown[-1].id if len(found) > limit else None)


@router.get("/{id}", summary="One inspection", responses=refusals(404))
def get(here: Here, id: Id) -> Inspected:
    return Inspected.of(_known(here.store.get(id)))


@router.put("/{id}/review", summary="Say what the operator sees", responses=refusals(400, 404, 413))
def review(here: Here, id: Id, said: ReviewIn) -> Inspected:
    """A later review replaces an earlier one."""
    now = iso(datetime.now(UTC))
    return Inspected.of(_known(here.store.review(id, said.verdict, as_text(said.note, NOTE_LENGTH), now)))


@router.delete("/{id}/review", summary="Take a review back", responses=refusals(404))
def take_back(here: Here, id: Id) -> Inspected:
    return Inspected.of(_known(here.store.review(id, None, None, None)))


@router.get("/{id}/photo", summary="The photo, at most 1600 pixels a side", **picture("image/jpeg"))
def photo(here: Here, id: Id) -> Response:
    return Response(jpeg(_photo(here, _known(here.store.get(id)))), media_type="image/jpeg", headers=FOR_EVER)


@router.get("/{id}/thumbnail", summary="The photo, at most 256 pixels a side", **picture("image/jpeg"))
def thumbnail(here: Here, id: Id) -> Response:
    _known(here.store.get(id))
    path = here.shelf.path(id, "thumbnail.jpg")
    if path is None:
        raise _removed()
    return Response(path.read_bytes(), media_type="image/jpeg", headers=FOR_EVER)


@router.get("/{id}/original", summary="The bytes that were uploaded", **picture("application/octet-stream"))
def original(here: Here, id: Id) -> Response:
    """A download, never shown: nobody has checked what else these bytes may mean to a browser."""
    suffix = _known(here.store.get(id)).suffix
    path = here.shelf.path(id, f"original{suffix}")
    if path is None:
        raise _removed()
    file = path.open("rb")  # now: retention may come between
    headers = FOR_EVER | {"Content-Disposition": f'attachment; filename="{id}{suffix}"'}
    return StreamingResponse(_chunks(file), media_type="application/octet-stream", headers=headers)


@router.get("/{id}/maps/{name}", summary="A map as a picture", **picture("image/png"))
def map_picture(here: Here, id: Id, name: MapName, look: Look = "overlay") -> Response:
    """Except for the overlay, a map is in the model's view, to be laid over the photo's `view`."""
    inspection = _known(here.store.get(id))
    view = here.shelf.map(id, name)
    if view is None:
        raise _removed()
    if look == "overlay":
        verdict, threshold = inspection.verdict, inspection.threshold
        if name == "unfiltered_map":
            verdict, threshold = inspection.unfiltered_verdict, inspection.unfiltered_threshold
        shown = _over_photo(here, inspection, view, outlined_at(verdict == ANOMALOUS, threshold))
    elif look == "heatmap":
        shown = heatmap(view, high=inspection.scale)
    else:
        shown = levels(view, high=inspection.scale) if look == "levels" else raw(view)
    return Response(png(shown), media_type="image/png", headers=FOR_EVER)


def _over_photo(here: Service, inspection: Inspection, view: np.ndarray, level: float) -> np.ndarray:
    shown = bounded(_photo(here, inspection), OVERLAY_SIDE)
    height, width = shown.shape[:2]
    box = inspection.view
    geometry = Geometry(
        height, width, box["top"] * height, box["left"] * width, box["height"] * height, box["width"] * width
    )
    return overlay(shown, geometry.unproject(view), inspection.scale, level)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while chunk := file.read(1 << 18):
            yield chunk


def _photo(here: Service, inspection: Inspection) -> np.ndarray:
    photo = here.shelf.photo(inspection.id, inspection.suffix)
    if photo is None:
        raise _removed()
    return photo


def _known(inspection: Inspection | None) -> Inspection:
    if inspection is None:
        raise Refused(404, "there is no inspection of that id")
    return inspection


def _removed() -> Refused:
    return Refused(404, "the pictures of this inspection were removed to keep the disk free; its record remains")


def _utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
