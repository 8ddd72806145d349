"""What is kept of one judged part: the same record in the ledger, on a line, and to every receiver."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from nfad.records import Prediction
from nfad.system.files import strict_json

UNREADABLE = "unreadable"  # beside the verdicts of a Prediction


@dataclass(frozen=True)
class Seen:
    """A file as it stood when it was judged."""

    path: str  # relative to the watched folder, with forward slashes
    size: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True)
class Judgement:
    """One part. `id` counts from 1 in the order of judging; an unreadable file has an error and no score."""

    path: str
    size: int
    mtime_ns: int
    sha256: str
    arrived: str  # when it was first seen, ISO 8601 in UTC
    verdict: str
    model: str  # SHA-256 of what judged it
    milliseconds: float
    score: float | None = None
    threshold: float | None = None
    p_value: float | None = None
    unfiltered_verdict: str | None = None
    unfiltered_score: float | None = None
    unfiltered_threshold: float | None = None
    excess_filtered: float | None = None
    nuisance_fraction: float | None = None
    nuisance_by_family: Mapping[str, float] = field(default_factory=dict)
    gate: float | None = None
    participation: float | None = None
    explanation: str = ""
    error: str | None = None
    id: int = 0


COLUMNS = tuple(each.name for each in fields(Judgement))


def judged(seen: Seen, prediction: Prediction, arrived: str, model: str, milliseconds: float) -> Judgement:
    """The record of a prediction, without its maps."""
    return Judgement(
        **vars(seen), **prediction.facts(), arrived=arrived, model=model, milliseconds=round(milliseconds, 1),
        explanation=prediction.explain(),
    )  # fmt: skip


def unreadable(seen: Seen, reason: str, arrived: str, model: str, milliseconds: float) -> Judgement:
    """The record of a file that never became an image."""
    taken = round(milliseconds, 1)
    return Judgement(**vars(seen), arrived=arrived, verdict=UNREADABLE, model=model, milliseconds=taken, error=reason)


def as_values(judgement: Judgement) -> tuple:
    """The columns of a ledger's row; SQLite keeps what is not a number as NULL."""
    return tuple(json.dumps(value) if isinstance(value, Mapping) else value for value in vars(judgement).values())


def from_values(values: tuple) -> Judgement:
    given = dict(zip(COLUMNS, values, strict=True))
    return Judgement(**given | {"nuisance_by_family": json.loads(given["nuisance_by_family"])})


def as_line(judgement: Judgement, ledger: str) -> str:
    """One JSON object. `key` is the same at every delivery of the same part, so that a receiver can drop a repeat."""
    given = vars(judgement)
    first = {"id": judgement.id, "key": f"{ledger}-{judgement.id}", "image": judgement.path}
    return strict_json(first | {name: given[name] for name in COLUMNS if name not in ("id", "path")})


def as_text(path: str) -> str:
    """A file name as text. Shares mounted with the wrong encoding give names that are none: their bytes are spelt."""
    return path.replace(os.sep, "/").encode("utf-8", "backslashreplace").decode()


def as_path(text: str) -> Path:
    """The file that `as_text` named."""
    return Path(re.sub(r"\\u(dc[89a-f][0-9a-f])", lambda found: chr(int(found[1], 16)), text))
