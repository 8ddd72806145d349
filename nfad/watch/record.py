"""The inspection record of `nfad watch`: the same in the ledger, on a line and for every receiver (docs/record.md)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from nfad.model import Model
from nfad.records import InspectionRecord, Prediction, utc_now
from nfad.system.files import strict_json


@dataclass(frozen=True)
class Fingerprint:
    """A file as it was when it was judged: enough to tell whether it has changed since."""

    image: str  # path below the watched folder, with forward slashes
    size: int
    mtime_ns: int
    sha256: str  # "" where it could not be read


@dataclass(frozen=True, kw_only=True)
class WatchRecord(InspectionRecord):
    """An inspection record and what only a watched folder knows. The ledger gives it its id, `LEDGER-POSITION`."""

    arrived: str  # when the file was first seen, as `time`
    size: int  # of the file, in bytes
    mtime_ns: int  # the file's date, in nanoseconds since 1970
    camera: str | None = None  # what is wrong with the camera, as far as photos up to this one tell

    @property
    def is_part(self) -> bool:
        """Whether there is a file behind it; else it says that no photo comes, or that they come again."""
        return self.verdict != NO_PHOTO

    @property
    def position(self) -> int:
        """Its place in the ledger, from 1; 0 before it has one."""
        return int(self.id.rpartition("-")[2] or 0)


@dataclass(frozen=True)
class NoPrediction:
    """Why a file has no prediction, in a sentence: it is unreadable or, where the model failed on it, not judged."""

    verdict: str
    why: str


NO_PHOTO = "no photo"  # in the place of a verdict, where the record is of the camera and not of a part
SPELT = "u(?:d[89a-f][0-9a-f]{2}|005c)"  # behind a backslash: a lone surrogate, or a backslash itself
FIELDS = tuple(each.name for each in fields(WatchRecord))


def record_of(
    found: Prediction | NoPrediction,
    file: Fingerprint,
    arrived: str,
    model: Model,
    model_name: str,
    milliseconds: float,
) -> WatchRecord:
    """The record of a prediction, or of the reason why there is none; its id is still empty."""
    if isinstance(found, Prediction):
        record = InspectionRecord.of(
            found, id="", time=utc_now(), image=file.image, sha256=file.sha256, model=model_name,
            model_sha256=model.sha256, false_alarm_rate=model.false_alarm_rate, milliseconds=milliseconds,
        )  # fmt: skip
    else:
        record = InspectionRecord(
            id="", time=utc_now(), image=file.image, sha256=file.sha256, model=model_name, model_sha256=model.sha256,
            verdict=found.verdict, explanation=_spelt(found.why), milliseconds=round(milliseconds, 1),
        )  # fmt: skip
    return WatchRecord(**vars(record), arrived=arrived, size=file.size, mtime_ns=file.mtime_ns)


def record_of_silence(camera: str | None, explanation: str, model: Model, model_name: str) -> WatchRecord:
    """That no photo comes any more or, where `camera` is None, that they come again."""
    now = utc_now()
    return WatchRecord(
        id="", time=now, image="", sha256="", model=model_name, model_sha256=model.sha256, verdict=NO_PHOTO,
        explanation=explanation, milliseconds=0.0, arrived=now, size=0, mtime_ns=0, camera=camera,
    )  # fmt: skip


def as_line(record: WatchRecord) -> str:
    """One JSON object, without a line break."""
    return strict_json(record.as_dict())


def as_values(record: WatchRecord) -> tuple[object, ...]:
    """What the ledger's columns hold, in the order of FIELDS; the one mapping as JSON."""
    return tuple(json.dumps(value) if isinstance(value, Mapping) else value for value in record.as_dict().values())


def from_values(values: Iterable[object]) -> WatchRecord:
    """The record that `as_values` took apart."""
    given: dict = dict(zip(FIELDS, values, strict=True))
    return WatchRecord(**given | {"nuisance_by_family": json.loads(given["nuisance_by_family"])})


def as_text(path: str) -> str:
    """A file name as text. Shares mounted with the wrong encoding give names that are none: their bytes are spelt, and
    so is a backslash that would look like one of them."""
    path = re.sub(rf"\\(?={SPELT})", r"\\u005c", path.replace(os.sep, "/"))
    return _spelt(path)


def _spelt(text: str) -> str:
    """Bytes that are no text as escapes: neither SQLite nor JSON takes them."""
    return text.encode("utf-8", "backslashreplace").decode()


def as_path(text: str) -> Path:
    """The file that `as_text` named."""
    spelt = rf"\\u(d[89a-f][0-9a-f]{{2}}|005c(?={SPELT}))"
    return Path(re.sub(spelt, lambda found: chr(int(found[1], 16)), text))
