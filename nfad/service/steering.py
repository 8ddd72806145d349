"""Routes: the models, their rates, their drift, and what the operator's reviews say of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from nfad.drift.state import Answer as DriftQuestion
from nfad.report.page import about
from nfad.service.answers import (
    Block,
    Change,
    Counts,
    DriftAnswer,
    Fact,
    Inspected,
    ModelFacts,
    Models,
    NowThen,
    Places,
    Question,
    Range,
    RateAt,
    RateIn,
    ReviewAnswer,
    Reviewed,
    SuggestionAnswer,
    Table,
    WhatIf,
)
from nfad.service.models import ServedModel, thresholds
from nfad.service.review import NEEDED, Suggestion, export, precision_and_recall, suggest
from nfad.service.routes import Here, ModelName, refusals
from nfad.system.files import finite

router = APIRouter(prefix="/v1")
Name = Annotated[str, Path(max_length=64, description="A model's name.")]
SHOWN = 12  # inspections that would change sides, either way
BIASED = "Recall is measured on reviewed images only; review accepted parts too, or it will look better than it is."


@router.get("/models", summary="The models being served", responses=refusals(), tags=["Models"])
def models(here: Here) -> Models:
    return Models(models=[_facts(model) for model in here.models.values()])


@router.put(
    "/models/{name}/rate", summary="Set the false-alarm rate", responses=refusals(400, 404, 413), tags=["Models"]
)
def set_rate(here: Here, name: Name, wanted: RateIn) -> ModelFacts:
    """Holds from the next image on and after a restart; past inspections keep their verdict."""
    model = here.model(name)
    model.set_rate(wanted.rate)
    return _facts(model)


@router.get("/models/{name}/what-if", summary="What a rate would have done", responses=refusals(404), tags=["Models"])
def what_if(here: Here, name: Name, rate: Annotated[float, Query(gt=0, lt=1)]) -> WhatIf:
    """Of the inspections that this model file has judged, and which of them are nearest to changing sides."""
    model = here.model(name)
    model.check_rate(rate)
    threshold, _ = model.model.held_out.at(rate)
    counts = here.store.counts(model.name, model.sha256, threshold)
    changing = here.store.changing(model.name, model.sha256, threshold, SHOWN)

    def change(what: str) -> Change:
        return Change(as_judged=counts[what], at_rate=counts[f"{what}_then"])

    return WhatIf(
        model=model.name,
        rate=rate,
        threshold=threshold,
        inspections=counts["inspections"],
        anomalous=change("anomalous"),
        newly_rejected=counts["newly_rejected"],
        newly_accepted=counts["newly_accepted"],
        **{name: [Inspected.of(each) for each in some] for name, some in changing.items()},
        false_alarms=change("false_alarms"),
        missed=change("missed"),
        reviewed=Reviewed(good=counts["good"], bad=counts["bad"]),
    )


@router.get("/drift", summary="Whether the line has changed", responses=refusals(400, 404), tags=["Models"])
def drift(here: Here, model: ModelName = None) -> DriftAnswer:
    """Three questions of all inspections in order: has the acquisition moved, do ordinary parts score as before, are
    more parts flagged than should be."""
    chosen = here.model(model)
    state = chosen.drift.state()
    since_time = None
    if state.since is not None:
        since_time = here.store.time_of_part(chosen.name, chosen.sha256, state.parts - state.since)
    return DriftAnswer(
        model=chosen.name,
        state=state.verdict,
        alarm=state.alarm,
        sentence=state.sentence,
        parts=state.parts,
        since=state.since,
        since_time=since_time,
        questions={answer.question: _question(answer) for answer in (state.nuisance, state.bulk, state.tail)},
        normals=Block(**finite(asdict(state.normals))),
        blocks=[Block(**finite(asdict(block))) for block in state.blocks],
    )


@router.get("/review", summary="What reviews say of a model", responses=refusals(400, 404), tags=["Review"])
def review(here: Here, model: ModelName = None) -> ReviewAnswer:
    """Precision and recall with exact 95 % intervals, and a rate that would do better, if there is one."""
    chosen = here.model(model)
    counts = here.store.counts(chosen.name, chosen.sha256, chosen.model.threshold)
    precision, recall = precision_and_recall(counts)
    notes = [BIASED]
    found = None
    if min(counts["good"], counts["bad"]) < NEEDED:
        notes.append(f"A rate is suggested once {NEEDED} good and {NEEDED} bad parts have been reviewed.")
    else:
        good, bad = (here.store.reviewed_scores(chosen.name, chosen.sha256, verdict) for verdict in ("good", "bad"))
        found = suggest(chosen.model, good, bad)
        if found is None:
            notes.append("No other rate would have judged fewer of the reviewed images wrongly.")
    return ReviewAnswer(
        model=chosen.name,
        counts=Counts(
            inspections=counts["inspections"],
            reviewed=counts["good"] + counts["bad"] + counts["unsure"],
            **{verdict: counts[verdict] for verdict in ("good", "bad", "unsure")},
        ),
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
    "/review/export",
    summary="Reviewed images as a data set",
    response_class=StreamingResponse,
    responses=refusals(400, 404) | {200: {"content": {"application/zip": {}}}},
    tags=["Review"],
)
def export_reviewed(here: Here, model: ModelName = None) -> StreamingResponse:
    """A zip, streamed, of NAME/good and NAME/bad, as `nfad evaluate folder` reads it; unsure ones are left out."""
    chosen = here.model(model)
    headers = {"Content-Disposition": f'attachment; filename="{chosen.name}.zip"'}
    pieces = export(here.store, here.shelf, chosen.name)
    return StreamingResponse(pieces, media_type="application/zip", headers=headers)


def _facts(served: ServedModel) -> ModelFacts:
    model = served.model
    return ModelFacts(
        name=served.name,
        sha256=served.sha256,
        facts=[Fact(name=name, value=value) for name, value in about(model).items()],
        fitted_on=model.fitted_on,
        held_out=len(model.held_out.filtered),
        false_alarm_rate=model.false_alarm_rate,
        threshold=model.threshold,
        unfiltered_threshold=model.held_out.at(model.false_alarm_rate)[1],
        smallest_rate=model.held_out.smallest_rate,
        rates=[RateAt(rate=rate, threshold=threshold) for rate, threshold in thresholds(model).items()],
        queue=Places(waiting=served.queue.waiting, places=served.queue.places),
        drift=served.drift.state().verdict,
    )


def _question(answer: DriftQuestion) -> Question:
    return Question(**finite({name: value for name, value in asdict(answer).items() if name != "question"}))


def _suggestion(found: Suggestion) -> SuggestionAnswer:
    (alarms, alarms_then), (missed, missed_then) = found.false_alarms, found.missed
    return SuggestionAnswer(
        rate=found.rate,
        threshold=found.threshold,
        false_alarms=NowThen(now=alarms, then=alarms_then),
        missed=NowThen(now=missed, then=missed_then),
        sentence=found.sentence,
    )
