"""Flaws of many kinds, sizes and strengths drawn at random on normal images.

They need not look like any real defect: together they tell in which directions of feature space a token moves when
its content is damaged, as interventions tell in which it moves when only the light changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

View = Float[Tensor, "3 size size"]
Cover = Float[Tensor, "size size"]  # how much of each pixel is damaged, 0 to 1
Draw = np.random.Generator
SIZES = (0.015, 0.2)  # of the view's side: a flaw's, or a stroke's length over three
STRENGTHS = (0.08, 0.6)  # of the range of brightness
TINTED = 0.3  # of the flaws that have a colour, have one of their own
WITHIN = 0.12  # of the view's side that a flaw's middle keeps from its edges


def flawed(view: View, kind: str, draw: Draw) -> View:
    """The view with one flaw of that kind."""
    return FLAWS[kind](view, draw).clamp(0, 1)


def _log_even(draw: Draw, low: float, high: float) -> float:
    return float(np.exp(draw.uniform(np.log(low), np.log(high))))


def _size(view: View, draw: Draw) -> float:
    return _log_even(draw, *SIZES) * view.shape[-1]


def _from_middle(view: View, draw: Draw) -> tuple[Tensor, Tensor]:
    """Every pixel's way from the flaw's middle, down and right, in a frame turned at random."""
    side = view.shape[-1]
    top, left = draw.uniform(WITHIN * side, (1 - WITHIN) * side, 2)
    angle = draw.uniform(0, 2 * math.pi)
    down, right = torch.arange(side)[:, None] - top, torch.arange(side)[None] - left
    return (
        math.cos(angle) * down - math.sin(angle) * right,
        math.sin(angle) * down + math.cos(angle) * right,
    )


def _noise(side: int, scale: float, draw: Draw) -> Float[Tensor, "size size"]:
    """Smooth noise about 0, its spread 1, with features of so many pixels."""
    cells = max(2, min(side, round(side / scale)))
    grid = torch.from_numpy(draw.standard_normal((1, 1, cells, cells)).astype(np.float32))
    return F.interpolate(grid, (side, side), mode="bicubic", align_corners=True)[0, 0]


def _blob(view: View, draw: Draw, size: float | None = None) -> Cover:
    """An uneven spot with an edge that is sharp or soft."""
    size = size or _size(view, draw)
    down, right = _from_middle(view, draw)
    stretch = _log_even(draw, 1, 2.5)
    far = (down.square() * stretch + right.square() / stretch).sqrt() / (size / 2)
    edge = _log_even(draw, 0.1, 1)
    return ((1 - far + 0.35 * _noise(view.shape[-1], size / 2, draw)) / edge).clamp(0, 1).float()


def _stroke(view: View, draw: Draw) -> Cover:
    """A bent line, thin and longer than it is wide."""
    down, right = _from_middle(view, draw)
    length, width = 3 * _size(view, draw), _log_even(draw, 0.004, 0.016) * view.shape[-1]
    bend = draw.uniform(-1, 1) * right.square() / length
    wavy = draw.choice([0.0, 1.5]) * width * _noise(view.shape[-1], max(length / 6, 8), draw)
    off = (down + bend + wavy).abs()
    return ((width / 2 + 0.5 - off).clamp(0, 1) * (length / 2 + 0.5 - right.abs()).clamp(0, 1)).float()


def _shade(draw: Draw) -> Float[Tensor, "3 1 1"]:
    """Brighter or darker, and sometimes in another colour."""
    shade = np.full(3, _log_even(draw, *STRENGTHS) * draw.choice([-1.0, 1.0]))
    if draw.random() < TINTED:
        shade = shade * draw.uniform(-0.5, 1, 3)
    return torch.from_numpy(shade.astype(np.float32))[:, None, None]


def stain(view: View, draw: Draw) -> View:
    return view + _blob(view, draw) * _shade(draw)


def scratch(view: View, draw: Draw) -> View:
    return view + _stroke(view, draw) * _shade(draw)


def dent(view: View, draw: Draw) -> View:
    """A bump in side light: bright on one side, dark on the other."""
    down, right = _from_middle(view, draw)
    size = _size(view, draw) / 2
    slope = down / size * torch.exp(0.5 - 0.5 * (down.square() + right.square()) / size**2)
    return view + slope.float() * _shade(draw).abs()


def hole(view: View, draw: Draw) -> View:
    """Dark or bright all over, whatever was there."""
    cover = _blob(view, draw)
    return view + cover * (float(draw.choice([0.0, draw.uniform(0, 1)])) - view)


def worn(view: View, draw: Draw) -> View:
    """Texture and print rubbed off: the surroundings' mean."""
    size = _size(view, draw)
    radius = max(1, round(size / 2))
    padded, width = F.pad(view[None], (radius,) * 4, mode="replicate"), 2 * radius + 1
    around = F.avg_pool2d(F.avg_pool2d(padded, (1, width), stride=1), (width, 1), stride=1)
    return torch.lerp(view, around[0], _blob(view, draw, size))


def rough(view: View, draw: Draw) -> View:
    """Texture added."""
    grain = _noise(view.shape[-1], _log_even(draw, 1, 6), draw)
    return view + _blob(view, draw) * grain * _shade(draw)


def foreign(view: View, draw: Draw) -> View:
    """A piece from elsewhere in the view, mirrored or turned."""
    side = view.shape[-1]
    shifts = draw.integers(side // 8, side - side // 8, 2).tolist()
    other = torch.rot90(view.roll(shifts, dims=(1, 2)), int(draw.integers(0, 4)), dims=(1, 2))
    return torch.lerp(view, other, _blob(view, draw))


def bent(view: View, draw: Draw) -> View:
    """Pushed aside."""
    side = view.shape[-1]
    down, right = _from_middle(view, draw)
    size = 1.2 * _size(view, draw)
    push = torch.exp(-0.5 * (down.square() + right.square()) / (size / 2) ** 2) * draw.uniform(0.2, 0.5) * size
    angle = draw.uniform(0, 2 * math.pi)
    at = torch.arange(side, dtype=torch.float32)
    x = at[None] + push * math.cos(angle)
    y = at[:, None] + push * math.sin(angle)
    grid = torch.stack([x, y], dim=-1).float() / (side - 1) * 2 - 1
    return F.grid_sample(view[None], grid[None], mode="bilinear", padding_mode="border", align_corners=True)[0]


FLAWS: dict[str, Callable[[View, Draw], View]] = {
    "stain": stain,
    "scratch": scratch,
    "dent": dent,
    "hole": hole,
    "worn": worn,
    "rough": rough,
    "foreign": foreign,
    "bent": bent,
}
