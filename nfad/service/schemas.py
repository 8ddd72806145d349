"""The schemas of requests and responses, as OpenAPI describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,  # pydantic takes typing's own from Python 3.12 on
    Self,
)

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from nfad.records import RECORD_FIELDS, InspectionRecord
from nfad.service.record import NOTE_LENGTH, Inspection

Verdict = Literal["normal", "anomalous", "not judged"]
Number = Annotated[float | None, Field(description="null where it is not defined")]


class Error(BaseModel):
    error: str = Field(examples=["the upload is empty (0 bytes)"])


class View(BaseModel):
    """Where the model looked, as shares of the photo."""

    left: float
    top: float
    width: float
    height: float


class Review(BaseModel):
    """The operator's own verdict."""

    verdict: Literal["good", "bad", "unsure"]
    note: str
    time: str


class Images(TypedDict):
    """Addresses of the pictures; `detection_map` only where the score is taken of another map than `map`."""

    photo: str
    thumbnail: str
    original: str
    map: str
    unfiltered_map: str
    detection_map: NotRequired[str]


def images_of(inspection: Inspection) -> Images:
    base = f"/v1/inspections/{inspection.id}"
    images = Images(
        photo=f"{base}/photo",
        thumbnail=f"{base}/thumbnail",
        original=f"{base}/original",
        map=f"{base}/maps/map",
        unfiltered_map=f"{base}/maps/unfiltered_map",
    )
    if inspection.has_detection_map:
        images["detection_map"] = f"{base}/maps/detection_map"
    return images


@dataclass(frozen=True, kw_only=True)
class InspectionOut(InspectionRecord):
    """The inspection record, field by field as docs/record.md says, then what the service adds to it."""

    # Every field is in every response, also those that have a default.
    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    width: int
    height: int
    view: View
    scale: Annotated[float, Field(description="the z-score at which colours are full", examples=[9.7])]
    review: Review | None
    images: Annotated[Images | None, Field(description="null once retention has removed them")]

    @classmethod
    def from_inspection(cls, inspection: Inspection) -> Self:
        review = None
        if inspection.review_verdict is not None:
            note, time = inspection.review_note or "", inspection.review_time or ""
            review = Review.model_validate({"verdict": inspection.review_verdict, "note": note, "time": time})
        return cls(
            **{name: getattr(inspection, name) for name in RECORD_FIELDS},
            width=inspection.width,
            height=inspection.height,
            view=View(**inspection.view),
            scale=inspection.scale,
            review=review,
            images=images_of(inspection) if inspection.pictures else None,
        )


@dataclass(frozen=True, kw_only=True)
class Inspected(InspectionOut):
    """What whoever sent the photo is answered: the inspection, and whether the camera can be believed."""

    camera: Annotated[str | None, Field(description="what is wrong with the camera as of this photo, or null")] = None


class BatchItem(BaseModel):
    """One file of a batch: an inspection, or an error with the status it would have had alone."""

    image: str = Field(description="the file's name, as the client called it")
    inspection: InspectionOut | None
    error: str | None
    status: int


class Batch(BaseModel):
    results: list[BatchItem]


class Page(BaseModel):
    inspections: list[InspectionOut]
    next: str | None = Field(description="pass as `before` for the next page; null on the last")


class ReviewIn(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"verdict": "bad", "note": "dent"}]})
    verdict: Literal["good", "bad", "unsure"]
    note: str = Field("", max_length=NOTE_LENGTH)


class RateIn(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"rate": 0.05}]})
    rate: float = Field(gt=0, lt=1, description="share of normal images you accept being flagged")


class TokenIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    token: str = Field(max_length=1000)


class Me(BaseModel):
    login_needed: bool
    logged_in: bool
    version: str
    name: str | None = Field(description="Of the token; `local` where none is needed.")
    role: Literal["view", "operate", "administer"] | None
    may_change_verdicts: bool = Field(description="Whether it may set a rate.")
    role_for_verdicts: Literal["operate", "administer"] = Field(description="The least that may.")


class ChangeOut(BaseModel):
    number: int
    time: str
    who: str = Field(description="The name of a token, or nfad serve, or nfad station.")
    what: Literal["rate", "model", "review", "token"]
    subject: str = Field(description="A model's or token's name, or an inspection's id.")
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Changes(BaseModel):
    changes: list[ChangeOut]
    next: int | None


class Metadata(BaseModel):
    name: str
    value: str


class RateAt(BaseModel):
    rate: float
    threshold: float


class QueueOut(BaseModel):
    waiting: int
    places: int


class ModelOut(BaseModel):
    """A model being served."""

    name: str
    sha256: str = Field(description="of the model file")
    metadata: list[Metadata]
    fitted_on: int
    held_out: int
    false_alarm_rate: float
    threshold: float
    unfiltered_threshold: float
    smallest_rate: float = Field(description="the lowest false-alarm rate its held-out normals support")
    rates: list[RateAt]
    queue: QueueOut
    drift: str = Field(examples=["steady"])
    camera: str | None = Field(examples=["the camera is covered"])


class Models(BaseModel):
    models: list[ModelOut]


class Change(BaseModel):
    as_judged: int
    at_rate: int


class Reviewed(BaseModel):
    good: int
    bad: int


class WhatIf(BaseModel):
    """What another rate would have done to the inspections of this model file."""

    model: str
    rate: float
    threshold: float
    inspections: int = Field(description="those that were judged")
    not_judged: int = Field(description="photos that were not, which no rate changes")
    anomalous: Change
    newly_rejected: int
    newly_accepted: int
    rejected: list[InspectionOut] = Field(description="of the newly rejected the nearest to the threshold, 12 at most")
    accepted: list[InspectionOut] = Field(description="of the newly accepted the nearest to the threshold, 12 at most")
    false_alarms: Change
    missed: Change
    reviewed: Reviewed


class Question(BaseModel):
    alarm: bool
    level: Number = Field(description="evidence as a share of what raises the alarm")
    since: int | None = Field(description="number of a part; of `not_judged`, of a photo")
    moved: list[str]
    effect: str


class Block(BaseModel):
    """A few consecutive inspections: how many were flagged, and of every number the 10th, 50th and 90th percentile."""

    first: int
    parts: int
    flagged: int
    low: dict[str, Number]
    median: dict[str, Number]
    high: dict[str, Number]


class DriftOut(BaseModel):
    """Whether the line still looks like the normals the model was fitted on."""

    model: str
    state: str = Field(examples=["steady"])
    alarm: bool
    sentence: str
    photos: int
    parts: int = Field(description="photos that were judged")
    since: int | None = Field(description="number of a part")
    since_time: str | None = Field(description="of the first photo that was not judged, if that is the alarm")
    camera: str | None = Field(description="what is wrong with the camera; null while nothing is")
    same_frames: int = Field(description="photos in a row, to the newest, that show the very same frame")
    questions: dict[str, Question]
    normals: Block
    blocks: list[Block]


class Range(BaseModel):
    value: Number
    low: float
    high: float


class Counts(BaseModel):
    inspections: int
    reviewed: int
    good: int
    bad: int
    unsure: int


class Table(BaseModel):
    rejected_bad: int
    rejected_good: int
    accepted_bad: int
    accepted_good: int


class NowThen(BaseModel):
    now: int
    then: int


class SuggestionOut(BaseModel):
    rate: float
    threshold: float
    false_alarms: NowThen
    missed: NowThen
    sentence: str


class ReviewReport(BaseModel):
    """How often a model agrees with the operator's reviews."""

    model: str
    counts: Counts = Field(description="of judged parts, as are all figures but the next")
    not_judged: Counts = Field(description="of photos that were not judged, apart")
    table: Table
    precision: Range
    recall: Range
    suggestion: SuggestionOut | None
    notes: list[str]


class Health(BaseModel):
    status: Literal["ok"]
