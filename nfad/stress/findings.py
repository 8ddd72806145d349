"""From scores to findings: what each strength does to good parts and to defects, and how far a model bears it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nfad.errors import NfadError
from nfad.stats.intervals import Interval, rate_interval
from nfad.stats.verdicts import Verdicts, count_verdicts
from nfad.stress.axes import Axis
from nfad.stress.measure import Step, Steps

ARMS = {"unfiltered": "without the filter", "filtered": "with the filter"}
LEAST_LIMIT = 0.05  # a limit below this could not be told from luck on any sensible number of images
NEAR = 0.8  # of the defects stopped as it is: with fewer a model no longer sees
ROUNDING = 1e-9  # of shares: four fifths of 20 of 24 are 16 of 24, and enough
LEAST_FOUND = 0.3  # of the defects: a model that stops fewer as it is sees too little to hold anything
LOST_LEVEL = 0.8  # of the interval that says whether more defects are lost than gained
# How a model ceases to hold, in words; each is a field of Side.
ENDS = {
    "breaks": "too many good parts flagged",
    "blind": "too many defects missed",
    "refuses": "too many good parts not judged",
}


@dataclass(frozen=True)
class Point:
    """One strength, by arm: good parts and synthetic defects, as `nfad.stats.verdicts` counts them."""

    strength: float
    arms: Mapping[str, Verdicts]

    @property
    def alarms(self) -> dict[str, Interval]:
        """Good parts flagged."""
        return {arm: each.false_alarms for arm, each in self.arms.items()}

    @property
    def found(self) -> dict[str, Interval]:
        """Synthetic defects flagged."""
        return {arm: each.detections for arm, each in self.arms.items()}

    @property
    def not_judged(self) -> dict[str, Interval]:
        """Good parts without a verdict."""
        return {arm: each.good_not_judged for arm, each in self.arms.items()}

    def stopped(self, arm: str) -> float:
        """Share of the defects that are not passed: found, or not judged."""
        return 1 - self.arms[arm].passed.value


@dataclass(frozen=True)
class Curve:
    """One axis from its most negative strength to its most positive, 0 among them."""

    axis: Axis
    points: tuple[Point, ...]

    def at(self, strength: float) -> Point:
        return next(point for point in self.points if point.strength == strength)

    def outwards(self, side: int) -> list[Point]:
        """From 0 to the end of a side."""
        return [self.at(strength) for strength in (0.0, *self.axis.of_side(side))]


@dataclass(frozen=True)
class Side:
    """How far an axis goes well in one direction, for one arm; None where something does not happen to the end.

    It holds where few good parts are flagged, most of the defects are stopped that are without the change, and few
    good parts are not judged.
    """

    axis: Axis
    side: int
    arm: str
    breaks: float | None  # the weakest strength with too many false alarms
    blind: float | None  # with too few defects found
    refuses: float | None  # with too many good parts not judged
    holds: float  # the strongest strength before any of these
    there: Verdicts  # at that strength

    @property
    def title(self) -> str:
        return f"{self.axis.title}, {self.axis.direction(self.side)}"

    @property
    def ends(self) -> float | None:
        """The weakest strength at which it does not hold; None if there is none."""
        return min((each for name in ENDS if (each := getattr(self, name)) is not None), key=abs, default=None)

    @property
    def why(self) -> str:
        """What ends it, in words; "" if nothing does."""
        if self.ends is None:
            return ""
        return " and ".join(words for name, words in ENDS.items() if getattr(self, name) == self.ends)

    @property
    def reach(self) -> float:
        """Where it ends, as a share of the range tried: what makes stops comparable with degrees. 2 if nowhere."""
        return 2.0 if self.ends is None else abs(self.ends) / abs(self.axis.of_side(self.side)[-1])

    def told(self) -> str:
        """Where it ends, or how far it was seen to hold."""
        if self.ends is None:
            return f"holds to {self.axis.told(self.holds)}"
        return self.axis.told(self.ends) if self.ends else "as it is"


@dataclass(frozen=True)
class Findings:
    """All that was measured, judged at one pair of thresholds."""

    curves: tuple[Curve, ...]
    images: tuple[str, ...]
    rate: float  # the model's false-alarm rate
    limit: float  # of good parts flagged, or not judged: certainly more, and the model does not hold
    thresholds: Mapping[str, float]
    steps: Steps

    @property
    def normal(self) -> Point:
        """The parts as they are."""
        return self.curves[0].at(0.0)

    def side(self, axis: Axis, side: int, arm: str) -> Side:
        outwards = next(curve for curve in self.curves if curve.axis is axis).outwards(side)
        places = (
            first_above([point.alarms[arm] for point in outwards], self.limit),
            first_blind([self._stopped(axis, point.strength, arm) for point in outwards]),
            first_above([point.not_judged[arm] for point in outwards], self.limit),
        )
        first = min((place for place in places if place is not None), default=len(outwards))
        holds = outwards[max(first - 1, 0)]
        breaks, blind, refuses = (None if place is None else outwards[place].strength for place in places)
        return Side(axis, side, arm, breaks, blind, refuses, holds.strength, holds.arms[arm])

    def _stopped(self, axis: Axis, strength: float, arm: str) -> np.ndarray:
        """Which of the defects are not passed: found, or not judged (NaN)."""
        step = self.steps[axis.name if strength else "", strength]
        return ~(np.asarray(step.damaged[arm]) <= self.thresholds[arm])

    def both(self, axis: Axis, arm: str) -> list[Side]:
        """All sides of an axis, the negative first."""
        return [self.side(axis, side, arm) for side in axis.sides]

    def sides(self) -> list[Side]:
        """Every axis and side with the filter, the nearest end first; those without one by the unfiltered."""
        found = [(curve.axis, side) for curve in self.curves for side in curve.axis.sides]
        found.sort(key=lambda place: (self.side(*place, "filtered").reach, self.side(*place, "unfiltered").reach))
        return [self.side(*place, "filtered") for place in found]


def default_limit(rate: float) -> float:
    """Three times the false alarms that were agreed to, at least 5 %."""
    return max(3 * rate, LEAST_LIMIT)


def checked_limit(rate: float, limit: float | None, images: int) -> float:
    """The limit asked for, or the default; refused where so many images could never show that it is exceeded."""
    limit = default_limit(rate) if limit is None else limit
    if not 0 < limit < 1:
        raise NfadError(f"the limit must lie between 0 and 1, e.g. 0.05; got {limit:g}; pass --limit")
    if least_hits(images, limit) is None:
        raise NfadError(
            f"{images} image{'s' * (images > 1)} cannot show a false-alarm rate above {limit:.0%}, "
            "even if all were flagged; give more normals"
        )
    return limit


def least_hits(images: int, limit: float) -> int | None:
    """How many of so many images must be flagged for the rate to exceed the limit for sure; None if all are too few."""
    return next((hits for hits in range(images + 1) if rate_interval(hits, images).low > limit), None)


def first_above(rates: Sequence[Interval], limit: float) -> int | None:
    """The first place whose rate certainly exceeds the limit."""
    return next((place for place, rate in enumerate(rates) if rate.low > limit), None)


def first_blind(stopped: Sequence[np.ndarray]) -> int | None:
    """The first place that stops too few of the defects, and where that is no luck; which are stopped, at each place.

    The defects are the same at every place, so what tells is how many were lost since the first one and how many
    gained. A missed defect is worse than a false alarm, so less certainty is asked for than with those.
    """
    as_it_is = stopped[0]
    if as_it_is.mean() < LEAST_FOUND:
        return 0
    least = least_stopped(as_it_is.mean())
    for place, now in enumerate(stopped):
        lost, gained = int((as_it_is & ~now).sum()), int((now & ~as_it_is).sum())
        no_luck = lost > 0 and rate_interval(lost, lost + gained, LOST_LEVEL).low > 0.5
        nearly_none = now.mean() < LEAST_FOUND and lost - gained > 1  # of a few images all may be lost
        if now.mean() < least - ROUNDING and (no_luck or nearly_none):
            return place
    return None


def least_stopped(as_it_is: float) -> float:
    """The share of the defects that must be stopped where so many are without a change."""
    return max(NEAR * as_it_is, LEAST_FOUND)


def judge(
    steps: Steps,
    axes: Mapping[str, Axis],
    images: Sequence[str],
    thresholds: Mapping[str, float],
    rate: float,
    limit: float | None = None,
) -> Findings:
    """Rates with their exact 95 % intervals at these thresholds; the limit is `default_limit(rate)` unless told."""
    limit = checked_limit(rate, limit, len(images))

    def point(strength: float, step: Step) -> Point:
        return Point(strength, {arm: _verdicts(step.normal[arm], step.damaged[arm], thresholds[arm]) for arm in ARMS})

    def curve(axis: Axis) -> Curve:
        by_strength = {0.0: steps["", 0.0]} | {s: steps[axis.name, s] for s in axis.strengths}
        return Curve(axis, tuple(point(strength, by_strength[strength]) for strength in sorted(by_strength)))

    return Findings(tuple(map(curve, axes.values())), tuple(images), rate, limit, dict(thresholds), dict(steps))


def require(findings: Findings, wanted: Mapping[str, float]) -> list[str]:
    """What is not met of "holds within this strength on every side", a sentence each."""
    said = []
    for curve in findings.curves:
        reach = wanted.get(curve.axis.name)
        if reach is None:
            continue
        for found in findings.both(curve.axis, "filtered"):
            asked = f"{curve.axis.told(found.side * reach)} is required"
            for name, what in ENDS.items():
                where = getattr(found, name)
                if where is not None and abs(where) <= reach:
                    said.append(f"{curve.axis.title}: {what} at {curve.axis.told(where)}; {asked}.")
    return said


def _verdicts(normal: Sequence[float], damaged: Sequence[float], threshold: float) -> Verdicts:
    """Of the normals and of the same parts with a defect; a score that is NaN was not judged."""
    scores = np.concatenate([normal, damaged])
    labels = np.arange(len(scores)) >= len(normal)
    return count_verdicts(labels, scores > threshold, ~np.isnan(scores))
