"""The verdict benchmark's figure: a bar a method, its two errors end to end: its length is the verdict error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nfad.paper.canvas import check_installed, check_path, save, styled
from nfad.paper.panels import COLOURS
from nfad.paper.verdict import Result, VerdictCell
from nfad.paper.verdict_rows import row_of

PASSED, FLAGGED, UNJUDGED = COLOURS[1], COLOURS[4], "#9a9a9a"


def draw(cells: Sequence[VerdictCell], results: Sequence[Result], path: Path, rate: float = 0.05) -> Path:
    """Write it as PNG or PDF, by the suffix."""
    check_path(path)
    check_installed()
    from matplotlib.figure import Figure

    rows = [row_of(cell, result, rate) for cell, result in zip(cells, results, strict=True)]
    parts = list(dict.fromkeys(row.part for row in rows))
    panels = [*parts, "all parts"] if len(parts) > 1 else parts
    methods = list(dict.fromkeys(row.method for row in rows))[::-1]
    across = min(len(panels), 4)
    down = -(-len(panels) // across)
    with styled():
        figure = Figure(figsize=(2.6 * across + 1.2, (0.32 * len(methods) + 0.8) * down + 0.6), layout="constrained")
        axes = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
        for ax, part in zip(axes, panels, strict=False):
            for place, method in enumerate(methods):
                mine = [row for row in rows if row.method == method and part in (row.part, "all parts")]
                if not mine:
                    continue
                flagged = float(np.mean([row.flagged for row in mine])) / 2
                error = float(np.mean([row.error for row in mine]))
                unjudged = float(np.mean([row.good_not_judged for row in mine])) / 2
                ax.barh(place, error - flagged, color=PASSED, label="bad parts passed / 2")
                ax.barh(place, flagged, left=error - flagged, color=FLAGGED, label="good parts flagged / 2")
                ax.barh(place, unjudged, left=error, color="white", edgecolor=UNJUDGED, hatch="////",
                        label="good parts not judged / 2")  # fmt: skip
            ax.set_title(part, fontsize=9, loc="left")
            ax.set_yticks(range(len(methods)), methods)
            ax.grid(axis="x")
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        for ax in axes[: len(panels)]:
            ax.set_xlabel("verdict error")
        handles, labels = axes[0].get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))
        figure.legend(once.values(), once.keys(), loc="outside lower center", ncols=3, frameon=False)
        return save(figure, path)
