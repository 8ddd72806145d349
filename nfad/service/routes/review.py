"""Routes: what the operator's reviews say of a model, and the reviewed images as a data set."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from nfad.service.record import REVIEWS
from nfad.service.review import NEEDED, Suggestion, export, precision_and_recall, suggest
from nfad.service.routes.dependencies import ModelName, ServiceDep, errors, errors_or
from nfad.service.schemas import Counts, NowThen, Range, ReviewReport, SuggestionOut, Table
from nfad.system.files import finite

router = APIRouter(prefix="/v1/review", tags=["Review"])
BIASED = "Recall is measured on reviewed images only; review accepted parts too, or it will look better than it is."


@router.get("", summary="What reviews say of a model", responses=errors(400, 404))
def review(service: ServiceDep, model: ModelName = None) -> ReviewReport:
    """Precision and recall with exact 95 % intervals, and a rate that would do better, if there is one. Photos that are
    not judged are neither rejected nor accepted, and counted apart."""
    chosen = service.model(model)
    counts = service.store.counts(chosen.name, chosen.sha256, chosen.model.threshold)
    precision, recall = precision_and_recall(counts)
    notes = [BIASED]
    found = None
    if min(counts["good"], counts["bad"]) < NEEDED:
        notes.append(f"A rate is suggested once {NEEDED} good and {NEEDED} bad parts have been reviewed.")
    else:
        good, bad = (service.store.reviewed_scores(chosen.name, chosen.sha256, verdict) for verdict in ("good", "bad"))
        found = suggest(chosen.model, good, bad)
        if found is None:
            notes.append("No other rate would have judged fewer of the reviewed images wrongly.")
    return ReviewReport(
        model=chosen.name,
        counts=_counts(counts["inspections"], {verdict: counts[verdict] for verdict in REVIEWS}),
        not_judged=_counts(counts["not_judged"], {verdict: counts[f"not_judged_{verdict}"] for verdict in REVIEWS}),
        table=Table(
            rejected_bad=counts["bad"] - counts["missed"],
            rejected_good=counts["false_alarms"],
            accepted_bad=counts["missed"],
            accepted_good=counts["good"] - counts["false_alarms"],
        ),
        precision=Range(**finite(precision.as_dict())),
        recall=Range(**finite(recall.as_dict())),
        suggestion=found and _suggestion(found),
        notes=notes,
    )


@router.get(
    "/export",
    summary="Reviewed images as a data set",
    response_class=StreamingResponse,
    responses=errors_or("application/zip", 400, 404),
)
def export_reviewed(service: ServiceDep, model: ModelName = None) -> StreamingResponse:
    """A zip, streamed, of NAME/good and NAME/bad, as `nfad evaluate folder` reads it; unsure ones are left out."""
    chosen = service.model(model)
    headers = {"Content-Disposition": f'attachment; filename="{chosen.name}.zip"'}
    pieces = export(service.store, service.pictures, chosen.name)
    return StreamingResponse(pieces, media_type="application/zip", headers=headers)


def _counts(inspections: int, reviews: Mapping[str, int]) -> Counts:
    return Counts(inspections=inspections, reviewed=sum(reviews.values()), **reviews)


def _suggestion(found: Suggestion) -> SuggestionOut:
    (alarms, alarms_then), (missed, missed_then) = found.false_alarms, found.missed
    return SuggestionOut(
        rate=found.rate,
        threshold=found.threshold,
        false_alarms=NowThen(now=alarms, then=alarms_then),
        missed=NowThen(now=missed, then=missed_then),
        sentence=found.sentence,
    )
