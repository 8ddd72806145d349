"""Findings in words and numbers: a sentence an axis for people, rows and a dictionary for machines."""

from __future__ import annotations

from collections.abc import Sequence

from nfad.stats.verdicts import Verdicts
from nfad.stress.axes import Axis
from nfad.stress.findings import ARMS, ENDS, Curve, Findings, Side


def sentence(findings: Findings, curve: Curve) -> str:
    """What to know of an axis: how far it holds and what ends it, by either arm, and what was counted there."""
    bare, told = _held(findings, curve, "unfiltered"), _held(findings, curve, "filtered")
    if told == bare:
        told += ", with and without the filter"
    elif told.startswith("Holds") and bare.startswith("Holds"):
        told += f"; without the filter {bare.removeprefix('Holds ')}"
    else:
        told += f"; without the filter it {bare[0].lower()}{bare[1:]}"
    return f"{told}.{_luck(findings, curve)} {_counted(findings, curve)}"


def shares_told(found: Verdicts, arm: str) -> str:
    """Good parts flagged, defects found and good parts not judged, of which the unfiltered score knows none."""
    told = f"{found.false_alarms.value:.0%} of good parts flagged, {found.detections.value:.0%} of defects found"
    if arm == "unfiltered" and not found.good_unjudged + found.bad_unjudged:
        return told
    told += f", {found.good_not_judged.value:.0%} of good parts not judged"
    return told + (f" ({found.bad_not_judged.value:.0%} of defects)" if found.bad_unjudged else "")


def range_told(findings: Findings, curve: Curve, arm: str) -> str:
    """How far an axis may change, in as few words as a table has room for."""
    axis, sides = curve.axis, findings.both(curve.axis, arm)
    if sides[0].ends == 0:
        return "not even unchanged"
    if not any(side.holds for side in sides):
        return f"less than {' or '.join(_weakest(sides))}"
    if len(sides) == 1:
        return f"up to {axis.told(sides[0].holds)}"
    return f"{_short(axis, sides[0].holds)} to {axis.told(sides[1].holds)}"


def as_rows(findings: Findings) -> list[dict[str, str | float]]:
    """A row for each axis, strength and arm, ready for CSV and JSON."""
    return [
        {
            "axis": curve.axis.name, "strength": point.strength, "unit": curve.axis.unit,
            "told": curve.axis.told(point.strength), "arm": arm, "images": len(findings.images),
            "false_alarms": found.false_alarms.value, "false_alarms_low": found.false_alarms.low,
            "false_alarms_high": found.false_alarms.high, "found": found.detections.value,
            "found_low": found.detections.low, "found_high": found.detections.high,
            "verdict_error": found.verdict_error, "not_judged": found.good_not_judged.value,
            "not_judged_low": found.good_not_judged.low, "not_judged_high": found.good_not_judged.high,
            "defects_not_judged": found.bad_not_judged.value,
        }
        for curve in findings.curves
        for point in curve.points
        for arm, found in point.arms.items()
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
                {"side": side.side, "arm": side.arm, "holds": side.holds, "ends": side.ends, "why": side.why}
                | {name: getattr(side, name) for name in ENDS}
                for side in sides
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


def _held(findings: Findings, curve: Curve, arm: str) -> str:
    sides = findings.both(curve.axis, arm)
    if sides[0].ends == 0:
        return f"Does not hold even for unchanged photos: {sides[0].why}"
    if not any(side.holds for side in sides):
        ends = " and ".join(f"{side.told()} ({side.why})" for side in sides if side.ends is not None)
        return f"Ends at the weakest strength tried, {ends}"
    told = "Holds " if len(sides) == 1 else "Holds from "
    told += range_told(findings, curve, arm)
    if all(side.ends is None for side in sides):
        return f"{told}, all that was tried"
    ended = [f"at {side.told()} {side.why}" for side in sides if side.ends is not None]
    return f"{told} ({'; '.join(ended)})"


def _luck(findings: Findings, curve: Curve) -> str:
    """Where more than the limit is flagged without being proof."""
    ends = [0.0, *(side.holds for side in findings.both(curve.axis, "filtered"))]
    held = [point for point in curve.points if min(ends) <= point.strength <= max(ends)]
    worst = max(held, key=lambda point: point.alarms["filtered"].value)
    if not worst.alarms["filtered"].low <= findings.limit < worst.alarms["filtered"].value:
        return ""
    most, usual = worst.alarms["filtered"].value, findings.normal.alarms["filtered"].value
    flagged = f"Within that no more are flagged than as they are, {usual:.0%}"
    if most > usual:
        flagged = f"At {curve.axis.told(worst.strength)} {most:.0%} are flagged, {usual:.0%} as they are"
    return f" {flagged}: more images would tell whether that is luck."


def _counted(findings: Findings, curve: Curve) -> str:
    """Both errors and what is not judged, as it is and at the end of what was tried, by either arm."""
    axis, ends = curve.axis, {"unchanged": 0.0}
    for side in axis.sides:
        last = axis.of_side(side)[-1]
        ends[f"at {axis.told(last)}"] = last
    told = {
        arm: "; ".join(f"{name}: {shares_told(curve.at(strength).arms[arm], arm)}" for name, strength in ends.items())
        for arm in ARMS
    }
    return f"Counted with the filter, {told['filtered']}. Without the filter, {told['unfiltered']}."


def _weakest(sides: Sequence[Side]) -> list[str]:
    """Where each side ends."""
    return [side.told() for side in sides if side.ends is not None]


def _short(axis: Axis, strength: float) -> str:
    """Without the unit, where the same unit follows."""
    return axis.told(strength).removesuffix(axis.unit).rstrip() if not axis.words else axis.told(strength)
