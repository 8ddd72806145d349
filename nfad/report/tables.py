"""An evaluation's numbers for people: tables by domain, and what they do not say by themselves, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nfad.evaluation.scores import ARMS
from nfad.evaluation.tally import EVERYWHERE, Arm, EvaluationRow
from nfad.report.rendering import Figure
from nfad.stats.intervals import Interval, rate_interval

FEW = 20  # with fewer images of a class, one of them can move an AUROC or a rate by more than 5 points
VERDICT_COLUMNS = ("Good flagged", "Bad found", "Verdict error", "Good not judged", "Bad not judged")
PIXEL_METRICS = {"p_auroc": "AUROC", "p_ap": "AP", "p_f1": "F1\u2011max", "aupro": "AUPRO"}
UNKNOWN = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Cell:
    """A number and its interval; a gain stands for both lines of its domain and says whether it is certain."""

    value: str
    span: str = ""
    is_gain: bool = False
    certain: bool = False
    words: str = ""


@dataclass(frozen=True)
class DomainLines:
    """One line an arm, the one compared with first, so that digits stand under digits."""

    name: str
    good: int
    bad: int
    lines: dict[str, list[Cell]]


@dataclass(frozen=True)
class DomainTable:
    """What domains.html shows."""

    caption: str
    what: str  # is compared: scores or maps
    columns: tuple[str, ...]
    domains: tuple[DomainLines, ...]


def verdict_table(rows: Sequence[EvaluationRow], arms: Sequence[str] = ARMS) -> DomainTable:
    """What happens at the threshold in use: both errors side by side, and what is not judged."""

    def cells(row: EvaluationRow, arm: str) -> list[Cell]:
        errors = [
            _rate(alarm_rate(row, arm)),
            _rate(detection_rate(row, arm)),
            _measured(row.arms[arm], "verdict_error"),
        ]
        return [*errors, _refused(row, arm, "good"), _refused(row, arm, "bad")]

    return DomainTable("Verdicts: what does the threshold do?", "Score", VERDICT_COLUMNS, _domains(rows, arms, cells))


def image_table(rows: Sequence[EvaluationRow], arms: Sequence[str] = ARMS) -> DomainTable:
    """Is there a defect? How well the scores rank, at every threshold."""

    def cells(row: EvaluationRow, arm: str) -> list[Cell]:
        found = row.arms[arm]
        gain = [_gain(row, "i_auroc")] if len(arms) > 1 and arm == arms[0] else []
        return [_measured(found, "i_auroc"), *gain, _measured(found, "i_ap"), _measured(found, "i_f1")]

    columns = ("AUROC", *(("Gain in AUROC",) if len(arms) > 1 else ()), "AP", "F1\u2011max")
    return DomainTable("Images: is there a defect?", "Score", columns, _domains(rows, arms, cells))


def pixel_table(rows: Sequence[EvaluationRow], protocol: str, arms: Sequence[str] = ARMS) -> DomainTable | None:
    """Where is it? None if no domain has a mask to compare with."""
    if all(math.isnan(getattr(row.arms[arm], metric)) for row in rows for arm in arms for metric in PIXEL_METRICS):
        return None
    compared = [metric for metric in PIXEL_METRICS if any(metric in row.gains for row in rows)]

    def cells(row: EvaluationRow, arm: str) -> list[Cell]:
        found = []
        for metric in PIXEL_METRICS:
            found.append(_measured(row.arms[arm], metric))
            if arm == arms[0] and metric in compared:
                found.append(_gain(row, metric))
        return found

    columns = []
    for metric, name in PIXEL_METRICS.items():
        columns += [name, f"Gain in {name}"] if metric in compared else [name]
    caption = f"Pixels: where is it? AUPRO by protocol {protocol}"
    return DomainTable(caption, "Map", tuple(columns), _domains(rows, arms, cells))


def alarm_rate(row: EvaluationRow, arm: str) -> Interval:
    """Share of the good images flagged, with its exact 95% interval."""
    return _counted(row.arms[arm].false_alarms, row.good)


def detection_rate(row: EvaluationRow, arm: str) -> Interval:
    """Share of the bad images flagged, with its exact 95% interval."""
    return _counted(row.arms[arm].detections, row.bad)


def refused_rate(row: EvaluationRow, arm: str, kind: str) -> Interval:
    """Share of the good or of the bad images not judged, with its exact 95% interval."""
    return rate_interval(getattr(row.arms[arm], f"{kind}_not_judged"), getattr(row, kind))


def refusals(row: EvaluationRow, arm: str, kind: str) -> str:
    """How many of the good or bad images are not judged; a dash where there are none or no third verdict."""
    count, share = getattr(row.arms[arm], f"{kind}_not_judged"), refused_rate(row, arm, kind)
    if math.isnan(share.value) or (arm == "unfiltered" and not count):
        return "–"
    return f"{count} ({share.value:.0%})"


def rate_told(found: Interval) -> str:
    """A rate with its 95% interval, e.g. 5% [0,25]; a dash where there is none."""
    if math.isnan(found.value):
        return "–"
    return f"{found.value:.0%}" + ("" if math.isnan(found.low) else f" [{100 * found.low:.0f},{100 * found.high:.0f}]")


def number_told(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def remarks(rows: Sequence[EvaluationRow], rate: float | None = None, arms: Sequence[str] = ARMS) -> list[str]:
    """What a reader of the tables should be told, as sentences; `rate` is the false-alarm rate asked for."""
    said = []
    for missing, other in (("good", "bad"), ("bad", "good")):
        names = [row.domain for row in rows if getattr(row, other) and not getattr(row, missing)]
        if names:
            said.append(f"{_listed(names)}: no {missing} images, so nothing that compares both can be measured.")
    own = [row for row in rows if row.domain != EVERYWHERE or len(rows) == 1]
    few = [row for row in own if 0 < min(row.good, row.bad) < FEW]
    if few:
        sizes: dict[tuple[int, int], list[str]] = {}
        for row in few:
            sizes.setdefault((row.good, row.bad), []).append(row.domain)
        places = "; ".join(f"{_listed(names)} ({good} good, {bad} bad)" for (good, bad), names in sizes.items())
        points = 100 / min(min(size) for size in sizes)
        said.append(
            f"Too few images to tell small differences in {places}: a single one can move an AUROC or a rate by up to "
            f"{points:.0f} points. Read the intervals, not the values."
        )
    if any(row.arms[arm].intervals.get("i_auroc", (0.0, 0.0))[0] == 1 for row in rows for arm in arms):
        said.append(
            "Where an AUROC and its interval are 1.000, these images hold no mistake to resample; others may still."
        )
    if rate is not None:
        for arm in arms:
            over = [(row.domain, alarm_rate(row, arm)) for row in own]
            over = [(domain, found) for domain, found in over if found.low > rate]
            if over:
                places = _listed([f"{domain} ({found.value:.0%})" for domain, found in over])
                said.append(
                    f"The {arm} scores certainly flag more good parts than the {100 * rate:.3g}% their threshold was "
                    f"set for in {places}: the shift there reaches them."
                )
    for kind, meant in (("good", "neither flagged nor passed"), ("bad", "stopped, though not found")):
        some = [row for row in own if getattr(row.arms[arms[-1]], f"{kind}_not_judged")]
        if some:
            places = _listed([f"{row.domain} ({refusals(row, arms[-1], kind)})" for row in some])
            said.append(f"{kind.capitalize()} parts that are not judged count as {meant}: {places}.")
    return said


def summary_row(rows: Sequence[EvaluationRow]) -> EvaluationRow:
    """The row of all images, or the last."""
    return next((row for row in rows if row.domain == EVERYWHERE), rows[-1])


def headline(row: EvaluationRow, arms: Sequence[str] = ARMS) -> list[Figure]:
    """A row in a few large figures, unfiltered → filtered, or whatever is compared."""
    told, last = [], row.arms[arms[-1]]

    def arrow(metric: str, digits: int, factor: float = 1.0) -> str:
        return " → ".join(f"{factor * getattr(row.arms[arm], metric):.{digits}f}" for arm in arms)

    for metric, words, found in (
        ("false_alarms", "good parts flagged", alarm_rate(row, arms[-1])),
        ("detections", "bad parts found", detection_rate(row, arms[-1])),
    ):
        if not math.isnan(found.value):
            span = "" if math.isnan(found.low) else f"95%: {100 * found.low:.0f} to {100 * found.high:.0f}%"
            told.append(Figure(f"{arrow(metric, 0, 100)}%", words, span))
    if not math.isnan(last.verdict_error):
        told.append(Figure(arrow("verdict_error", 3), "verdict error", "(good flagged + bad passed) / 2"))
    if last.good_not_judged or last.bad_not_judged:
        good, bad = (refusals(row, arms[-1], kind) for kind in ("good", "bad"))
        told.append(Figure(good, "good parts not judged", f"and {bad} bad parts, which are stopped"))
    for metric, words in (("i_auroc", "image AUROC"), ("aupro", "AUPRO")):
        if not math.isnan(getattr(last, metric)):
            gain = row.gains.get(metric, UNKNOWN)
            span = "" if math.isnan(gain.low) else f"{told_gain(gain)}: {signed(gain.low)} to {signed(gain.high)}"
            told.append(Figure(arrow(metric, 3), words, span))
    return told


def told_gain(gain: Interval) -> str:
    """A difference in words, which never claims what lies inside its interval."""
    if not gain.excludes_zero:
        return "no certain difference"
    return "higher" if gain.low > 0 else "lower"


def signed(value: float) -> str:
    return "0.000" if abs(value) < 0.0005 else f"{value:+.3f}".replace("-", "−")


def _domains(
    rows: Sequence[EvaluationRow], arms: Sequence[str], cells: Callable[[EvaluationRow, str], list[Cell]]
) -> tuple[DomainLines, ...]:
    return tuple(DomainLines(row.domain, row.good, row.bad, {arm: cells(row, arm) for arm in arms}) for row in rows)


def _counted(rate: float, total: int) -> Interval:
    hits = rate * total
    if math.isnan(rate) or not math.isclose(hits, round(hits), abs_tol=1e-6):  # a mean over domains counts no images
        return Interval(rate, math.nan, math.nan)
    return rate_interval(round(hits), total)


def _measured(arm: Arm, metric: str) -> Cell:
    value = getattr(arm, metric)
    if math.isnan(value):
        return Cell("–")
    low, high = arm.intervals.get(metric, (math.nan, math.nan))
    return Cell(f"{value:.3f}", "" if math.isnan(low) else f"{low:.3f}–{high:.3f}")


def _rate(found: Interval) -> Cell:
    if math.isnan(found.value):
        return Cell("–")
    span = "" if math.isnan(found.low) else f"{100 * found.low:.0f}–{100 * found.high:.0f}"
    return Cell(f"{found.value:.0%}", span)


def _refused(row: EvaluationRow, arm: str, kind: str) -> Cell:
    told, share = refusals(row, arm, kind), refused_rate(row, arm, kind)
    return Cell(told, "" if told == "–" else f"{100 * share.low:.0f}–{100 * share.high:.0f}")


def _gain(row: EvaluationRow, metric: str) -> Cell:
    """Bold only if the interval lies on one side of zero."""
    gain = row.gains.get(metric, UNKNOWN)
    if math.isnan(gain.value):
        return Cell("–", is_gain=True)
    span = f"{signed(gain.low)} to {signed(gain.high)}"
    return Cell(signed(gain.value), span, is_gain=True, certain=gain.excludes_zero, words=told_gain(gain))


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
