"""What stands in one panel: bars, dots, dumbbells, shares or curves of a table's entries.

Rows run downwards, because their names are long, and values to the right; only curves stand upright. What carries a
measured value has the gid "value", what carries the paper's has "paper".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nfad.paper.estimates import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Column = Mapping[str, Entry]  # by row; a row may be missing
Placed = Sequence[tuple[float, Entry]]  # with its height in the panel

INK, PALE = "#222222", "#c4c4c4"
CONTROL, OURS = "#8f8f8f", "#0072b2"
# Okabe and Ito's colours, which colour-blind eyes tell apart; shapes, hatches and dashes say the same once more.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKS = ("o", "s", "^", "v", "P", "X")
ARMS = ("control", "NFAD")
SUMMARIES = ("mean", "pooled", "all")  # rows about the other rows
SHARES = {
    "f_def": ("defect residuals", COLOURS[1], "o"),
    "f_norm": ("normal residuals", CONTROL, "s"),
    "f_disc": ("normal → defect direction", COLOURS[0], "^"),
}
INTERVAL, PAPER, STRONG = "95 % interval", "paper", "differs (paired 95 %)"
LEGEND_ENDS = (INTERVAL, STRONG, PAPER)  # what stands last in a legend: after what they are about
HALF = 50.0  # an AUROC's chance: where bars start if they can


@dataclass(frozen=True)
class Curve:
    """Entries by level: one corruption's by severity, one host's by rank; 0 is where nothing is done."""

    name: str
    entries: Mapping[int, Entry]


def base_of(columns: Sequence[Column]) -> float:
    """Where bars start: 50 if nothing lies below it, else 0; no third choice, so that figures can be compared."""
    seen = [x for column in columns for entry in column.values() for x in (entry.value, entry.low, entry.paper)]
    return 0.0 if any(x is not None and x < HALF for x in seen) else HALF


def bars(ax: Axes, rows: Sequence[str], pair: Sequence[Column], base: float, names: Sequence[str] = ARMS) -> None:
    """Two bars a row from `base` on, with whiskers, and their difference; one bar, if the first column is empty."""
    looks = zip(pair, names, (CONTROL, OURS), ("////", ""), strict=True)
    arms = [(column, *look) for column, *look in looks if column]
    thick = 0.74 / len(arms) if len(arms) > 1 else 0.5
    for place, (column, name, colour, hatch) in enumerate(arms):
        placed = _placed(rows, column, thick * (place - (len(arms) - 1) / 2))
        drawn = ax.barh(
            [y for y, _ in placed], [entry.value - base for _, entry in placed], 0.92 * thick, base,
            label=name, color=colour, edgecolor="white", hatch=hatch, linewidth=0,
        )  # fmt: skip
        for bar in drawn:
            bar.set_gid("value")
        _whiskers(ax, placed, INK)
        _papers(ax, placed)
    _name_rows(ax, rows)
    ax.set_xlim(base, 2 * HALF if base else None)
    if base:
        ax.set_xticks(range(50, 101, 10))
    _differences(ax, rows, pair)


def dots(ax: Axes, rows: Sequence[str], column: Column) -> None:
    """A dot a row with its whisker, and the paper's below it; the row "std" is not one but a band about the mean."""
    for name, colour, mark, which in (
        ("control", CONTROL, "s", ("Control",)),
        ("NFAD", OURS, "o", [row for row in rows if row not in ("Control", *SUMMARIES)]),
        ("mean", INK, "P", SUMMARIES),
    ):
        placed = [each for each in _placed(rows, column, -0.12) if each[1].row in which]
        _whiskers(ax, placed, colour, 1.6)
        _points(ax, [(entry.value, y) for y, entry in placed], colour, mark, name)
        _papers(ax, [(y + 0.32, entry) for y, entry in placed])
        _stars(ax, [(entry.value, y) for y, entry in placed if entry.strong])
    if "mean" in column and "std" in column:
        middle, reach = column["mean"].value, column["std"].value
        ax.axvspan(middle - reach, middle + reach, color=OURS, alpha=0.15, lw=0, label="mean ± deviation", gid="value")
    _name_rows(ax, rows)
    ax.margins(x=0.12)


def dumbbells(
    ax: Axes, rows: Sequence[str], pair: Sequence[Column], names: Sequence[str] = ARMS, digits: int = 1
) -> None:
    """From the first value of a row to its second, each a little off the middle so that both whiskers are seen."""
    for row, name in enumerate(rows):
        if all(name in column for column in pair):
            ends = [column[name].value for column in pair]
            ax.plot(ends, (row - 0.14, row + 0.14), color=PALE, lw=2.4, zorder=1, solid_capstyle="round")
    looks = zip(pair, names, (CONTROL, OURS), ("s", "o"), (-0.14, 0.14), strict=True)
    for column, name, colour, mark, off in looks:
        placed = _placed(rows, column, off)
        _whiskers(ax, placed, colour)
        _points(ax, [(entry.value, y) for y, entry in placed], colour, mark, name)
        _papers(ax, placed, around=True)
    _name_rows(ax, rows)
    ax.margins(x=0.06)
    _differences(ax, rows, pair, digits)


def shares(ax: Axes, rows: Sequence[str], columns: Mapping[str, Column]) -> None:
    """Shares of energy inside V a row, against the share that chance would give it."""
    for row, entry in _placed(rows, columns.get("chance", {})):  # pieces that join to a line where chance is one
        x = [entry.value] * 2
        ax.plot(x, (row - 0.5, row + 0.5), color=INK, lw=1.2, ls="--", label="chance", gid="chance")
    shown = [(columns[column], *look) for column, look in SHARES.items() if columns.get(column)]
    for place, (column, name, colour, mark) in enumerate(shown):
        placed = _placed(rows, column, 0.27 * (place - (len(shown) - 1) / 2))
        _points(ax, [(entry.value, y) for y, entry in placed], colour, mark, name)
        _papers(ax, placed, around=True)
    _name_rows(ax, rows)
    ax.margins(x=0.08)
    ax.set_xlim(left=0)


def curves(
    ax: Axes,
    solid: Sequence[Curve],
    dashed: Sequence[Curve] = (),
    zero: bool = False,
    levels_are: tuple[str, str] = ("severity", "clean"),
) -> None:
    """A line a curve over its levels; `dashed` are the control's, thin ones the paper's.

    `levels_are`: what the levels are called, and what level 0 is.
    """
    if zero:
        ax.axhline(0, color=INK, lw=0.8, zorder=1)
    colours = {name: place for place, name in enumerate(dict.fromkeys(curve.name for curve in (*solid, *dashed)))}
    for group, dashes, filled in ((solid, "-", True), (dashed, (0, (2, 1.5)), False)):
        for curve in group:
            colour, mark = (each[colours[curve.name] % len(each)] for each in (COLOURS, MARKS))
            points = [(level, entry.value) for level, entry in curve.entries.items()]
            ax.plot(*zip(*points, strict=True), color=colour, lw=1.6, ls=dashes, zorder=2)
            _points(ax, [point for point in points if point[0]], colour, mark, curve.name, filled)
            papers = {level: entry.paper for level, entry in curve.entries.items() if entry.paper is not None}
            ax.plot(list(papers), list(papers.values()), color=colour, lw=0.9, ls=(0, (6, 3)), gid="paper")
        every = {(level, entry.value): entry for curve in group for level, entry in curve.entries.items()}
        _points(ax, [point for point in every if point[0] == 0], INK, "o", None, filled)  # all curves begin in one
        _stars(ax, [point for point, entry in every.items() if entry.strong])
    everything = [(level, entry) for curve in (*solid, *dashed) for level, entry in curve.entries.items()]
    if any(entry.paper is not None for _, entry in everything):
        ax.plot([], [], color=INK, lw=0.9, ls=(0, (6, 3)), label=PAPER)
    if dashed:
        ax.plot([], [], "o", color=INK, mfc="white", lw=1.6, ls=(0, (2, 1.5)), label=ARMS[0])
        ax.plot([], [], "o", color=INK, lw=1.6, ls="-", label=ARMS[1])
    levels = sorted({level for level, _ in everything})
    ax.set_xticks(levels, [str(level) if level else levels_are[1] for level in levels])
    ax.set_xlabel(levels_are[0])
    ax.margins(x=0.08, y=0.12 if zero else 0.05)
    ax.locator_params(axis="y", nbins=6, steps=(1, 2, 5, 10))
    ax.grid(axis="y")


def _placed(rows: Sequence[str], column: Column, off: float = 0.0) -> list[tuple[float, Entry]]:
    return [(row + off, column[name]) for row, name in enumerate(rows) if name in column]


def _name_rows(ax: Axes, rows: Sequence[str]) -> None:
    ax.set_yticks(range(len(rows)), rows)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    ax.locator_params(axis="x", nbins=4, steps=(1, 2, 5, 10))
    for row, name in enumerate(rows):
        if name in SUMMARIES and row:
            ax.axhline(row - 0.5, color=INK, lw=0.6)


def _points(
    ax: Axes, points: Sequence[tuple[float, float]], colour: str, mark: str, name: str | None, filled: bool = True
) -> None:
    if points:
        x, y = zip(*points, strict=True)
        edge, face = ("white", colour) if filled else (colour, "white")
        ax.plot(
            x, y, ls="none", marker=mark, ms=6, mec=edge, mfc=face, mew=0.6 if filled else 1.1,
            label=name if filled else None, gid="value", zorder=3,
        )  # fmt: skip


def _whiskers(ax: Axes, placed: Placed, colour: str, width: float = 1.1) -> None:
    told = [(y, entry.low, entry.high) for y, entry in placed if math.isfinite(entry.low + entry.high)]
    if told:
        ax.hlines(*zip(*told, strict=True), color=colour, lw=width, label=INTERVAL, zorder=2.5)


def _papers(ax: Axes, placed: Placed, around: bool = False) -> None:
    """The paper's values: small and white, or `around` what may lie beneath them and must still be seen."""
    told = [(entry.paper, y) for y, entry in placed if entry.paper is not None]
    if told:
        x, y = zip(*told, strict=True)
        face, size = ("none", 6.2) if around else ("white", 4)
        ax.plot(x, y, "D", mfc=face, mec=INK, mew=0.9, ms=size, label=PAPER, gid="paper", zorder=4)


def _stars(ax: Axes, points: Sequence[tuple[float, float]]) -> None:
    for point in points:
        ax.annotate("★", point, (0, 3), textcoords="offset points", ha="center", color=INK, fontsize=8, zorder=5)
    if points:
        ax.plot([], [], "*", color=INK, ms=6, label=STRONG)


def _differences(ax: Axes, rows: Sequence[str], pair: Sequence[Column], digits: int = 1) -> None:
    """A column of second less first at the right, starred where resampling does not explain it."""
    both = [(row, *(column[name] for column in pair)) for row, name in enumerate(rows) if all(name in c for c in pair)]
    across = ax.get_yaxis_transform()
    for row, first, second in both:
        told = signed(second.value - first.value, digits) + ("★" if second.strong else "")
        ax.text(1.03, row, told, transform=across, va="center", fontsize=8)
    if both:
        ax.text(1.03, -0.6, "Δ", transform=across, va="bottom", fontsize=8)
    if any(second.strong for _, _, second in both):
        ax.plot([], [], "*", color=INK, ms=6, label=STRONG)


def signed(value: float, digits: int) -> str:
    """With a sign unless it rounds to nothing."""
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{0:.{digits}f}"
