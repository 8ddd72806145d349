"""Routes: past inspections, and the operator's reviews of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from nfad.service.errors import ApiError
from nfad.service.record import ID_PATTERN, NOTE_LENGTH, Inspection, as_text, iso
from nfad.service.routes.dependencies import CallerDep, ServiceDep, errors
from nfad.service.schemas import InspectionOut, Page, ReviewIn, Verdict
from nfad.service.store import Filters

router = APIRouter(prefix="/v1/inspections", tags=["History"])
CHANGED = "Whether the filter has changed the verdict. A photo that is not judged is neither."
Id = Annotated[str, Path(pattern=ID_PATTERN, description="An inspection's id.")]


@router.get("", summary="Past inspections, newest first", responses=errors())
def find(
    service: ServiceDep,
    model: Annotated[str | None, Query(max_length=64)] = None,
    verdict: Verdict | None = None,
    changed: Annotated[bool | None, Query(description=CHANGED)] = None,
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
    """Paging goes by id, so that new inspections do not shift it. A time without a zone is UTC. A search reads 100,000
    names a page: a page may hold few or none, and `next` all the same."""
    filters = Filters(
        model=model and as_text(model, 64),
        verdict=verdict,
        changed=changed,
        review=review,
        since=_utc(since),
        until=_utc(until),
        search=search and as_text(search, 255),
        before=before,
        least=service.store.searched_to(before) if search else None,
    )
    found = service.store.find(filters, limit + 1)
    shown = found[:limit]
    return Page(
        inspections=[InspectionOut.from_inspection(each) for each in shown],
        next=shown[-1].id if len(found) > limit else filters.least,
    )


@router.get("/{id}", summary="One inspection", responses=errors(404))
def get(service: ServiceDep, id: Id) -> InspectionOut:
    return InspectionOut.from_inspection(existing(service.store.get(id)))


@router.put("/{id}/review", summary="Say what the operator sees", responses=errors(400, 404, 413))
def review(service: ServiceDep, caller: CallerDep, id: Id, given: ReviewIn) -> InspectionOut:
    """A later review replaces an earlier one."""
    note, now = as_text(given.note, NOTE_LENGTH), iso(datetime.now(UTC))
    return InspectionOut.from_inspection(existing(service.store.review(id, given.verdict, note, now, caller.name)))


@router.delete("/{id}/review", summary="Take a review back", responses=errors(404))
def delete_review(service: ServiceDep, caller: CallerDep, id: Id) -> InspectionOut:
    return InspectionOut.from_inspection(existing(service.store.review(id, None, None, None, caller.name)))


def existing(inspection: Inspection | None) -> Inspection:
    if inspection is None:
        raise ApiError(404, "there is no inspection of that id")
    return inspection


def _utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
