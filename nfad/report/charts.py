"""Charts as SVG text: numbers in, a string out. What is drawn is told in words as well, in <title> and <desc>."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from nfad.evaluation.curves import Points
from nfad.evaluation.metrics import FPR_LIMIT
from nfad.report.drawing import Frame, box, coordinate, drawing, escaped, level, path, standing, text
from nfad.stats.intervals import Interval
from nfad.stress.axes import Axis

BINS = 40  # of a histogram, at the most
NEAR = 30  # units between the labels of an axis, at the least
FIFTHS = (0, 0.2, 0.4, 0.6, 0.8, 1)


@dataclass(frozen=True)
class Line:
    """One arm's curve; `mark` is where its threshold puts it on the curve, if it has one."""

    name: str
    style: str  # "unfiltered", which is dashed, or "filtered"
    points: Points
    area: float
    mark: tuple[float, float] | None = None


@dataclass(frozen=True)
class ScoreAxis:
    """What histograms to be compared share: the range of scores and the width of a bin.

    Distances are those of asinh(score), linear about 0 and logarithmic beyond: a shift can multiply scores by ten, and
    the threshold must stay in sight.
    """

    low: float
    high: float
    width: float  # in units of asinh(score)

    @property
    def first(self) -> float:
        """The drawing's left end, a bin further out than the lowest score."""
        return math.asinh(self.low) - self.width

    @property
    def last(self) -> float:
        return math.asinh(self.high) + self.width

    def bins(self, scores: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """Left ends (in asinh) and counts of the bins that hold a score.

        One bin ends just at the threshold, so that what lies right of it in the drawing is what exceeds it.
        """
        marked = math.isfinite(threshold)
        origin = math.asinh(threshold if marked else self.low)
        place = np.ceil((np.arcsinh(scores) - origin) / self.width)
        if marked:  # whatever rounding says
            place = np.where(scores > threshold, np.maximum(place, 1), np.minimum(place, 0))
        places, counts = np.unique(place, return_counts=True)
        return origin + (places - 1) * self.width, counts


def score_axis(scores: np.ndarray, thresholds: Sequence[float], bins: int = BINS) -> ScoreAxis:
    """From the lowest to the highest of all scores and thresholds."""
    values = np.append(np.asarray(scores, dtype=float), [value for value in thresholds if math.isfinite(value)])
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    spread = math.asinh(high) - math.asinh(low)
    return ScoreAxis(low, high, max(spread / bins, 0.02))  # all equal, or nearly: bins of 2 % will do


def bins_for(images: int) -> int:
    """More images bear narrower bins."""
    return int(np.clip(4 * math.sqrt(images), 12, BINS))


def tallest_share(classes: Sequence[np.ndarray], axis: ScoreAxis, threshold: float) -> float:
    """A round share that no bin of these classes exceeds: what histograms to be compared have at their tops."""
    shares = [axis.bins(scores, threshold)[1].max() / len(scores) for scores in classes if len(scores)]
    return math.ceil(20 * max(shares, default=1.0) - 1e-9) / 20


def roc_chart(place: str, lines: Sequence[Line]) -> Markup:
    """Bad against good images flagged, for every threshold; the diagonal is chance, the marks are thresholds in use."""
    frame = Frame(left=44, top=50, width=222, height=222)
    body = _curve_axes("ROC", frame, lines, FIFTHS, ("good images flagged", "bad images flagged"))
    if any(len(line.points[0]) for line in lines):
        body.append(path("chance", frame, np.array([0, 1]), np.array([0, 1])))
    else:
        body.append(text(frame.middle, frame.y(0.5), "needs good and bad images", "told", "middle"))
    return _with_curves(f"ROC, {place}", "AUROC", frame, lines, body)


def pro_chart(place: str, lines: Sequence[Line]) -> Markup:
    """Mean overlap with the defects against good pixels flagged, as far as AUPRO counts it."""
    frame = Frame(left=44, top=50, width=222, height=222, last=FPR_LIMIT)
    ticks = (0, 0.1, 0.2, FPR_LIMIT)
    body = _curve_axes("PRO", frame, lines, ticks, ("good pixels flagged", "mean overlap with defects"))
    if not any(len(line.points[0]) for line in lines):
        body.append(text(frame.middle, frame.y(0.5), "needs masks of defects", "told", "middle"))
    return _with_curves(f"PRO, {place}", "AUPRO", frame, lines, body)


def histogram(
    place: str, name: str, good: np.ndarray, bad: np.ndarray, threshold: float, axis: ScoreAxis, top: float
) -> Markup:
    """Good images rise from the line, bad ones hang below it, each as shares of their own number up to `top`."""
    frame = Frame(left=48, top=54, width=372, height=136, first=axis.first, last=axis.last)
    told = [f"{np.sum(part > threshold)} of {len(part)} {word}" for part, word in ((good, "good"), (bad, "bad"))]
    words = f"flagged: {', '.join(told)}"
    body = [text(frame.left, 18, name, "name"), text(frame.right, 18, words, "told", "end")]
    marked = math.isfinite(threshold)
    at = frame.x(math.asinh(threshold)) if marked else frame.right
    body.append(box("flagged", at, frame.top, frame.right - at, frame.height) if marked else "")
    body += [level(frame, share, label) for share, label in ((1, f"{top:.0%}"), (0.5, "0"), (0, f"{top:.0%}"))]
    body += [standing(frame.y(0.75), "good"), standing(frame.y(0.25), "bad")]
    body += _bars(frame, axis, good, threshold, top, "fine", "good")
    body += _bars(frame, axis, bad, threshold, top, "flaw", "bad")
    body.append(f'<path class="axis" d="M{frame.left} {coordinate(frame.y(0.5))}H{coordinate(frame.right)}"/>')
    for value in _score_ticks(axis, frame):
        tick = frame.x(math.asinh(value))
        body.append(f'<path class="axis" d="M{coordinate(tick)} {frame.bottom}v4"/>')
        body.append(text(tick, frame.bottom + 17, f"{value:g}", anchor="middle"))
    body.append(text(frame.middle, frame.bottom + 34, "score (about logarithmic)", anchor="middle"))
    if marked:
        side = "end" if at > frame.left + 0.7 * frame.width else "start"
        body.append(f'<path class="threshold" d="M{coordinate(at)} {frame.top - 4}V{frame.bottom}"/>')
        body.append(text(at, frame.top - 9, f"threshold {threshold:.2f}", "told", side))
    where = f"threshold at {threshold:.2f}" if marked else "no threshold"
    return drawing(430, 232, f"Scores, {place}, {name}", f"{words}; {where}.", body)


def rate_chart(
    name: str,
    label: str,
    axis: Axis,
    strengths: Sequence[float],
    rates: Mapping[str, Sequence[Interval]],
    limit: float | None = None,
    marks: Mapping[str, Sequence[float | None]] | None = None,
) -> Markup:
    """The share of images flagged at rising strengths, by arm.

    `marks` are strengths to ring (where an arm breaks), `limit` a line across.
    """
    frame = Frame(left=58, top=58, width=336, height=180, first=min(strengths), last=max(strengths))
    x = np.asarray(strengths, dtype=float)
    body = [text(frame.left, 18, name, "name"), *_legend(frame, rates)]
    body += [level(frame, share, f"{share:.0%}") for share in FIFTHS]
    body += _strength_ticks(axis, strengths, frame)
    body.append(f'<path class="axis" d="M{frame.left} {frame.top}V{frame.bottom}H{frame.right}"/>')
    if frame.first < 0:
        body.append(f'<path class="asis" d="M{coordinate(frame.x(0))} {frame.top}V{frame.bottom}"/>')
        body.append(text(frame.left, frame.bottom + 35, f"← {axis.less}"))
    body.append(text(frame.right, frame.bottom + 35, f"{axis.more} →", anchor="end"))
    body.append(standing(frame.top + frame.height / 2, label))
    if limit is not None:
        body.append(f'<path class="limit" d="M{frame.left} {coordinate(frame.y(limit))}H{coordinate(frame.right)}"/>')
        body.append(text(frame.right, frame.y(limit) - 5, f"limit {limit:.0%}", anchor="end"))
    told = []
    for arm, points in rates.items():
        low, high = (np.array([getattr(point, end) for point in points]) for end in ("low", "high"))
        body.append(path(f"band {arm}", frame, np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])))
    for arm, points in rates.items():
        pairs, ringed = list(zip(strengths, points, strict=True)), (marks or {}).get(arm, ())
        body.append(path(arm, frame, x, np.array([point.value for point in points])))
        body += [_dot(arm, axis, frame, strength, point, strength in ringed) for strength, point in pairs]
        ends = ", ".join(f"{axis.told(strength)} {point.value:.0%}" for strength, point in pairs)
        told.append(f"{arm} ({'dashed' if arm == 'unfiltered' else 'solid'}): {ends}")
    return drawing(428, 286, f"{axis.title}: {name}", f"{'; '.join(told)}.", body)


def _bars(
    frame: Frame, axis: ScoreAxis, scores: np.ndarray, threshold: float, top: float, kind: str, word: str
) -> list[str]:
    bars, middle = [], frame.y(0.5)
    width = frame.x(axis.width) - frame.x(0)
    for left, count in zip(*axis.bins(scores, threshold), strict=True):
        height = frame.height / 2 * count / len(scores) / top
        low, high = math.sinh(left), math.sinh(left + axis.width)
        about = f"<title>{count} {word}, scores from {low:.3g} to {high:.3g}</title>"
        upper = middle - height if kind == "fine" else middle
        bars.append(box(kind, frame.x(left) + 0.5, upper, width - 1, height, about))
    return bars


def _score_ticks(axis: ScoreAxis, frame: Frame) -> list[float]:
    """Round values along the axis, none too close to the one before."""
    reach = max(abs(axis.low), abs(axis.high), 0.1)
    if axis.high - axis.low < 0.6 * reach:  # narrow: evenly spaced
        step = round_step((math.sinh(axis.last) - math.sinh(axis.first)) / 5)
        first = math.ceil(math.sinh(axis.first) / step)
        values = [float(f"{(first + place) * step:.12g}") for place in range(12)]
    else:
        decades = [10.0**power for power in range(-1, math.ceil(math.log10(reach)) + 1)]
        sizes = [factor * decade for decade in decades for factor in (1, 2, 3, 5)]
        values = [-size for size in reversed(sizes)] + [0.0] + sizes
    kept: list[float] = []
    for value in values:
        if axis.first <= math.asinh(value) <= axis.last:
            before = frame.x(math.asinh(kept[-1])) if kept else -math.inf
            if frame.x(math.asinh(value)) - before >= NEAR:
                kept.append(value)
    return kept


def round_step(least: float) -> float:
    """The smallest of … 0.1, 0.2, 0.25, 0.5, 1 … that is no less."""
    unit = 10.0 ** math.floor(math.log10(least))
    return next(unit * factor for factor in (1, 2, 2.5, 5, 10, 20) if unit * factor >= least)


def _curve_axes(
    name: str, frame: Frame, lines: Sequence[Line], ticks: Sequence[float], labels: tuple[str, str]
) -> list[str]:
    """Name, legend, and axes with their labels; the legend stands above, where no curve comes."""
    body = [text(frame.left, 18, name, "name")]
    for place, line in enumerate(lines):
        left = frame.left - 12 + place * 124
        body.append(f'<path class="{line.style}" d="M{coordinate(left)} 35h18"/>')
        body.append(text(left + 23, 39, f"{line.name} {_area(line)}", "told"))
    body += [level(frame, share, f"{share:g}") for share in FIFTHS]
    body += [text(frame.x(value), frame.bottom + 17, f"{value:g}", anchor="middle") for value in ticks]
    body.append(f'<path class="axis" d="M{frame.left} {frame.top}V{frame.bottom}H{frame.right}"/>')
    body.append(text(frame.middle, frame.bottom + 35, labels[0], anchor="middle"))
    body.append(standing(frame.top + frame.height / 2, labels[1]))
    return body


def _with_curves(title: str, area: str, frame: Frame, lines: Sequence[Line], body: list[str]) -> Markup:
    told = []
    for line in lines:
        drawn = "dashed" if line.style == "unfiltered" else "solid"
        told.append(f"{line.name} ({drawn}): {area} {_area(line)}")
        if len(line.points[0]):
            body.append(path(line.style, frame, *line.points))
    for line in lines:  # the marks lie on all curves
        if line.mark and all(map(math.isfinite, line.mark)):
            good, bad = line.mark
            words = f"{line.name} at its threshold: {good:.0%} of good and {bad:.0%} of bad flagged"
            told.append(words)
            body.append(
                f'<circle class="{line.style}" cx="{coordinate(frame.x(good))}" cy="{coordinate(frame.y(bad))}" r="5">'
                f"<title>{escaped(words)}</title></circle>"
            )
    return drawing(276, 314, title, f"{'; '.join(told)}.", body)


def _area(line: Line) -> str:
    return f"{line.area:.3f}" if math.isfinite(line.area) else "–"


def _legend(frame: Frame, arms: Iterable[str]) -> list[str]:
    drawn = []
    for place, arm in enumerate(arms):
        left = frame.left + place * 136
        drawn.append(f'<path class="{arm}" d="M{coordinate(left)} 37h24"/>')
        drawn.append(text(left + 30, 41, arm, "told"))
    return drawn


def _strength_ticks(axis: Axis, strengths: Sequence[float], frame: Frame) -> list[str]:
    """The measured strengths that have room: 0 and the ends first, for they are asked for most."""
    kept: list[tuple[float, float]] = []
    drawn = []
    for strength in sorted(strengths, key=lambda value: (value != 0, -abs(value))):
        words, at = axis.told(strength).removeprefix(f"{axis.name} "), frame.x(strength)
        half = max(NEAR / 2, 3.4 * len(words))
        if all(abs(at - other) >= half + width for other, width in kept):
            kept.append((at, half))
            drawn.append(f'<path class="axis" d="M{coordinate(at)} {frame.bottom}v4"/>')
            drawn.append(text(at, frame.bottom + 17, words, anchor="middle"))
    return drawn


def _dot(arm: str, axis: Axis, frame: Frame, strength: float, rate: Interval, marked: bool) -> str:
    """A measurement; a larger one is where the arm breaks."""
    words = f"{arm} at {axis.told(strength)}: {rate.value:.0%} ({rate.low:.0%} to {rate.high:.0%})"
    words += ", breaks" if marked else ""
    return (
        f'<circle class="dot {arm}" cx="{coordinate(frame.x(strength))}" cy="{coordinate(frame.y(rate.value))}" '
        f'r="{6 if marked else 2.5}"><title>{escaped(words)}</title></circle>'
    )
