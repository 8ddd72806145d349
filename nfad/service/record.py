"""One inspection as it is kept. Its id begins with its time, so that sorting and paging go by the id alone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nfad.records import Prediction

REVIEWS = ("good", "bad", "unsure")
NAME_LENGTH, NOTE_LENGTH = 255, 2000
ID_PATTERN = "^[0-9a-f]{22}$"
LAST_MOMENT = 253402300799999  # the end of the year 9999, in milliseconds


@dataclass(frozen=True)
class Inspection:
    """A judged image, without its pictures; `pictures` says whether they are still there."""

    id: str
    time: str
    model: str
    model_sha256: str
    file_name: str  # as the client called it: text to show, never a path
    sha256: str  # of the upload
    suffix: str
    verdict: str
    score: float
    threshold: float
    false_alarm_rate: float
    p_value: float
    unfiltered_verdict: str
    unfiltered_score: float
    unfiltered_threshold: float
    gate: float
    participation: float
    nuisance_fraction: float
    excess_filtered: float
    sentence: str
    milliseconds: float
    width: int
    height: int
    scale: float  # the z-score at which colours are full
    nuisance_by_family: Mapping[str, float] = field(default_factory=dict)
    view: Mapping[str, float] = field(default_factory=dict)  # where the model looked, as shares of the photo
    pictures: bool = True
    review_verdict: str | None = None
    review_note: str | None = None
    review_time: str | None = None


def new_id() -> str:
    """Milliseconds, then chance: unique without asking the database, and sorted by time."""
    return first_id(time.time_ns() // 1_000_000)[:12] + secrets.token_hex(5)


def first_id(milliseconds: int) -> str:
    """The least id of that moment; of the first or last one there is, for moments before or after all."""
    return f"{min(max(milliseconds, 0), LAST_MOMENT):012x}" + 10 * "0"


def time_of(id: str) -> datetime:
    return datetime.fromtimestamp(int(id[:12], 16) / 1000, UTC)


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_text(value: str, length: int) -> str:
    """A stranger's text as every database takes it: no NUL, no half characters, not too long."""
    return value.replace("\0", "").encode("utf-8", "replace").decode()[:length]


def view_of(prediction: Prediction) -> dict[str, float]:
    """The model's view as shares of the photo's sides."""
    box = prediction.geometry
    return {
        "left": box.left / box.width,
        "top": box.top / box.height,
        "width": box.box_width / box.width,
        "height": box.box_height / box.height,
    }
