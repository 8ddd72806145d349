"""An evaluation's numbers for people: tables by domain, and what they do not say by themselves, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from nfad.evaluation.tally import EVERYWHERE
from nfad.report.page import figures
from nfad.stats.intervals import Interval, rate_interval

Row = Mapping[str, Any]  # of `Report.rows`

FEW = 20  # with fewer images of a class, one of them can move an AUROC or a rate by more than 5 points
ARMS = {"unfiltered": "unfiltered", "filtered": "filtered"}
IMAGE_COLUMNS = ("AUROC", "Gain in AUROC", "AP", "F1\u2011max", "Good flagged", "Bad found")
PIXEL_METRICS = {"p_auroc": "AUROC", "p_ap": "AP", "p_f1": "F1\u2011max", "aupro": "AUPRO"}


def image_table(rows: Sequence[Row]) -> str:
    """Is there a defect? Ranking first, then what happens at the threshold in use."""
    body = []
    for row in rows:
        lines = []
        for arm in ARMS:
            cells = [_cell(row[arm], "i_auroc")]
            if arm == "unfiltered":
                cells.append(_gain(row, "gain"))
            cells += [_cell(row[arm], "i_ap"), _cell(row[arm], "i_f1")]
            cells += [_rate(alarm_rate(row, arm)), _rate(detection_rate(row, arm))]
            lines.append(cells)
        body.append(_domain(row, lines))
    return _table("Images: is there a defect?", IMAGE_COLUMNS, body)


def pixel_table(rows: Sequence[Row], protocol: str) -> str:
    """Where is it? Nothing if no domain has a mask to compare with."""
    if all(math.isnan(row[arm][metric]) for row in rows for arm in ARMS for metric in PIXEL_METRICS):
        return '<p class="lead">There are no masks, so where a defect lies could not be measured.</p>\n'
    compared = [metric for metric in PIXEL_METRICS if any(f"{metric}_gain" in row for row in rows)]
    columns = []
    for metric, name in PIXEL_METRICS.items():
        columns += [name, f"Gain in {name}"] if metric in compared else [name]
    body = []
    for row in rows:
        lines = []
        for arm in ARMS:
            cells = []
            for metric in PIXEL_METRICS:
                cells.append(_cell(row[arm], metric))
                if arm == "unfiltered" and metric in compared:
                    cells.append(_gain(row, f"{metric}_gain"))
            lines.append(cells)
        body.append(_domain(row, lines))
    return _table(f"Pixels: where is it? AUPRO by protocol {protocol}", columns, body)


def alarm_rate(row: Row, arm: str) -> Interval:
    """Share of the good images flagged, with its exact 95% interval."""
    return _counted(row[arm]["false_alarms"], row["good"])


def detection_rate(row: Row, arm: str) -> Interval:
    """Share of the bad images flagged, with its exact 95% interval."""
    return _counted(row[arm]["detections"], row["bad"])


def gain_of(row: Row, key: str = "gain") -> Interval:
    """A paired difference, NaN where the row has none of that name."""
    return Interval(*(float(row.get(key + end, math.nan)) for end in ("", "_low", "_high")))


def remarks(rows: Sequence[Row], rate: float | None = None) -> list[str]:
    """What a reader of the tables should be told, as sentences; `rate` is the false-alarm rate asked for."""
    said = []
    for missing, other in (("good", "bad"), ("bad", "good")):
        names = [row["domain"] for row in rows if row[other] and not row[missing]]
        if names:
            said.append(f"{_listed(names)}: no {missing} images, so nothing that compares both can be measured.")
    own = [row for row in rows if row["domain"] != EVERYWHERE or len(rows) == 1]
    few = [row for row in own if 0 < min(row["good"], row["bad"]) < FEW]
    if few:
        sizes: dict[tuple[int, int], list[str]] = {}
        for row in few:
            sizes.setdefault((row["good"], row["bad"]), []).append(row["domain"])
        places = "; ".join(f"{_listed(names)} ({good} good, {bad} bad)" for (good, bad), names in sizes.items())
        points = 100 / min(min(size) for size in sizes)
        said.append(
            f"Too few images to tell small differences in {places}: a single one can move an AUROC or a rate by up to "
            f"{points:.0f} points. Read the intervals, not the values."
        )
    if any(row[arm].get("i_auroc_low") == 1 for row in rows for arm in ARMS):
        said.append(
            "Where an AUROC and its interval are 1.000, these images hold no mistake to resample; others may still."
        )
    if rate is not None:
        for arm, words in ARMS.items():
            over = [(row["domain"], alarm_rate(row, arm)) for row in own]
            over = [(domain, found) for domain, found in over if found.low > rate]
            if over:
                places = _listed([f"{domain} ({_percent(found.value)})" for domain, found in over])
                said.append(
                    f"The {words} detector certainly flags more good parts than the {100 * rate:.3g}% its threshold "
                    f"was set for in {places}: the shift there reaches its scores."
                )
    return said


def headline(rows: Sequence[Row]) -> str:
    """The row of all images, or the last, in a few large figures."""
    row = next((row for row in rows if row["domain"] == EVERYWHERE), rows[-1])
    told = []
    for metric, words, found in (
        ("false_alarms", "good parts flagged", alarm_rate(row, "filtered")),
        ("detections", "bad parts found", detection_rate(row, "filtered")),
    ):
        if not math.isnan(found.value):
            before, after = (f"{100 * row[arm][metric]:.0f}" for arm in ARMS)
            span = "" if math.isnan(found.low) else f"95%: {100 * found.low:.0f} to {100 * found.high:.0f}%"
            told.append((f"{before} → {after}%", words, span))
    for metric, words, key in (("i_auroc", "image AUROC", "gain"), ("aupro", "AUPRO", "aupro_gain")):
        if not math.isnan(row["filtered"][metric]):
            before, after = (f"{row[arm][metric]:.3f}" for arm in ARMS)
            gain = gain_of(row, key)
            span = "" if math.isnan(gain.low) else f"{told_gain(gain)}: {signed(gain.low)} to {signed(gain.high)}"
            told.append((f"{before} → {after}", words, span))
    images = f"{row['good']} good and {row['bad']} bad test images"
    return f'{figures(told)}<p class="lead">Control (without the filter) → filtered, over {images}.</p>\n'


def told_gain(gain: Interval) -> str:
    """A difference in words, which never claims what lies inside its interval."""
    if not gain.excludes_zero:
        return "no certain difference"
    return "higher" if gain.low > 0 else "lower"


def signed(value: float) -> str:
    return "0.000" if abs(value) < 0.0005 else f"{value:+.3f}".replace("-", "−")


def _counted(rate: float, total: int) -> Interval:
    hits = rate * total
    if math.isnan(rate) or not math.isclose(hits, round(hits), abs_tol=1e-6):  # a mean over domains counts no images
        return Interval(rate, math.nan, math.nan)
    return rate_interval(round(hits), total)


def _domain(row: Row, lines: Sequence[Sequence[str]]) -> str:
    """The control's line and the filter's below it, so that digits stand under digits."""
    first, second = ("".join(cells) for cells in lines)
    return (
        f'<tbody>\n<tr><th scope="rowgroup" rowspan="2"><bdi>{escape(str(row["domain"]))}</bdi>'
        f"<small>{row['good']} good, {row['bad']} bad</small></th>"
        f'<th scope="row">{ARMS["unfiltered"]}</th>{first}</tr>\n'
        f'<tr><th scope="row">{ARMS["filtered"]}</th>{second}</tr>\n</tbody>\n'
    )


def _table(caption: str, columns: Sequence[str], body: Sequence[str]) -> str:
    heads = "".join(f'<th scope="col" class="number">{name}</th>' for name in columns)
    label = escape(caption)
    return (
        f'<div class="scroll full" role="region" aria-label="{label}" tabindex="0"><table class="domains">\n'
        f"<caption>{label}</caption>\n"
        f'<thead><tr><th scope="col">Domain</th><th scope="col">Detector</th>{heads}</tr></thead>\n'
        f"{''.join(body)}</table></div>\n"
    )


def _cell(arm: Mapping[str, float], metric: str) -> str:
    value = arm[metric]
    if math.isnan(value):
        return '<td class="number">–</td>'
    low, high = arm.get(f"{metric}_low", math.nan), arm.get(f"{metric}_high", math.nan)
    span = "" if math.isnan(low) else f" <small>{low:.3f}–{high:.3f}</small>"
    return f'<td class="number">{value:.3f}{span}</td>'


def _rate(found: Interval) -> str:
    if math.isnan(found.value):
        return '<td class="number">–</td>'
    span = "" if math.isnan(found.low) else f" <small>{100 * found.low:.0f}–{100 * found.high:.0f}</small>"
    return f'<td class="number">{_percent(found.value)}{span}</td>'


def _gain(row: Row, key: str) -> str:
    """One cell for both lines; bold only if the interval lies on one side of zero."""
    gain = gain_of(row, key)
    if math.isnan(gain.value):
        return '<td class="number gain" rowspan="2">–</td>'
    number = f"<strong>{signed(gain.value)}</strong>" if gain.excludes_zero else signed(gain.value)
    return (
        f'<td class="number gain" rowspan="2">{number} <small>{signed(gain.low)} to {signed(gain.high)}</small>'
        f'<small class="words">{told_gain(gain)}</small></td>'
    )


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
