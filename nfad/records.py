"""What passes between the parts: frozen records, validated where they enter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

NORMAL, ANOMALOUS, NOT_JUDGED = "normal", "anomalous", "not judged"  # verdicts
ARMS = ("unfiltered", "filtered")  # a detector without its filter, and with it
UNREADABLE = "unreadable"  # in their place in a record, where there is no image to judge
FIELDS = (
    "upper left", "top", "upper right",
    "left", "centre", "right",
    "lower left", "bottom", "lower right",
)  # fmt: skip
SHARE = 0.1  # of what is above a threshold, that a field must hold to be named
ASIDE = 0.02  # of its side that a photo may lie off without a word: parts are laid down by hand
# Words a person understands for the families of nuisance.
FAMILY_WORDS = {
    "photometric": "illumination-like",
    "background": "background-like",
    "sensor": "noise- or blur-like",
    "geometric": "pose-like",
}


@dataclass(frozen=True)
class Sample:
    """One image of a data set: where it is, whether it is anomalous, and under which acquisition it was taken."""

    path: Path
    anomalous: bool
    kind: str = "good"  # the defect's name, "good" where there is none
    domain: str = "same"  # acquisition condition
    mask: Path | None = None


@dataclass(frozen=True)
class Dataset:
    """One category of a data set: what a detector is fitted on and what it is tested on."""

    name: str  # of the whole set, e.g. "mvtec-ad"
    category: str  # e.g. "bottle"; one detector a category
    train: tuple[Sample, ...]  # normal images only
    test: tuple[Sample, ...]
    notes: tuple[str, ...] = ()  # what a reader of results should know, e.g. counts that differ from the published


@dataclass(frozen=True)
class Geometry:
    """Where the model's square view lies in the original image, in the original's pixels."""

    height: int
    width: int
    top: float
    left: float
    box_height: float
    box_width: float

    @property
    def ratio(self) -> float:
        """Width over height of what is seen, which the view makes square."""
        return self.box_width / self.box_height

    def unproject(self, view: np.ndarray) -> np.ndarray:
        """Lay a map of the model's view over the original image; NaN where the model did not look (a centre crop)."""
        top, left = round(self.top), round(self.left)
        height, width = max(1, round(self.box_height)), max(1, round(self.box_width))
        seen = Image.fromarray(view.astype(np.float32)).resize((width, height), Image.Resampling.BILINEAR)
        full = np.full((self.height, self.width), np.nan, dtype=np.float32)
        full[top : top + height, left : left + width] = np.asarray(seen)[: self.height - top, : self.width - left]
        return full


@dataclass(frozen=True)
class Prediction:
    """The verdict on one image. Maps are z-scored against the fit's normals and live in the model's square view;
    `in_original(map)` lays one over the photo."""

    score: float  # mean of the highest 1 % of the filtered map
    is_anomalous: bool  # score > threshold; False where it is not judged, which is not a good part either
    threshold: float
    map: np.ndarray  # where it deviates: what the filter left
    unfiltered_map: np.ndarray  # the same without the filter
    participation: float  # how spread out the deviation is, in (0, 1]
    nuisance_fraction: float  # share of the discrepancy's energy inside the nuisance subspace
    nuisance_by_family: Mapping[str, float] = field(default_factory=dict)
    unfiltered_score: float = float("nan")
    unfiltered_threshold: float = float("nan")
    excess_filtered: float = float("nan")  # share of the unfiltered score's excess over normals that was filtered out
    p_value: float = float("nan")  # share of normal images expected to score at least this high; NaN if not judged
    normals: int = 0  # held out of the fit, which p_value compares it with; 0 where that is not known
    gate: float | None = None  # the paper's γ; None where the map has no gate (localization="detection")
    detection_map: np.ndarray | None = None  # what the score is taken of; None where that is `map` itself
    geometry: Geometry | None = None
    source: str = ""  # the path it came from, "" for an array
    moved: float = float("nan")  # share of its side that a steadied photo lay off, and was moved back; else NaN
    strangeness: float = float("nan")  # above 1 outside of what the fit's photos span; NaN where a model cannot tell
    why_not_judged: str = ""  # in a few words, e.g. "does not look like the fitted part"; "" where it is judged

    @property
    def is_judged(self) -> bool:
        return not self.why_not_judged

    @property
    def unfiltered_is_anomalous(self) -> bool:
        """What the same detector would have said without the filter."""
        return self.unfiltered_score > self.unfiltered_threshold

    @property
    def verdict(self) -> str:
        """normal, anomalous or not judged."""
        if not self.is_judged:
            return NOT_JUDGED
        return ANOMALOUS if self.is_anomalous else NORMAL

    @property
    def unfiltered_verdict(self) -> str:
        if not self.is_judged:
            return NOT_JUDGED
        return ANOMALOUS if self.unfiltered_is_anomalous else NORMAL

    def in_original(self, view: np.ndarray) -> np.ndarray:
        """One of this prediction's maps in the original image's geometry (NaN outside the model's view)."""
        return view if self.geometry is None else self.geometry.unproject(view)

    def explain(self) -> str:
        """What a person at the line wants to know: verdict, place, distance from the threshold, what was filtered out;
        of a photo that is not judged, why."""
        if not self.is_judged:
            return f"Not judged: {self.why_not_judged}."
        view = self.map if self.detection_map is None else self.detection_map
        where = places_told(places(view, self.threshold, self.geometry))
        side = "above" if self.is_anomalous else "below"
        gap = f"{abs(self.score - self.threshold):.2f} {side} the threshold {self.threshold:.2f}"
        score = f"score {self.score:.2f}, {gap}"
        told = f"Anomalous {where}: {score}" if self.is_anomalous else f"Normal: {score}, highest {where}"
        also = ", too" if self.is_anomalous == self.unfiltered_is_anomalous else ""
        told += f"; unfiltered it is {self.unfiltered_verdict}{also}."
        return f"{told} {self._filtered_told()}{self._moved_told()}"

    def _moved_told(self) -> str:
        if not self.moved >= ASIDE:  # NaN neither
            return ""
        off = f"The photo lay {self.moved:.1%} of its side off, and was moved back"
        return f" {off}: what it no longer shows was not judged."

    def _filtered_told(self) -> str:
        """How much of the deviation was nuisance, and of which kind."""
        like = mostly = "acquisition-like"
        if self.nuisance_by_family:
            family = max(self.nuisance_by_family, key=self.nuisance_by_family.__getitem__)
            word = FAMILY_WORDS.get(family, family)
            several = len(self.nuisance_by_family) > 1
            like, mostly = (f"{like}, mostly {word},", f"mostly {word}") if several else (word, word)
        if self.unfiltered_is_anomalous and not self.is_anomalous and self.excess_filtered >= 0.005:
            return f"{self.excess_filtered:.0%} of its excess over normal parts was filtered out, {mostly}."
        return f"{self.nuisance_fraction:.0%} of the deviation is {like} and was filtered out."


def places(view: np.ndarray, level: float, geometry: Geometry | None = None) -> list[str]:
    """The fields of a 3×3 grid over the photo that hold a share of what a map has above the level, the most first;
    where nothing is above it, that of the highest value."""
    rows, columns = (np.arange(count) + 0.5 for count in view.shape)
    rows, columns = rows / view.shape[0], columns / view.shape[1]
    if geometry is not None:
        rows = (geometry.top + rows * geometry.box_height) / geometry.height
        columns = (geometry.left + columns * geometry.box_width) / geometry.width
    field = 3 * (3 * rows).astype(int)[:, None] + (3 * columns).astype(int)[None]
    held = np.bincount(field.ravel(), np.clip(view - level, 0, None).ravel(), len(FIELDS))
    if not held.any():
        return [FIELDS[field.ravel()[view.argmax()]]]
    order = np.argsort(-held, kind="stable")
    return [FIELDS[place] for place in order if held[place] >= SHARE * held.sum()]


def places_told(fields: Sequence[str]) -> str:
    """E.g. at the upper left and the top."""
    if len(fields) > 3:
        return f"in {len(fields)} of {len(FIELDS)} fields of the photo, most at the {fields[0]}"
    *others, last = (f"the {each}" for each in fields)
    return f"at {', '.join(others)} and {last}" if others else f"at {last}"


@dataclass(frozen=True)
class InspectionRecord:
    """What is kept of one inspected image, in CSV, JSON lines, SQL and HTTP alike; docs/record.md says it in full.

    Fields in this order. A number that is not finite is None, as are all numbers of an image that cannot be read, and
    what would compare a part with others (OF_PARTS) where none was judged.
    """

    id: str  # unique among the records it is kept with
    time: str  # when it was judged, ISO 8601 in UTC
    image: str  # as whoever delivered it called it: a path, or a file name
    sha256: str  # of the image's file; "" where not even its bytes could be read
    model: str  # name of the model, or of its file; "" where an older format did not keep it
    model_sha256: str
    verdict: str  # normal, anomalous, not judged or unreadable
    explanation: str  # for people; why, if it is not judged or cannot be read
    milliseconds: float  # that reading and judging it took; of a batch, its share
    score: float | None = None
    threshold: float | None = None
    false_alarm_rate: float | None = None
    p_value: float | None = None
    unfiltered_verdict: str | None = None
    unfiltered_score: float | None = None
    unfiltered_threshold: float | None = None
    excess_filtered: float | None = None
    nuisance_fraction: float | None = None
    nuisance_by_family: Mapping[str, float] = field(default_factory=dict)
    participation: float | None = None
    gate: float | None = None
    strangeness: float | None = None
    moved: float | None = None

    @staticmethod
    def of(
        prediction: Prediction,
        *,
        id: str,
        time: str,
        image: str,
        sha256: str,
        model: str,
        model_sha256: str,
        false_alarm_rate: float,
        milliseconds: float,
    ) -> InspectionRecord:
        """The record of a prediction, without its maps."""
        told = NUMBERS if prediction.is_judged else tuple(name for name in NUMBERS if name not in OF_PARTS)
        numbers = {name: _finite(getattr(prediction, name)) for name in told}
        families = {family: share for family, share in prediction.nuisance_by_family.items() if math.isfinite(share)}
        return InspectionRecord(
            id=id, time=time, image=image, sha256=sha256, model=model, model_sha256=model_sha256,
            verdict=prediction.verdict, explanation=prediction.explain(), milliseconds=round(milliseconds, 1),
            false_alarm_rate=false_alarm_rate, unfiltered_verdict=prediction.unfiltered_verdict,
            nuisance_by_family=families, **numbers,
        )  # fmt: skip

    @property
    def is_readable(self) -> bool:
        return self.verdict != UNREADABLE

    @property
    def is_judged(self) -> bool:
        return self.verdict in (NORMAL, ANOMALOUS)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


RECORD_FIELDS = tuple(each.name for each in fields(InspectionRecord))
NUMBERS = (
    "score", "threshold", "p_value", "unfiltered_score", "unfiltered_threshold", "excess_filtered",
    "nuisance_fraction", "participation", "gate", "strangeness", "moved",
)  # fmt: skip

# Of a photo that is not judged these say nothing, and whoever sorts by them would take it for a good part.
OF_PARTS = frozenset({"score", "p_value", "unfiltered_score", "excess_filtered"})


def utc_now() -> str:
    """The moment as every record writes it, e.g. 2026-03-02T09:41:07.123Z."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
