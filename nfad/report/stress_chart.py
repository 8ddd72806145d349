"""An axis as a chart: the share of images flagged against the strength, with and without the filter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nfad.report.charts import FIFTHS, NEAR
from nfad.report.drawing import Frame, coordinate, drawing, escaped, level, path, standing, text
from nfad.stats.intervals import Interval
from nfad.stress.axes import Axis

# What drawing.STYLE has not: how sure a rate is, and the limit.
STYLE = """
.chart .band { stroke: none; opacity: .16; }
.chart .band.unfiltered { fill: var(--unfiltered); }
.chart .band.filtered { fill: var(--filtered); }
.chart .limit { stroke: var(--flaw); stroke-width: 1.5; stroke-dasharray: 2 3; fill: none; }
.chart .asis { stroke: var(--neutral); fill: none; }
.chart .dot { stroke-width: 1.5; }
.chart circle.dot.unfiltered { stroke-width: 1.5; }
"""
NAMES = {"unfiltered": "without filter", "filtered": "with filter"}


def rate_chart(
    name: str,
    label: str,
    axis: Axis,
    strengths: Sequence[float],
    rates: dict[str, Sequence[Interval]],
    limit: float | None = None,
    marks: dict[str, Sequence[float | None]] | None = None,
) -> str:
    """Rates by arm at rising strengths; `marks` are strengths to ring (where an arm breaks), `limit` a line across."""
    frame = Frame(left=58, top=58, width=336, height=180, first=min(strengths), last=max(strengths))
    x = np.asarray(strengths, dtype=float)
    body = [text(frame.left, 18, name, "name"), *_legend(frame)]
    body += [level(frame, share, f"{share:.0%}") for share in FIFTHS]
    body += _ticks(axis, strengths, frame)
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
        told.append(f"{NAMES[arm]} ({'dashed' if arm == 'unfiltered' else 'solid'}): {ends}")
    return drawing(428, 286, f"{axis.title}: {name}", f"{'; '.join(told)}.", body)


def _legend(frame: Frame) -> list[str]:
    drawn = []
    for place, (arm, words) in enumerate(NAMES.items()):
        left = frame.left + place * 136
        drawn.append(f'<path class="{arm}" d="M{coordinate(left)} 37h24"/>')
        drawn.append(text(left + 30, 41, words, "told"))
    return drawn


def _ticks(axis: Axis, strengths: Sequence[float], frame: Frame) -> list[str]:
    """The measured strengths that have room: 0 and the ends first, for they are asked for most."""
    kept: list[tuple[float, float]] = []
    drawn = []
    for strength in sorted(strengths, key=lambda value: (value != 0, -abs(value))):
        words, at = axis.told(strength).removeprefix(f"{axis.name} "), float(frame.x(strength))
        half = max(NEAR / 2, 3.4 * len(words))
        if all(abs(at - other) >= half + width for other, width in kept):
            kept.append((at, half))
            drawn.append(f'<path class="axis" d="M{coordinate(at)} {frame.bottom}v4"/>')
            drawn.append(text(at, frame.bottom + 17, words, anchor="middle"))
    return drawn


def _dot(arm: str, axis: Axis, frame: Frame, strength: float, rate: Interval, marked: bool) -> str:
    """A measurement; a larger one is where the arm breaks."""
    words = f"{NAMES[arm]} at {axis.told(strength)}: {rate.value:.0%} ({rate.low:.0%} to {rate.high:.0%})"
    words += ", breaks" if marked else ""
    return (
        f'<circle class="dot {arm}" cx="{coordinate(frame.x(strength))}" cy="{coordinate(frame.y(rate.value))}" '
        f'r="{6 if marked else 2.5}"><title>{escaped(words)}</title></circle>'
    )
