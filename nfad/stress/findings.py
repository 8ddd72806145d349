"""From scores to sentences: how often normals are flagged at each strength, and where that becomes too often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nfad.errors import NfadError
from nfad.stats.intervals import Interval, rate_interval
from nfad.stress.axes import Axis
from nfad.stress.measure import Step, Steps

ARMS = {"unfiltered": "without the filter", "filtered": "with the filter"}
LEAST_LIMIT = 0.05  # a limit below this could not be told from luck on any sensible number of images


@dataclass(frozen=True)
class Point:
    """One strength: the share of normals flagged and of defects found, by arm."""

    strength: float
    alarms: Mapping[str, Interval]
    found: Mapping[str, Interval]


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
    """How far an axis goes well in one direction, for one arm; None where it goes well to the end."""

    axis: Axis
    side: int
    arm: str
    breaks: float | None  # the weakest strength with too many false alarms
    blind: float | None  # and with too few defects found
    holds: float  # the strongest strength before it breaks
    found: float  # share of the defects found there

    @property
    def title(self) -> str:
        return f"{self.axis.title}, {self.axis.direction(self.side)}"

    @property
    def reach(self) -> float:
        """Where it breaks, as a share of the range tried: what makes stops comparable with degrees. 2 if nowhere."""
        return 2.0 if self.breaks is None else abs(self.breaks) / abs(self.axis.of_side(self.side)[-1])

    def told(self) -> str:
        """Where it breaks, or how far it was seen to hold."""
        if self.breaks is None:
            return f"holds to {self.axis.told(self.holds)}"
        return self.axis.told(self.breaks) if self.breaks else "as it is"

    def seen(self) -> str:
        """Defects found as far out as it holds, be that only as it is; none to tell of where it breaks even there."""
        return "–" if self.breaks == 0 else f"{self.found:.0%}"


@dataclass(frozen=True)
class Findings:
    """All that was measured, judged at one pair of thresholds."""

    curves: tuple[Curve, ...]
    images: tuple[str, ...]
    rate: float  # the model's false-alarm rate
    limit: float  # a condition breaks the model where the false alarms certainly exceed it
    thresholds: Mapping[str, float]
    steps: Steps

    @property
    def normal(self) -> Point:
        """The parts as they are."""
        return self.curves[0].at(0.0)

    def side(self, axis: Axis, side: int, arm: str) -> Side:
        outwards = next(curve for curve in self.curves if curve.axis is axis).outwards(side)
        breaks = first_break([point.alarms[arm] for point in outwards], self.limit)
        blind = first_blind([point.found[arm] for point in outwards])
        holds = outwards[-1] if breaks is None else outwards[max(breaks - 1, 0)]
        strength = [point.strength for point in outwards]
        return Side(
            axis, side, arm, None if breaks is None else strength[breaks],
            None if blind is None else strength[blind], holds.strength, holds.found[arm].value,
        )  # fmt: skip

    def both(self, axis: Axis, arm: str) -> list[Side]:
        """All sides of an axis, the negative first."""
        return [self.side(axis, side, arm) for side in axis.sides]

    def sides(self) -> list[Side]:
        """Every axis and side with the filter, the nearest break first; those without one by the unfiltered."""
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


def first_break(alarms: Sequence[Interval], limit: float) -> int | None:
    """The first place whose rate certainly exceeds the limit."""
    return next((place for place, rate in enumerate(alarms) if rate.low > limit), None)


def first_blind(found: Sequence[Interval]) -> int | None:
    """The first place that certainly finds less than half of what the first one finds."""
    return next((place for place, rate in enumerate(found) if rate.high < found[0].value / 2), None)


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
        return Point(
            strength,
            {arm: _flagged(step.normal[arm], thresholds[arm]) for arm in ARMS},
            {arm: _flagged(step.damaged[arm], thresholds[arm]) for arm in ARMS},
        )

    def curve(axis: Axis) -> Curve:
        by_strength = {0.0: steps["", 0.0]} | {s: steps[axis.name, s] for s in axis.strengths}
        return Curve(axis, tuple(point(strength, by_strength[strength]) for strength in sorted(by_strength)))

    return Findings(tuple(map(curve, axes.values())), tuple(images), rate, limit, dict(thresholds), dict(steps))


def sentence(findings: Findings, curve: Curve) -> str:
    """What to know of an axis: how far it holds, with the filter and without, and whether defects are still seen."""
    bare, told = _held(findings, curve, "unfiltered"), _held(findings, curve, "filtered")
    if told == bare:
        told += ", with and without the filter"
    elif told.startswith("Holds") and bare.startswith("Holds"):
        told += f"; without the filter {bare.removeprefix('Holds ')}"
    else:
        told += f"; without the filter it {bare[0].lower()}{bare[1:]}"
    told += "."
    ends = [0.0, *(side.holds for side in findings.both(curve.axis, "filtered"))]
    held = [point for point in curve.points if min(ends) <= point.strength <= max(ends)]
    worst = max(held, key=lambda point: point.alarms["filtered"].value)
    if worst.alarms["filtered"].low <= findings.limit < worst.alarms["filtered"].value:
        most, usual = worst.alarms["filtered"].value, findings.normal.alarms["filtered"].value
        if most > usual:
            flagged = f"At {curve.axis.told(worst.strength)} {most:.0%} are flagged, {usual:.0%} as they are"
        else:
            flagged = f"Within that no more are flagged than as they are, {usual:.0%}"
        told += f" {flagged}: more images would tell whether that is luck."
    blind = [side.blind for side in findings.both(curve.axis, "filtered") if side.blind is not None]
    if blind:
        rates = "; ".join(f"{curve.axis.told(s)}: {curve.at(s).found['filtered'].value:.0%}" for s in blind)
        told += f" It goes blind: synthetic defects found at {rates}, as it is: {_found(findings)}."
    return told


def range_told(findings: Findings, curve: Curve, arm: str) -> str:
    """How far an axis may change, in as few words as a table has room for."""
    axis, sides = curve.axis, findings.both(curve.axis, arm)
    if sides[0].breaks == 0:
        return "not even as it is"
    if not any(side.holds for side in sides):
        return f"less than {' or '.join(_weakest(sides))}"
    if len(sides) == 1:
        return f"up to {axis.told(sides[0].holds)}"
    return f"{_short(axis, sides[0].holds)} to {axis.told(sides[1].holds)}"


def require(findings: Findings, wanted: Mapping[str, float]) -> list[str]:
    """What is not met of "holds, and sees, within this strength on every side", a sentence each."""
    said = []
    for curve in findings.curves:
        reach = wanted.get(curve.axis.name)
        if reach is None:
            continue
        for found in findings.both(curve.axis, "filtered"):
            asked = f"{curve.axis.told(found.side * reach)} is required"
            for where, what in ((found.breaks, "too many false alarms"), (found.blind, "too few defects found")):
                if where is not None and abs(where) <= reach:
                    said.append(f"{curve.axis.title}: {what} at {curve.axis.told(where)}; {asked}.")
    return said


def as_rows(findings: Findings) -> list[dict[str, str | float]]:
    """A row for each axis, strength and arm, ready for CSV and JSON."""
    return [
        {
            "axis": curve.axis.name, "strength": point.strength, "unit": curve.axis.unit,
            "told": curve.axis.told(point.strength), "arm": arm, "images": len(findings.images),
            "false_alarms": point.alarms[arm].value, "false_alarms_low": point.alarms[arm].low,
            "false_alarms_high": point.alarms[arm].high, "found": point.found[arm].value,
            "found_low": point.found[arm].low, "found_high": point.found[arm].high,
        }
        for curve in findings.curves
        for point in curve.points
        for arm in ARMS
    ]  # fmt: skip


def as_dict(findings: Findings) -> dict[str, object]:
    """Everything for machines."""
    axes = {}
    for curve in findings.curves:
        sides = [side for arm in ARMS for side in findings.both(curve.axis, arm)]
        axes[curve.axis.name] = {
            "unit": curve.axis.unit,
            "told": sentence(findings, curve),
            "sides": [
                {"side": s.side, "arm": s.arm, "breaks": s.breaks, "blind": s.blind, "holds": s.holds} for s in sides
            ],
        }
    return {
        "images": list(findings.images),
        "false_alarm_rate": findings.rate,
        "limit": findings.limit,
        "thresholds": dict(findings.thresholds),
        "axes": axes,
        "rows": as_rows(findings),
    }


def _flagged(scores: Sequence[float], threshold: float) -> Interval:
    return rate_interval(int((np.asarray(scores) > threshold).sum()), len(scores))


def _found(findings: Findings) -> str:
    return f"{findings.normal.found['filtered'].value:.0%}"


def _held(findings: Findings, curve: Curve, arm: str) -> str:
    axis = curve.axis
    sides = findings.both(axis, arm)
    if sides[0].breaks == 0:
        return "Breaks already as it is"
    whole = all(side.breaks is None for side in sides)
    if not any(side.holds for side in sides):
        return f"Breaks at the weakest strength tried, {' and '.join(_weakest(sides))}"
    told = "Holds " if len(sides) == 1 else "Holds from "
    return told + range_told(findings, curve, arm) + (", all that was tried" if whole else "")


def _weakest(sides: Sequence[Side]) -> list[str]:
    """Where each side breaks."""
    return [side.axis.told(side.breaks) for side in sides if side.breaks is not None]


def _short(axis: Axis, strength: float) -> str:
    """Without the unit, where the same unit follows."""
    return axis.told(strength).removesuffix(axis.unit).rstrip() if not axis.words else axis.told(strength)
