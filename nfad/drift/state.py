"""What a monitor says: frozen, and nothing in it but numbers and words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

STEADY = "steady"
ABSORBED = "acquisition drift, absorbed by the filter"
UNABSORBED = "drift the filter does not absorb"
DEFECTS = "more defects"
ABSORBED_AND_DEFECTS = "acquisition drift, absorbed by the filter, and more defects"
UNSETTLED = "more flagged parts, cause not settled"
UNJUDGED = "many photos are not judged"  # before all others, which speak of the judged ones alone
FROZEN = "the camera shows the same frame"  # before what is said of parts, which is then said of one
COVERED = "the camera is covered"
DEFOCUSED = "the camera is out of focus"
MISPLACED = "the camera does not see the part"
SILENT = "no photo comes from the camera"
SHIFTED = "the camera has moved"  # photos are moved back and judged; how far that goes nobody knows
CAMERA = (SILENT, FROZEN, COVERED, DEFOCUSED, MISPLACED, SHIFTED)
VERDICTS = (STEADY, ABSORBED, UNABSORBED, DEFECTS, ABSORBED_AND_DEFECTS, UNSETTLED, UNJUDGED, *CAMERA)


@dataclass(frozen=True)
class Answer:
    """One question's: nuisance (has the acquisition moved?), bulk (do ordinary parts score as before?), tail (are more
    parts flagged?), or not_judged (are too many photos not judged?)."""

    question: str
    alarm: bool
    level: float | None  # evidence as a share of what raises the alarm; None where the question cannot be told
    since: int | None  # number of the first changed part (not_judged: photo), from 1, as best the evidence tells
    moved: tuple[str, ...]  # names that alarm, the first to do so first
    effect: str  # how much, in words; of the parts since, or of the latest where there is no alarm


@dataclass(frozen=True)
class Block:
    """A few consecutive parts, for charts: quantiles of every name."""

    first: int  # number of its first part, from 1
    parts: int
    flagged: int
    low: Mapping[str, float]  # a tenth lies below
    median: Mapping[str, float]
    high: Mapping[str, float]  # a tenth lies above


@dataclass(frozen=True)
class DriftState:
    """Where a model stands against its held-out normals after so many parts. A part is a photo that was judged."""

    verdict: str
    sentence: str
    photos: int
    parts: int
    since: int | None
    nuisance: Answer
    bulk: Answer
    tail: Answer
    not_judged: Answer
    normals: Block  # the held-out normals themselves; their `first` is 0
    blocks: tuple[Block, ...]  # the latest, oldest first; the last one may be still filling

    @property
    def alarm(self) -> bool:
        return self.verdict != STEADY


def block(names: tuple[str, ...], rows: np.ndarray, first: int, flagged: int) -> Block:
    """Quantiles of the rows (part, name)."""
    low, median, high = (dict(zip(names, row.tolist(), strict=True)) for row in np.quantile(rows, (0.1, 0.5, 0.9), 0))
    return Block(first, len(rows), flagged, low, median, high)


def verdict(nuisance: bool, tail: bool, bulk: bool, bulk_doubtful: bool, bulk_lower: bool) -> str:
    """What has moved in the parts, taken together; a tail grows with its bulk, so only a bulk that stands makes it
    defects.

    A bulk that fell while a nuisance moved is absorbed: the filter takes off more than it has to, and flags nobody.
    """
    if bulk and not (nuisance and bulk_lower):
        return UNABSORBED
    if tail and (bulk or bulk_doubtful):
        return UNSETTLED
    if tail:
        return ABSORBED_AND_DEFECTS if nuisance else DEFECTS
    return ABSORBED if nuisance else STEADY


def with_moved_camera(verdict: str) -> str:
    """Never "absorbed": that photos are moved back ends where the part leaves the picture."""
    return {ABSORBED: SHIFTED, ABSORBED_AND_DEFECTS: DEFECTS}.get(verdict, verdict)
