"""The shapes of requests and answers, for OpenAPI and its readers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from nfad.service.record import NOTE_LENGTH, Inspection
from nfad.system.files import finite

Verdict = Literal["normal", "anomalous"]
Number = Annotated[float | None, Field(description="null where it is not defined")]
EXAMPLE_ID = "0198c5a2f3b17c04d2e9aa"


class Error(BaseModel):
    error: str = Field(examples=["the upload is empty (0 bytes)"])


class Control(BaseModel):
    """What the same detector says without the filter."""

    verdict: Verdict
    score: Number
    threshold: Number


class Nuisance(BaseModel):
    """How much a change of the acquisition explains: of the deviation, and of a score that is above normal parts'."""

    fraction: Number
    excess_filtered: Number = Field(description="share of the control score's excess over normal parts' filtered out")
    by_family: dict[str, Number] = Field(examples=[{"photometric": 0.2, "background": 0.06, "sensor": 0.05}])


class View(BaseModel):
    """Where the model looked, as shares of the photo."""

    left: float
    top: float
    width: float
    height: float


class Review(BaseModel):
    """What the operator says."""

    verdict: Literal["good", "bad", "unsure"]
    note: str
    time: str


class Images(BaseModel):
    """Addresses of the pictures."""

    photo: str
    thumbnail: str
    original: str
    map: str
    detection_map: str
    unfiltered_map: str

    @classmethod
    def of(cls, id: str) -> Images:
        base = f"/v1/inspections/{id}"
        plain = {name: f"{base}/{name}" for name in ("photo", "thumbnail", "original")}
        return cls(**plain, **{name: f"{base}/maps/{name}" for name in ("map", "detection_map", "unfiltered_map")})


class Inspected(BaseModel):
    """One judged image."""

    id: str = Field(examples=[EXAMPLE_ID])
    time: str = Field(examples=["2026-03-02T09:41:07.123Z"])
    model: str = Field(examples=["bottle"])
    file_name: str = Field(description="as the client called it", examples=["cam3-0017.jpg"])
    verdict: Verdict
    score: float = Field(description="mean of the top hundredth of the detection map, a z-score", examples=[2.31])
    threshold: float = Field(examples=[4.87])
    false_alarm_rate: float = Field(examples=[0.01])
    p_value: Number = Field(description="share of normal images expected to score at least this high", examples=[0.13])
    control: Control
    gate: Number
    participation: Number
    nuisance: Nuisance
    sentence: str = Field(
        examples=[
            "Normal, with and without the filter; 12% of the deviation is illumination-like and was filtered out."
        ]
    )
    milliseconds: float = Field(description="from the whole upload to the judgement", examples=[41.2])
    width: int
    height: int
    view: View
    scale: float = Field(description="the z-score at which colours are full", examples=[9.7])
    review: Review | None
    images: Images | None = Field(description="null once retention has removed them")

    @classmethod
    def of(cls, inspection: Inspection) -> Inspected:
        kept = Inspection(**finite(asdict(inspection)))
        same = ("id", "time", "model", "file_name", "verdict", "score", "threshold", "false_alarm_rate", "p_value")
        same += ("gate", "participation", "sentence", "milliseconds", "width", "height", "scale")
        return cls(
            **{name: getattr(kept, name) for name in same},
            control=Control(
                verdict=kept.unfiltered_verdict, score=kept.unfiltered_score, threshold=kept.unfiltered_threshold
            ),
            nuisance=Nuisance(
                fraction=kept.nuisance_fraction,
                excess_filtered=kept.excess_filtered,
                by_family=dict(kept.nuisance_by_family),
            ),
            view=View(**kept.view),
            review=kept.review_verdict
            and Review(verdict=kept.review_verdict, note=kept.review_note or "", time=kept.review_time or ""),
            images=Images.of(kept.id) if kept.pictures else None,
        )


class BatchItem(BaseModel):
    """One file of a batch: an inspection, or an error with the status it would have had alone."""

    file_name: str
    inspection: Inspected | None
    error: str | None
    status: int


class Batch(BaseModel):
    results: list[BatchItem]


class Page(BaseModel):
    inspections: list[Inspected]
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


class Fact(BaseModel):
    name: str
    value: str


class RateAt(BaseModel):
    rate: float
    threshold: float


class Places(BaseModel):
    waiting: int
    places: int


class ModelFacts(BaseModel):
    """A model being served."""

    name: str
    sha256: str = Field(description="of the model file")
    facts: list[Fact]
    fitted_on: int
    held_out: int
    false_alarm_rate: float
    threshold: float
    unfiltered_threshold: float
    smallest_rate: float = Field(description="the lowest false-alarm rate its held-out normals support")
    rates: list[RateAt]
    queue: Places
    drift: str = Field(examples=["steady"])


class Models(BaseModel):
    models: list[ModelFacts]


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
    inspections: int
    anomalous: Change
    newly_rejected: int
    newly_accepted: int
    rejected: list[Inspected] = Field(description="of the newly rejected the nearest to the threshold, 12 at most")
    accepted: list[Inspected] = Field(description="of the newly accepted the nearest to the threshold, 12 at most")
    false_alarms: Change
    missed: Change
    reviewed: Reviewed


class Question(BaseModel):
    alarm: bool
    level: Number = Field(description="evidence as a share of what raises the alarm")
    since: int | None
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


class DriftAnswer(BaseModel):
    """Whether the line still looks like the normals the model was fitted on."""

    model: str
    state: str = Field(examples=["steady"])
    alarm: bool
    sentence: str
    parts: int
    since: int | None
    since_time: str | None
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


class SuggestionAnswer(BaseModel):
    rate: float
    threshold: float
    false_alarms: NowThen
    missed: NowThen
    sentence: str


class ReviewAnswer(BaseModel):
    """What the operator's corrections say of a model."""

    model: str
    counts: Counts
    table: Table
    precision: Range
    recall: Range
    suggestion: SuggestionAnswer | None
    notes: list[str]


class Health(BaseModel):
    status: Literal["ok"]
