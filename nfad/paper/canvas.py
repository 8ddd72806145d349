"""A figure's paper: panels laid out and styled alike, written whole. matplotlib is asked for here only, and late."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nfad.errors import NfadError
from nfad.paper.panels import LEGEND_ENDS
from nfad.system.files import replacing

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

DEEP = 4  # blocks above one another, then a second column
ACROSS = 4  # panels in a line of one block
DPI = 200
CHARACTER, HANDLE, LINE = 0.058, 0.47, 0.2  # inches that a legend takes: 8 pt on average, sign and space, height
# Without what differs from day to day and from release to release.
METADATA = {".png": {"Software": None}, ".pdf": {"CreationDate": None, "Creator": None, "Producer": None}}
STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it looks the same everywhere
    "font.size": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e2e2e2",
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.7,
    "text.parse_math": False,  # a category may be called a$b$
    "pdf.fonttype": 42,  # text stays text
    "figure.constrained_layout.w_pad": 0.06,
    "figure.constrained_layout.h_pad": 0.04,
}


@dataclass(frozen=True)
class Panel:
    """One pair of axes: its value axis' label, its inner size in inches, and what paints it, if there is anything."""

    label: str
    width: float
    height: float
    paint: Callable[[Axes], None] | None
    title: str = ""

    @property
    def most(self) -> float:
        """No tick stands above it: room for a mark at 100 % is not a value."""
        return 100.0 if self.label.endswith("(%)") else math.inf


@dataclass(frozen=True)
class Block:
    """A sheet's panels; sheets of one data set share their value axes so that methods can be compared by eye."""

    title: str
    dataset: str
    panels: Sequence[Panel]


def check_installed() -> None:
    """Before hours of measuring, rather than after them."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise NfadError("figures need matplotlib, which is not installed; pip install 'nfad[figures]'") from None


def check_path(path: Path) -> None:
    if path.suffix.lower() not in METADATA:
        raise NfadError(f"a figure is written as {' or '.join(METADATA)}; got {path}")


@contextmanager
def styled() -> Iterator[None]:
    """matplotlib's own defaults with ours on top, whatever the user's settings are; and theirs again afterwards."""
    check_installed()
    from matplotlib import style

    with style.context(["default", STYLE]):
        yield


def blank(width: float, height: float, layout: Literal["constrained"] | None = None) -> Figure:
    """A page in inches that no window will ever show."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path, dpi: int = DPI) -> Path:
    """The same bytes for the same figure, as the suffix says."""
    check_path(path)
    suffix = path.suffix.lower()
    with styled(), replacing(path) as file:
        figure.savefig(file, format=suffix[1:], dpi=dpi, metadata=METADATA[suffix])
    return path


def compose(blocks: Sequence[Block], value_axis: str = "x") -> Figure:
    """Blocks above one another, each with its panels in lines, and one legend below them all.

    Where values run along x the rows stand along y: they are named once a line, at its left.
    """
    across = math.ceil(len(blocks) / DEEP)
    deep = math.ceil(len(blocks) / across)
    panels = blocks[0].panels
    lines = math.ceil(len(panels) / ACROSS)
    in_line = math.ceil(len(panels) / lines)
    heights = []
    for row in range(deep):
        tallest = max(panel.height for block in blocks[row * across : (row + 1) * across] for panel in block.panels)
        heights.append(lines * (tallest + 0.55) + 0.3)  # with the axes' labels and the block's title
    figure = blank(1, 1, "constrained")  # its size follows from what will be in it
    grid = figure.add_gridspec(deep + 1, across)
    shared: dict[tuple[str, int], list[Axes]] = {}
    for place, block in enumerate(blocks):
        part = figure.add_subfigure(grid[divmod(place, across)])
        part.suptitle(block.title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        cells = part.subplots(lines, in_line, squeeze=False, width_ratios=[panel.width for panel in panels[:in_line]])
        for ax in cells.flat[len(panels) :]:
            ax.set_axis_off()
        named = -1  # the last line whose rows have their names
        for index, (ax, panel) in enumerate(zip(cells.flat, block.panels, strict=False)):
            if panel.paint is None:
                _leave_blank(ax, panel.label)
                continue
            panel.paint(ax)
            ax.set_title(panel.title, fontsize=9)
            ax.set(**{f"{value_axis}label": panel.label})
            if value_axis == "x":
                ax.tick_params(axis="y", labelleft=named < index // in_line)
                named = index // in_line
            shared.setdefault((block.dataset, index), []).append(ax)
    for (_, index), group in shared.items():
        _share(group, value_axis, panels[index].most)
    longest = max(len(label.get_text()) for ax in figure.axes for label in ax.get_yticklabels())
    width = across * (sum(panel.width for panel in panels[:in_line]) + max(0.9, 0.2 + CHARACTER * longest))
    heights.append(_legend(figure, figure.add_subfigure(grid[deep, :]), width))
    grid.set_height_ratios(heights)
    figure.set_size_inches(width, sum(heights))
    return figure


def _leave_blank(ax: Axes, label: str) -> None:
    ax.set_axis_off()
    ax.text(0.5, 0.5, f"{label}:\nnot measured", transform=ax.transAxes, ha="center", va="center", color="#666666")


def _share(group: Sequence[Axes], axis: str, most: float) -> None:
    limits = [getattr(ax, f"get_{axis}lim")() for ax in group]
    common = (min(low for low, _ in limits), max(high for _, high in limits))
    for ax in group:
        ax.set(**{f"{axis}lim": common})
        ticks = getattr(ax, f"get_{axis}ticks")()
        ax.set(**{f"{axis}ticks": [tick for tick in ticks if common[0] <= tick <= min(common[1], most)]})


def _legend(figure: Figure, place: SubFigure, width: float) -> float:
    """All that any panel names, once, in as few lines as fit; returns the height in inches it takes."""
    named: dict[str, Artist] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    labels = sorted(named, key=lambda label: LEGEND_ENDS.index(label) if label in LEGEND_ENDS else -1)
    lines: list[list[str]] = [[]]
    for label in labels:
        if lines[-1] and sum(len(each) * CHARACTER + HANDLE for each in (*lines[-1], label)) > width:
            lines.append([])
        lines[-1].append(label)
    height = LINE * len(lines) + 0.1
    for row, line in enumerate(lines):
        legend = place.legend(
            [named[label] for label in line], line, loc="center", bbox_to_anchor=(0.5, 1 - LINE * (row + 0.5) / height),
            ncols=len(line), frameon=False, handlelength=2, columnspacing=1.4, borderpad=0,
        )  # fmt: skip
        legend.set_in_layout(False)
    return height
