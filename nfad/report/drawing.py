"""What every chart is made of: a frame, words, lines and boxes as SVG text.

Colours come from charts.css, so that one drawing serves light and dark pages; line style, shape or direction always
says the same as the colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import overload

import numpy as np
from markupsafe import Markup


@dataclass(frozen=True)
class Frame:
    """Where a plot lies in its drawing, and the values at its sides; its height stands for 0 to 1."""

    left: float
    top: float
    width: float
    height: float
    first: float = 0.0
    last: float = 1.0

    @overload
    def x(self, value: float) -> float: ...
    @overload
    def x(self, value: np.ndarray) -> np.ndarray: ...
    def x(self, value: float | np.ndarray) -> float | np.ndarray:
        return self.left + self.width * (value - self.first) / (self.last - self.first)

    @overload
    def y(self, share: float) -> float: ...
    @overload
    def y(self, share: np.ndarray) -> np.ndarray: ...
    def y(self, share: float | np.ndarray) -> float | np.ndarray:
        return self.top + self.height * (1 - share)

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


def drawing(width: int, height: int, title: str, told: str, body: Sequence[str]) -> Markup:
    """The whole of it, with its name and what it shows for those who cannot see it."""
    # Without xmlns: HTML knows svg, and a page that fetches nothing should name no address.
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escaped(title)}">'
        f"<title>{escaped(title)}</title><desc>{escaped(told)}</desc>{''.join(body)}</svg>"
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    anchor = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{coordinate(x)}" y="{coordinate(y)}"{kind}{anchor}>{escaped(words)}</text>'


def standing(middle: float, words: str) -> str:
    """Words along the left side, read upwards."""
    place = f"translate(13 {coordinate(middle)}) rotate(-90)"
    return f'<text transform="{place}" text-anchor="middle">{escaped(words)}</text>'


def level(frame: Frame, share: float, label: str) -> str:
    """A line across the plot and what it stands for."""
    line = f'<path class="grid" d="M{frame.left} {coordinate(frame.y(share))}H{coordinate(frame.right)}"/>'
    return line + text(frame.left - 7, frame.y(share) + 4, label, anchor="end")


def box(kind: str, x: float, y: float, width: float, height: float, within: str = "") -> str:
    size = f'width="{coordinate(max(width, 0.5))}" height="{coordinate(height)}"'
    return f'<rect class="{kind}" x="{coordinate(x)}" y="{coordinate(y)}" {size}>{within}</rect>'


def path(kind: str, frame: Frame, x: np.ndarray, y: np.ndarray) -> str:
    steps = (f"{coordinate(a)} {coordinate(b)}" for a, b in zip(frame.x(x), frame.y(y), strict=True))
    return f'<path class="{kind}" d="M{"L".join(steps)}"/>'


def coordinate(value: float) -> str:
    """To a tenth of a unit, which is less than a screen shows."""
    return f"{round(float(value), 1):g}"


def escaped(words: str) -> str:
    """As XML bears it: a domain may be a folder's name, and that may hold anything."""
    return escape("".join(letter if letter.isprintable() else "\ufffd" for letter in words))
