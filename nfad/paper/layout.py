"""A table's entries as CSV and Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from nfad.paper.estimates import Entry
from nfad.paper.published import COLUMNS

FIELDS = ("sheet", "row", "column", "value", "low", "high", "paper", "strong")
HEADINGS = {
    "i_auroc": "I-AUROC", "i_ap": "I-AP", "i_f1": "I-F1", "p_auroc": "P-AUROC", "p_ap": "P-AP", "p_f1": "P-F1",
    "aupro": "AUPRO", "false_alarms": "good flagged", "detections": "bad found", "verdict_error": "verdict error",
    "f_def": "f def.", "f_norm": "f norm.", "f_disc": "f disc.", "chance": "chance",
    "rms_before": "normal RMS before", "rms_after": "after", "energy_removed": "energy removed",
    "contrast_before": "contrast before", "contrast_after": "after", "spearman": "Spearman ρ",
}  # fmt: skip
KEY = (
    "Ours ± half of its 95 % interval (bootstrap over images), then the paper's value in parentheses where it has one: "
    "with its own teacher and student, on AeBAD-S (MVTec AD without domains) where it lacks this data set. "
    "**Bold**: the paired interval of the difference from {baseline} excludes zero."
)


def as_csv(entries: Sequence[Entry]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    for entry in entries:
        numbers = [_rounded(value) for value in (entry.value, entry.low, entry.high)]
        writer.writerow([entry.sheet, entry.row, entry.column, *numbers, entry.paper, int(entry.strong)])
    return text.getvalue()


def as_markdown(entries: Sequence[Entry]) -> str:
    """A table a sheet, with the rows and columns in the order of the entries."""
    parts = []
    for sheet in dict.fromkeys(entry.sheet for entry in entries):
        mine = [entry for entry in entries if entry.sheet == sheet]
        columns = list(dict.fromkeys(entry.column for entry in mine))
        cells = {(entry.row, entry.column): as_text(entry) for entry in mine}
        lines = [
            f"### {sheet}",
            "",
            "| | " + " | ".join(HEADINGS.get(column, column) for column in columns) + " |",
            "| --- |" + " ---: |" * len(columns),
        ]
        for row in dict.fromkeys(entry.row for entry in mine):
            lines.append(f"| {row} | " + " | ".join(cells.get((row, column), "") for column in columns) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def as_text(entry: Entry) -> str:
    """e.g. `**90.1** ± 1.3 (91.0)`; a dash where the metric is not defined."""
    if math.isnan(entry.value):
        return "–"
    digits = 1 if COLUMNS.get(entry.column, "%").endswith("%") else 3
    value = f"{entry.value:.{digits}f}"
    text = f"**{value}**" if entry.strong else value
    if not math.isnan(entry.low):
        text += f" ± {(entry.high - entry.low) / 2:.{digits}f}"
    return text if entry.paper is None else f"{text} ({entry.paper:g})"


def _rounded(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.5g}"
