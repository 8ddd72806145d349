"""Routes: the pictures of an inspection. They never change, so browsers may cache them for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, BinaryIO, Literal

import numpy as np
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from nfad.records import ANOMALOUS, NOT_JUDGED, Geometry
from nfad.report.pictures import bounded, heatmap, levels, outlined_at, overlay
from nfad.service.errors import ApiError
from nfad.service.pictures import jpeg, png, raw
from nfad.service.record import Inspection
from nfad.service.routes.dependencies import ServiceDep, errors_or
from nfad.service.routes.history import Id, existing
from nfad.service.service import Service

router = APIRouter(prefix="/v1/inspections", tags=["Pictures"])
OVERLAY_SIDE = 1024
IMMUTABLE = {"Cache-Control": "private, max-age=31536000, immutable"}
MapName = Literal["map", "detection_map", "unfiltered_map"]
Look = Annotated[
    Literal["overlay", "heatmap", "levels", "raw"],
    Query(description="Over the photo; coloured; 8-bit, z = value / 255 × scale; 16-bit, z = value / 65535 × 128 − 8."),
]


@router.get(
    "/{id}/photo",
    summary="The photo, at most 1600 pixels a side",
    response_class=Response,
    responses=errors_or("image/jpeg", 404),
)
def photo(service: ServiceDep, id: Id) -> Response:
    shown = jpeg(_photo(service, existing(service.store.get(id))))
    return Response(shown, media_type="image/jpeg", headers=IMMUTABLE)


@router.get(
    "/{id}/thumbnail",
    summary="The photo, at most 256 pixels a side",
    response_class=Response,
    responses=errors_or("image/jpeg", 404),
)
def thumbnail(service: ServiceDep, id: Id) -> Response:
    existing(service.store.get(id))
    path = service.pictures.path(id, "thumbnail.jpg")
    if path is None:
        raise _removed()
    return Response(path.read_bytes(), media_type="image/jpeg", headers=IMMUTABLE)


@router.get(
    "/{id}/original",
    summary="The bytes that were uploaded",
    response_class=Response,
    responses=errors_or("application/octet-stream", 404),
)
def original(service: ServiceDep, id: Id) -> Response:
    """A download, never shown: nobody has checked what else these bytes may mean to a browser."""
    suffix = existing(service.store.get(id)).suffix
    path = service.pictures.path(id, f"original{suffix}")
    if path is None:
        raise _removed()
    file = path.open("rb")  # now: retention may remove it while it is sent
    headers = IMMUTABLE | {"Content-Disposition": f'attachment; filename="{id}{suffix}"'}
    return StreamingResponse(_chunks(file), media_type="application/octet-stream", headers=headers)


@router.get(
    "/{id}/maps/{name}",
    summary="A map as a picture",
    response_class=Response,
    responses=errors_or("image/png", 404),
)
def map_picture(service: ServiceDep, id: Id, name: MapName, look: Look = "overlay") -> Response:
    """Except for the overlay, a map is in the model's view, to be laid over the photo's `view`."""
    inspection = existing(service.store.get(id))
    if name == "detection_map" and not inspection.has_detection_map:
        raise ApiError(404, "the score of this inspection is taken of its `map`; there is no other detection map")
    view = service.pictures.map(id, name)
    if view is None:
        raise _removed()
    if look == "overlay":
        shown = _overlay(service, inspection, name, view)
    elif look == "heatmap":
        shown = heatmap(view, high=inspection.scale)
    elif look == "levels":
        shown = levels(view, high=inspection.scale)
    else:
        shown = raw(view)
    return Response(png(shown), media_type="image/png", headers=IMMUTABLE)


def _overlay(service: Service, inspection: Inspection, name: MapName, view: np.ndarray) -> np.ndarray:
    """A map over the photo, outlined where it exceeds its threshold if its verdict is anomalous; never where the photo
    is not judged, with or without the filter."""
    verdict, threshold = inspection.verdict, inspection.threshold
    if name == "unfiltered_map" and verdict != NOT_JUDGED:
        verdict, threshold = inspection.unfiltered_verdict, inspection.unfiltered_threshold
    level = np.nan if threshold is None else outlined_at(verdict == ANOMALOUS, threshold)
    shown = bounded(_photo(service, inspection), OVERLAY_SIDE)
    height, width = shown.shape[:2]
    box = inspection.view
    geometry = Geometry(
        height, width, box["top"] * height, box["left"] * width, box["height"] * height, box["width"] * width
    )
    return overlay(shown, geometry.unproject(view), inspection.scale, level)


def _photo(service: Service, inspection: Inspection) -> np.ndarray:
    photo = service.pictures.photo(inspection.id, inspection.suffix)
    if photo is None:
        raise _removed()
    return photo


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while chunk := file.read(1 << 18):
            yield chunk


def _removed() -> ApiError:
    return ApiError(404, "the pictures of this inspection were removed to keep the disk free; its record remains")
