"""Routes: the audit log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from nfad.service.changes import changes
from nfad.service.record import as_text
from nfad.service.routes.dependencies import ServiceDep, errors
from nfad.service.schemas import ChangeOut, Changes

router = APIRouter(prefix="/v1", tags=["Audit"])


@router.get("/changes", summary="Who changed what, newest first", responses=errors())
def find(
    service: ServiceDep,
    what: Literal["rate", "model", "review", "token"] | None = None,
    subject: Annotated[str | None, Query(max_length=64, description="Of that model, inspection or token.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="`next` of the page before.")] = None,
) -> Changes:
    """Every change of a rate, of the file behind a model's name, of a review and of a token."""
    subject = subject and as_text(subject, 64)
    found = changes(service.store.engine, limit + 1, before=before, what=what, subject=subject)
    shown = [ChangeOut(**asdict(each)) for each in found[:limit]]
    return Changes(changes=shown, next=shown[-1].number if len(found) > limit else None)
