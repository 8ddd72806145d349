"""A table's figure: which of its entries are drawn, and how. The qualitative figure is in triplets.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nfad.errors import NfadError
from nfad.evaluation.tally import METRICS
from nfad.paper.canvas import Block, Panel, check_installed, check_path, compose, save, styled
from nfad.paper.estimates import Entry
from nfad.paper.layout import HEADINGS
from nfad.paper.panels import SUMMARIES, Curve, bars, base_of, curves, dots, dumbbells, shares
from nfad.paper.published import COLUMNS
from nfad.paper.triplets import choose, triplets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_installed", "choose", "draw", "figure", "triplets"]

Paint = Callable[..., None]


@dataclass(frozen=True)
class Sheet:
    """The finite entries of one data set and method."""

    name: str
    entries: Sequence[Entry]

    def column(self, column: str, arm: str = "") -> dict[str, Entry]:
        """By row; of an arm's rows, "row/arm", by what stands before it."""
        end = f"/{arm}" if arm else ""
        here = [entry for entry in self.entries if entry.column == column and entry.row.endswith(end)]
        return {entry.row.removesuffix(end): entry for entry in here}

    def block(self, panels: Sequence[Panel]) -> Block:
        return Block(self.name, self.name.split(" · ")[0], panels)


def draw(table: str, entries: Sequence[Entry], path: Path) -> Path:
    """Write the table's figure as PNG or PDF, by the suffix."""
    path = Path(path)
    check_path(path)
    return save(figure(table, entries), path)


def figure(table: str, entries: Sequence[Entry]) -> Figure:
    """The figure itself. A value that is not finite is left out, and so is a column without any other."""
    if table not in FIGURES:
        raise NfadError(f"there is no figure for {table!r}; there is one for {', '.join(FIGURES)}")
    columns, compose_table = FIGURES[table]
    drawn = [entry for entry in entries if math.isfinite(entry.value) and entry.column in columns]
    if not drawn:
        raise NfadError(f"there is nothing to draw of {table}: it has no finite value in {', '.join(columns)}")
    sheets = [
        Sheet(name, [entry for entry in drawn if entry.sheet == name])
        for name in dict.fromkeys(entry.sheet for entry in drawn)
    ]
    present = [column for column in columns if any(entry.column == column for entry in drawn)]
    with styled():
        return compose_table(sheets, present)


def _paired(sheets: Sequence[Sheet], columns: Sequence[str], ours: str) -> Figure:
    """Control and NFAD as bars, a panel a metric."""
    bases = {
        column: base_of([sheet.column(column, arm) for sheet in sheets for arm in ("Control", ours)])
        for column in columns
    }
    blocks = []
    for sheet in sheets:
        pairs = {column: [sheet.column(column, arm) for arm in ("Control", ours)] for column in columns}
        rows = _rows(column for pair in pairs.values() for column in pair)
        blocks.append(sheet.block([
            _panel(_label(column), 2.2, 0.42 * len(rows), pairs[column],
                   partial(bars, rows=rows, pair=pairs[column], base=bases[column]))
            for column in columns
        ]))  # fmt: skip
    return compose(blocks)


def _by_row(sheets: Sequence[Sheet], columns: Sequence[str]) -> Figure:
    """A dot a row, a panel a metric."""
    blocks = []
    for sheet in sheets:
        found = {column: sheet.column(column) for column in columns}
        rows = [row for row in _rows(found.values()) if row != "std"]
        blocks.append(sheet.block([
            _panel(_label(column), 1.75, 0.34 * len(rows), [found[column]],
                   partial(dots, rows=rows, column=found[column]))
            for column in columns
        ]))  # fmt: skip
    return compose(blocks)


def _by_category(sheets: Sequence[Sheet], columns: Sequence[str]) -> Figure:
    """Control to NFAD as dumbbells, the hardest category for the control first."""
    blocks = []
    for sheet in sheets:
        panels = []
        for column in columns:
            pair = [sheet.column(column, arm) for arm in ("Control", "NFAD")]
            known = _rows(pair)
            hard = {row: pair[0][row].value if row in pair[0] else math.inf for row in known}
            rows = sorted(known, key=lambda row: (row in SUMMARIES, hard[row], row))
            panels.append(_panel(_label(column), 3.2, 0.25 * len(rows), pair, partial(dumbbells, rows=rows, pair=pair)))
        blocks.append(sheet.block(panels))
    return compose(blocks)


def _by_severity(sheets: Sequence[Sheet], columns: Sequence[str]) -> Figure:
    """What the operator gains over severity; beside it, how often it and the control raise a false alarm."""
    blocks = []
    for sheet in sheets:
        panels = []
        for column in columns:
            control, ours = (sheet.column(column, arm) for arm in ("Control", "Ours"))
            if column == "false_alarms":
                paint = partial(curves, solid=_curves(ours), dashed=_curves(control))
                panels.append(_panel("false alarms (%)", 2.9, 2.1, [control, ours], paint))
            else:
                gains = {row: _gain(control[row], ours[row]) for row in ours if row in control}
                label = f"gain in {HEADINGS[column]} (points)"
                panels.append(_panel(label, 2.9, 2.1, [gains], partial(curves, solid=_curves(gains), zero=True)))
        blocks.append(sheet.block(panels))
    return compose(blocks, "y")


def _overlap(sheets: Sequence[Sheet], columns: Sequence[str]) -> Figure:
    """Shares of energy against chance: a panel for each reference and dimension, a row for each place in it.

    Without places there is one panel, and its rows are the references and dimensions.
    """
    variants = list(dict.fromkeys("/".join(entry.row.split("/")[:2]) for sheet in sheets for entry in sheet.entries))
    if not any(entry.row.count("/") > 1 for sheet in sheets for entry in sheet.entries):
        variants = [""]
    blocks = []
    for sheet in sheets:
        found = {
            variant: {column: _places(sheet.column(column), variant) for column in columns} for variant in variants
        }
        rows = _rows(column for inner in found.values() for column in inner.values())
        blocks.append(sheet.block([
            _panel("share of energy in V", 1.75 if variant else 3.2, 0.46 * len(rows), inner.values(),
                   partial(shares, rows=rows, columns=inner), variant.replace("/dim=", ", dimension "))
            for variant, inner in found.items()
        ]))  # fmt: skip
    return compose(blocks)


def _mechanism(sheets: Sequence[Sheet], columns: Sequence[str]) -> Figure:
    """What projection takes from normal patches, and what that does to the contrast of defects."""
    removed = [column for column in columns if column == "energy_removed"]
    base = base_of([sheet.column(column) for sheet in sheets for column in removed])
    blocks = []
    for sheet in sheets:
        taken = sheet.column("energy_removed")
        pair = [sheet.column(f"contrast_{when}") for when in ("before", "after")]
        rows = _rows([taken, *pair])
        panels = []
        if removed:
            paint = partial(bars, rows=rows, pair=[{}, taken], base=base, names=("", "removed"))
            panels.append(_panel("normal energy removed (%)", 2.2, 0.36 * len(rows), [taken], paint))
        if len(columns) > len(removed):
            names = ("before projection", "after projection")
            paint = partial(dumbbells, rows=rows, pair=pair, names=names, digits=2)
            panels.append(_panel("contrast, defect : normal", 2.2, 0.36 * len(rows), pair, paint))
        blocks.append(sheet.block(panels))
    return compose(blocks)


def _by_rank(sheets: Sequence[Sheet], columns: Sequence[str]) -> Figure:
    """What each host gains over the columns removed; beside it, how often it raises a false alarm."""
    levels_are = ("columns removed a family (d)", "bare")
    blocks = []
    for sheet in sheets:
        panels = []
        for column in columns:
            found = sheet.column(column)
            if column == "false_alarms":
                paint = partial(curves, solid=_curves(found, "/d="), levels_are=levels_are)
                panels.append(_panel("false alarms (%)", 2.9, 2.1, [found], paint))
                continue
            gains = {
                row: _gain(bare, entry)
                for row, entry in found.items()
                if (bare := found.get(f"{row.split('/')[0]}/d=0"))
            }
            paint = partial(curves, solid=_curves(gains, "/d="), zero=True, levels_are=levels_are)
            panels.append(_panel(f"gain in {HEADINGS[column]} (points)", 2.9, 2.1, [gains], paint))
        blocks.append(sheet.block(panels))
    return compose(blocks, "y")


FIGURES: dict[str, tuple[Sequence[str], Callable[[Sequence[Sheet], Sequence[str]], Figure]]] = {
    "aebad": (("i_auroc", "aupro"), partial(_paired, ours="NFAD")),
    "standard": (("i_auroc",), _by_category),
    "detection-ablation": (METRICS, _by_row),
    "localization-ablation": (METRICS, _by_row),
    "visa-c": (("i_auroc", "false_alarms"), _by_severity),
    "foundations": (("i_auroc", "p_auroc", "aupro"), partial(_paired, ours="Ours")),
    "seeds": (METRICS, _by_row),
    "basis": (METRICS, _by_row),
    "incidence": (METRICS, _by_row),
    "rank": (METRICS, _by_row),
    "entanglement": (("f_def", "f_norm", "f_disc", "chance"), _overlap),
    "plugins": (("i_auroc", "aupro", "false_alarms"), _by_rank),
    "mechanism": (("energy_removed", "contrast_before", "contrast_after"), _mechanism),
}


def _panel(
    label: str, width: float, height: float, columns: Iterable[dict[str, Entry]], paint: Paint, title: str = ""
) -> Panel:
    return Panel(label, width, height, paint if any(columns) else None, title)


def _label(column: str) -> str:
    unit = " (%)" if COLUMNS.get(column, "%").endswith("%") else ""
    return HEADINGS.get(column, column) + unit


def _rows(columns: Iterable[dict[str, Entry]]) -> list[str]:
    """Every row of any column, in the table's order, those about the others last."""
    rows = dict.fromkeys(row for column in columns for row in column)
    return sorted(rows, key=lambda row: row in SUMMARIES)


def _places(column: dict[str, Entry], variant: str) -> dict[str, Entry]:
    if not variant:
        return column
    inside = {row: entry for row, entry in column.items() if row == variant or row.startswith(f"{variant}/")}
    return {row[len(variant) + 1 :] or "all": entry for row, entry in inside.items()}


def _gain(base: Entry, ours: Entry) -> Entry:
    paper = None if base.paper is None or ours.paper is None else ours.paper - base.paper
    return Entry(ours.sheet, ours.row, ours.column, ours.value - base.value, paper=paper, strong=ours.strong)


def _curves(column: dict[str, Entry], step: str = "/s=") -> list[Curve]:
    """Rows "corruption/s=severity" as a curve each, every one of them from the row "clean" on."""
    levels: dict[str, dict[int, Entry]] = {}
    for row, entry in column.items():
        name, _, level = row.partition(step)
        if level:
            levels.setdefault(name, {0: column["clean"]} if "clean" in column else {})[int(level)] = entry
    return [Curve(name.replace("_", " "), dict(sorted(found.items()))) for name, found in levels.items()]
