"""A test set's scores, and which of its images are worth showing: decided from numbers alone, so no map is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nfad.errors import NfadError
from nfad.evaluation.tally import EVERYWHERE

SHOWN = 6  # pictures of a group


@dataclass(frozen=True)
class Scores:
    """One entry an image, all in the same order; higher scores are more anomalous."""

    score: np.ndarray
    unfiltered_score: np.ndarray
    label: np.ndarray  # true for bad images
    domain: np.ndarray
    threshold: float
    unfiltered_threshold: float
    names: Sequence[str] = ()  # paths, for the record

    def __post_init__(self) -> None:
        for name, kind in (("score", float), ("unfiltered_score", float), ("label", bool), ("domain", str)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=kind))
        lengths = {len(self.score), len(self.unfiltered_score), len(self.label), len(self.domain)}
        if len(lengths | ({len(self.names)} if len(self.names) else set())) > 1:
            raise NfadError(f"scores, labels, domains and names must be as many; got {sorted(lengths)}")
        if not (np.isfinite(self.score).all() and np.isfinite(self.unfiltered_score).all()):
            raise NfadError("every score must be finite; leave out the images that could not be judged")

    def of(self, domain: str) -> np.ndarray:
        """Which images a row is about; none for a mean over domains."""
        return np.full(len(self.domain), True) if domain == EVERYWHERE else self.domain == domain

    def by_arm(self, arm: str) -> tuple[np.ndarray, float]:
        if arm == "unfiltered":
            return self.unfiltered_score, self.unfiltered_threshold
        return self.score, self.threshold


def grouped(scores: Scores) -> dict[str, np.ndarray]:
    """Each group's images, the most telling first. No image is in two; what both arms judge rightly is in none."""
    flagged, unfiltered = scores.score > scores.threshold, scores.unfiltered_score > scores.unfiltered_threshold
    good, bad = ~scores.label, scores.label
    members = {
        "false_alarms": (good & flagged, -scores.score),
        "misses": (bad & ~flagged & ~unfiltered, scores.score),
        "lost": (bad & ~flagged & unfiltered, -scores.unfiltered_score),
        "silenced": (good & ~flagged & unfiltered, -scores.unfiltered_score),
        "found": (bad & flagged & ~unfiltered, -scores.score),
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
