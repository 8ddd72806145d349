"""Routes: the models, their false-alarm rates, and their drift."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query

from nfad.drift.state import CAMERA, Answer
from nfad.report.page import about
from nfad.service.errors import ApiError
from nfad.service.models import ServedModel, thresholds
from nfad.service.routes.dependencies import CallerDep, ModelName, ServiceDep, errors
from nfad.service.schemas import (
    Block,
    Change,
    DriftOut,
    InspectionOut,
    Metadata,
    ModelOut,
    Models,
    Question,
    QueueOut,
    RateAt,
    RateIn,
    Reviewed,
    WhatIf,
)
from nfad.service.security import not_allowed
from nfad.system.files import finite

router = APIRouter(prefix="/v1", tags=["Models"])
Name = Annotated[str, Path(max_length=64, description="A model's name.")]
SHOWN = 12  # inspections that would change sides, either way


@router.get("/models", summary="The models being served", responses=errors())
def models(service: ServiceDep) -> Models:
    return Models(models=[_model_out(model) for model in service.models.values()])


@router.put("/models/{name}/rate", summary="Set the false-alarm rate", responses=errors(400, 404, 413))
def set_rate(service: ServiceDep, caller: CallerDep, name: Name, wanted: RateIn) -> ModelOut:
    """Holds from the next image on and after a restart; past inspections keep their verdict. May be locked to tokens
    of the role administer."""
    model = service.model(name)
    if not caller.may(service.settings.role_for_verdicts):
        raise ApiError(403, not_allowed(caller, service.settings.role_for_verdicts))
    model.set_rate(wanted.rate, caller.name)
    return _model_out(model)


@router.get("/models/{name}/what-if", summary="What a rate would have done", responses=errors(404))
def what_if(service: ServiceDep, name: Name, rate: Annotated[float, Query(gt=0, lt=1)]) -> WhatIf:
    """Of the inspections that this model file has judged, and which of them are nearest to changing sides. A photo that
    is not judged stays so at every rate."""
    model = service.model(name)
    model.check_rate(rate)
    threshold, _ = model.model.held_out.at(rate)
    counts = service.store.counts(model.name, model.sha256, threshold)
    changing = service.store.changing(model.name, model.sha256, threshold, SHOWN)

    def change(what: str) -> Change:
        return Change(as_judged=counts[what], at_rate=counts[f"{what}_then"])

    return WhatIf(
        model=model.name,
        rate=rate,
        threshold=threshold,
        inspections=counts["inspections"],
        not_judged=counts["not_judged"],
        anomalous=change("anomalous"),
        newly_rejected=counts["newly_rejected"],
        newly_accepted=counts["newly_accepted"],
        **{name: [InspectionOut.from_inspection(each) for each in some] for name, some in changing.items()},
        false_alarms=change("false_alarms"),
        missed=change("missed"),
        reviewed=Reviewed(good=counts["good"], bad=counts["bad"]),
    )


@router.get("/drift", summary="Whether the line has changed", responses=errors(400, 404))
def drift(service: ServiceDep, model: ModelName = None) -> DriftOut:
    """Three questions of all judged parts in order: has the acquisition moved, do ordinary parts score as before, are
    more parts flagged than should be; and two of all photos: are too many not judged, do all show the same frame."""
    chosen = service.model(model)
    state = chosen.monitor.state()
    unjudged, since_time = state.not_judged, None
    camera, first, same_frames = chosen.monitor.camera()
    if state.verdict in CAMERA and (first or state.since is None):
        since_time = first or None
    elif unjudged.since is not None:
        newer = state.photos - unjudged.since
        since_time = service.store.time_of(chosen.name, chosen.sha256, newer, judged=False)
    elif state.since is not None:
        newer = state.parts - state.since
        since_time = service.store.time_of(chosen.name, chosen.sha256, newer, judged=True)
    return DriftOut(
        model=chosen.name,
        state=state.verdict,
        alarm=state.alarm,
        sentence=state.sentence,
        photos=state.photos,
        parts=state.parts,
        since=state.since,
        since_time=since_time,
        same_frames=same_frames,
        camera=camera,
        questions={answer.question: _question(answer) for answer in (state.nuisance, state.bulk, state.tail, unjudged)},
        normals=Block(**finite(asdict(state.normals))),
        blocks=[Block(**finite(asdict(block))) for block in state.blocks],
    )


def _model_out(served: ServedModel) -> ModelOut:
    model = served.model
    return ModelOut(
        name=served.name,
        sha256=served.sha256,
        metadata=[Metadata(name=name, value=value) for name, value in about(model).items()],
        fitted_on=model.fitted_on,
        held_out=model.held_out.count,
        false_alarm_rate=model.false_alarm_rate,
        threshold=model.threshold,
        unfiltered_threshold=model.held_out.at(model.false_alarm_rate)[1],
        smallest_rate=model.held_out.smallest_rate,
        rates=[RateAt(rate=rate, threshold=threshold) for rate, threshold in thresholds(model).items()],
        queue=QueueOut(waiting=served.queue.waiting, places=served.queue.places),
        drift=served.monitor.state().verdict,
        camera=served.monitor.camera()[0],
    )


def _question(answer: Answer) -> Question:
    return Question(**finite({name: value for name, value in asdict(answer).items() if name != "question"}))
