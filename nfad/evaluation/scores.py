"""A test set's scores, and which of its images are worth showing: decided from numbers alone, so no map is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nfad.errors import NfadError
from nfad.evaluation.tally import EVERYWHERE

SHOWN = 6  # pictures of a group
ARMS = ("unfiltered", "filtered")


@dataclass(frozen=True)
class Scores:
    """One entry an image, all in the same order; higher scores are more anomalous."""

    score: np.ndarray
    unfiltered_score: np.ndarray
    label: np.ndarray  # true for bad images
    domain: np.ndarray
    threshold: float
    unfiltered_threshold: float
    judged: np.ndarray | None = None  # false where the filtered arm gave no verdict; all were judged if None
    names: Sequence[str] = ()  # paths, for the record
    arms: Sequence[str] = ARMS  # of `unfiltered_score` and `score`; a single one has no other to compare with

    def __post_init__(self) -> None:
        if self.judged is None:
            object.__setattr__(self, "judged", np.full(len(self.label), True))
        kinds = {"score": float, "unfiltered_score": float, "label": bool, "domain": str, "judged": bool}
        for name, kind in kinds.items():
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=kind))
        lengths = {len(getattr(self, name)) for name in kinds}
        if len(lengths | ({len(self.names)} if len(self.names) else set())) > 1:
            raise NfadError(f"scores, labels, domains and names must be as many; got {sorted(lengths)}")
        if (self.is_judged & ~self.ranked).any():
            raise NfadError("every score of a judged image must be finite; say of the others that they are not judged")

    @property
    def is_judged(self) -> np.ndarray:
        return np.asarray(self.judged, dtype=bool)

    @property
    def ranked(self) -> np.ndarray:
        """Which images have finite scores."""
        return np.isfinite(self.score) & np.isfinite(self.unfiltered_score)

    def of(self, domain: str) -> np.ndarray:
        """Which images a row is about; none for a mean over domains."""
        return np.full(len(self.domain), True) if domain == EVERYWHERE else self.domain == domain

    def by_arm(self, arm: str) -> tuple[np.ndarray, float]:
        if len(self.arms) > 1 and arm == self.arms[0]:
            return self.unfiltered_score, self.unfiltered_threshold
        return self.score, self.threshold


def grouped(scores: Scores) -> dict[str, np.ndarray]:
    """Each group's images, the most telling first; good ones first of those not judged.

    No image is in two; what both arms judge rightly is in none.
    """
    flagged, unfiltered = scores.score > scores.threshold, scores.unfiltered_score > scores.unfiltered_threshold
    good, bad = ~scores.label & scores.is_judged, scores.label & scores.is_judged
    members = {
        "false_alarms": (good & flagged, -scores.score),
        "misses": (bad & ~flagged & ~unfiltered, scores.score),
        "lost": (bad & ~flagged & unfiltered, -scores.unfiltered_score),
        "silenced": (good & ~flagged & unfiltered, -scores.unfiltered_score),
        "found": (bad & flagged & ~unfiltered, -scores.score),
        "not_judged": (~scores.is_judged, scores.label.astype(float)),
    }
    return {
        name: (chosen := np.flatnonzero(inside))[np.argsort(order[chosen], kind="stable")]
        for name, (inside, order) in members.items()
    }


def worth_showing(scores: Scores, shown: int = SHOWN) -> dict[str, list[int]]:
    """Up to so many images of each group, drawn from the domains in turn so that one bad domain hides no other."""
    return {name: _in_turn(members, scores.domain, shown) for name, members in grouped(scores).items()}


def _in_turn(members: np.ndarray, domain: np.ndarray, shown: int) -> list[int]:
    rounds: dict[str, int] = {}
    turn = {}
    for place, index in enumerate(members.tolist()):
        name = str(domain[index])
        rounds[name] = rounds.get(name, -1) + 1
        turn[index] = rounds[name], place
    chosen = set(sorted(turn, key=turn.__getitem__)[:shown])
    return [index for index in members.tolist() if index in chosen]
