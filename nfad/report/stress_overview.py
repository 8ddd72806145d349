"""The report's first screen: what may change before good parts are rejected, with the filter and without."""

from __future__ import annotations

from html import escape

from nfad.report.page import figures
from nfad.stress.findings import ARMS, Curve, Findings, Side, range_told

LOOK = """
.question { font-size: 18px; margin: 14px 0 0; max-width: 72ch; text-wrap: pretty; }
.key i, .lanes i { display: inline-block; height: 8px; border-radius: 2px; }
.key { gap: 4px 24px; margin: 10px 0 6px; }
.key i { width: 26px; margin-right: 8px; }
.ranges .unfiltered, .key .unfiltered { background: var(--unfiltered); }
.ranges .filtered, .key .filtered { background: var(--filtered); }
.ranges { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 4px 20px;
  margin-bottom: 28px; }
.ranges li { display: grid; grid-template-columns: 150px minmax(160px, 1fr) 190px 190px 130px; gap: 4px 24px;
  align-items: center; padding: 9px 0; }
.ranges li + li { border-top: 1px solid var(--line); }
.ranges .heads { font-size: 13px; color: var(--soft); align-items: end; }
.heads .ends { display: flex; justify-content: space-between; }
.lanes { position: relative; height: 26px; background: var(--well); border-radius: 3px; overflow: hidden; }
.lanes.one { margin-left: 50%; }
.lanes i { position: absolute; min-width: 3px; border-radius: 0; }
.lanes .filtered { top: 3px; height: 12px; }
.lanes .unfiltered { bottom: 3px; height: 6px; }
.lanes u { position: absolute; top: 0; bottom: 0; width: 2px; margin-left: -1px; background: var(--ink); }
.ranges small { display: block; }
.ranges .bad { color: var(--bad); }
.ranges .name { position: absolute; clip-path: inset(50%); white-space: nowrap; color: var(--soft); font-size: 13px; }
@media (max-width: 1080px) {
  .ranges .heads { display: none; }
  .ranges .heads + li { border-top: 0; }
  .ranges li { grid-template-columns: repeat(3, minmax(0, 1fr)); align-items: start; }
  .ranges .lanes { grid-column: 2 / -1; }
  .ranges .name { position: static; clip-path: none; display: block; }
}
@media (max-width: 640px) {
  .ranges { padding: 4px 14px; }
  .ranges li { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .ranges .lanes, .ranges .title, .ranges .found { grid-column: 1 / -1; }
  .ranges .found { font-size: 13px; }
  .ranges .found .name { display: inline; }
}
"""


def overview(findings: Findings) -> str:
    """Figures, then a bar for every condition: how far it may go, the first to break at the top."""
    arms = ("filtered", "unfiltered")
    curves = sorted(findings.curves, key=lambda curve: [_nearest(findings, curve, arm) for arm in arms])
    rows = "".join(_row(findings, curve) for curve in curves)
    return (
        '<p class="question">How much may the light, the camera or the place of a part change before good parts are '
        f"rejected: more than {findings.limit:.0%} of them, beyond doubt?</p>\n"
        f"{_figures(findings)}"
        '<h2 id="ranges">What may change</h2>\n'
        '<p class="key"><span><i class="filtered"></i>with the filter</span><span><i class="unfiltered"></i>'
        "without the filter</span><span>line: the parts as they are; pale: all that was tried</span></p>\n"
        '<ul class="ranges">\n<li class="heads" aria-hidden="true"><span>Condition</span>'
        '<span class="ends"><span>less</span><span>more</span></span><span>With the filter</span>'
        "<span>Without the filter</span><span>Defects found there, with the filter</span></li>\n"
        f"{rows}</ul>\n"
    )


def _figures(findings: Findings) -> str:
    whole = {
        arm: sum(all(side.breaks is None for side in findings.both(curve.axis, arm)) for curve in findings.curves)
        for arm in ARMS
    }
    normal, nearest = findings.normal, findings.sides()[0]
    bare = {name: f"{getattr(normal, name)['unfiltered'].value:.0%} without the filter" for name in ("alarms", "found")}
    first = ("none", "of the conditions tried breaks it", "")
    if nearest.breaks == 0:
        first = ("as they are", "too many good parts are rejected already", "no change is needed to break it")
    elif nearest.breaks is not None:
        words = f"is where {nearest.axis.title.lower()} breaks it, before all else"
        first = (nearest.told(), words, nearest.axis.direction(nearest.side))
    return figures(
        [
            (
                f"{whole['filtered']} of {len(findings.curves)}", "conditions hold to the end",
                f"{whole['unfiltered']} without the filter",
            ),
            first,
            (f"{normal.alarms['filtered'].value:.0%}", "good parts rejected as they are", bare["alarms"]),
            (f"{normal.found['filtered'].value:.0%}", "synthetic defects found", bare["found"]),
        ]
    )  # fmt: skip


def _nearest(findings: Findings, curve: Curve, arm: str) -> float:
    return min(side.reach for side in findings.both(curve.axis, arm))


def _row(findings: Findings, curve: Curve) -> str:
    axis = curve.axis
    sides = {arm: findings.both(axis, arm) for arm in ("filtered", "unfiltered")}
    bars = "".join(_bar(arm, found) for arm, found in sides.items())
    told = "".join(
        f'<span><span class="name">{ARMS[arm]} </span>{_told(range_told(findings, curve, arm), found)}</span>'
        for arm, found in sides.items()
    )
    middle = 50 if axis.less else 0
    seen = min(sides["filtered"], key=lambda side: side.found).seen()
    return (
        f'<li><a class="title" href="#{axis.name}">{escape(axis.title)}</a>'
        f'<span class="lanes{"" if axis.less else " one"}" aria-hidden="true">{bars}<u style="left: {middle}%"></u>'
        f'</span>{told}<span class="found"><span class="name">defects found there </span>{seen}</span></li>\n'
    )


def _bar(arm: str, sides: list[Side]) -> str:
    """As far as it holds, on a lane as long as what was tried."""
    shares = {side.side: abs(side.holds) / abs(side.axis.of_side(side.side)[-1]) for side in sides}
    left, right = (50 - 50 * shares[-1], 50 - 50 * shares[1]) if -1 in shares else (0.0, 100 - 100 * shares[1])
    return f'<i class="{arm}" style="left: {left:.4g}%; right: {right:.4g}%"></i>'


def _told(words: str, sides: list[Side]) -> str:
    if all(side.breaks is None for side in sides):
        return f"{escape(words)}<small>all that was tried</small>"
    return escape(words) if any(side.holds for side in sides) else f'<span class="bad">{escape(words)}</span>'
