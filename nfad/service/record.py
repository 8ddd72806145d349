"""The inspection record as the service keeps it. Sorting and paging go by its id alone, which begins with its time.

Clocks are set back and forth. An id is always behind the one before it, so it begins with the time or, after a step
back, with a later one; when a part was judged is what `time` says.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nfad.records import Geometry, InspectionRecord

REVIEWS = ("good", "bad", "unsure")
NAME_LENGTH, NOTE_LENGTH = 255, 2000
ID_PATTERN = "^[0-9a-f]{22}$"
LAST_MOMENT = 253402300799999  # the end of the year 9999, in milliseconds


@dataclass(frozen=True, kw_only=True)
class Inspection(InspectionRecord):
    """The inspection record, then what only the service knows. Its `image` is the client's text, never a path. An
    image that cannot be read is refused and leaves no record."""

    suffix: str  # of the original, by its content
    width: int  # of the photo
    height: int
    scale: float  # the z-score at which colours are full
    view: Mapping[str, float]  # where the model looked, as shares of the photo
    pictures: bool = True  # False once retention has removed them
    review_verdict: str | None = None
    review_note: str | None = None
    review_time: str | None = None

    @property
    def has_detection_map(self) -> bool:
        """Whether the score is taken of another map than `map`: models with a gate have both."""
        return self.gate is not None


def new_id(milliseconds: int | None = None) -> str:
    """A moment, if not now, then random digits: unique without asking the database, and sorted by time."""
    return first_id(time.time_ns() // 1_000_000 if milliseconds is None else milliseconds)[:12] + secrets.token_hex(5)


class Ids:
    """New ids, each behind that of the call before and behind `last`, whatever the clock does; for any thread."""

    def __init__(self, last: str | None = None) -> None:
        self._last = 0 if last is None else int(last[:12], 16)
        self._lock = threading.Lock()

    def next(self, now: datetime) -> str:
        with self._lock:
            self._last = max(_milliseconds(now), self._last + 1)
            return new_id(self._last)


def first_id(milliseconds: int) -> str:
    """The least id of that moment, which is cut to the years 1970 to 9999."""
    return f"{min(max(milliseconds, 0), LAST_MOMENT):012x}" + 10 * "0"


def id_at(moment: datetime) -> str:
    """The least id of that moment."""
    return first_id(_milliseconds(moment))


def lead_of(inspection: Inspection) -> int:
    """By how many milliseconds its id is ahead of its time: more than a few after the clock was set back."""
    return int(inspection.id[:12], 16) - _milliseconds(datetime.fromisoformat(inspection.time))


def _milliseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def time_of(id: str) -> datetime:
    return datetime.fromtimestamp(int(id[:12], 16) / 1000, UTC)


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_text(value: str, length: int) -> str:
    """Untrusted text as every database takes it: no NUL, no lone surrogates, at most `length` characters."""
    return value.replace("\0", "").encode("utf-8", "replace").decode()[:length]


def view_of(geometry: Geometry) -> dict[str, float]:
    """The model's view as shares of the photo's sides."""
    return {
        "left": geometry.left / geometry.width,
        "top": geometry.top / geometry.height,
        "width": geometry.box_width / geometry.width,
        "height": geometry.box_height / geometry.height,
    }
