"""The conditions a model is stressed with: each an edit of its view by a strength in words of the line, 0 as it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool
from torch import Generator, Tensor
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.vision.interventions import (
    Foreground,
    Images,
    affine,
    blur,
    contrast,
    gamma,
    noise,
    ramp,
    temperature,
)

Edit = Callable[[float, Images, Foreground, Generator], Images]

TOKEN = 16  # px: the largest patch that a teacher sees as one
DAYLIGHT = 5500  # K: the lamp a camera is taken to be balanced for
WAVELENGTHS = (600, 540, 450)  # nm: about where red, green and blue pixels of a camera are most sensitive
SECOND_RADIATION = 14.388  # nm per mired: Planck's second constant, 1.4388e7 nm K, over a million


@dataclass(frozen=True)
class Axis:
    """One condition: what is done to the view, how strongly, and the words for either side of normal."""

    name: str
    title: str
    unit: str  # of the strengths, as `--require` takes them
    strengths: tuple[float, ...]  # rising, without 0
    edit: Edit
    more: str  # what a positive strength does
    less: str = ""  # and a negative one; "" where there is none
    moves: bool = False  # whether it brings into sight what was never photographed
    words: Callable[[float], str] | None = None  # a strength as people say it, where that is not number and unit

    @property
    def sides(self) -> tuple[int, ...]:
        return (-1, 1) if self.less else (1,)

    def of_side(self, side: int) -> tuple[float, ...]:
        """The strengths of one side, weakest first."""
        return tuple(sorted((strength for strength in self.strengths if strength * side > 0), key=abs))

    def told(self, strength: float) -> str:
        """E.g. −1.5 stops, 3500 K, gamma 0.71."""
        if self.words:
            return self.words(strength)
        number = f"{strength:+g}" if self.less and strength else f"{strength:g}"
        gap = "" if self.unit in ("%", "°") else " "
        return f"{number}{gap}{self.unit}".replace("-", "−")

    def direction(self, side: int) -> str:
        return self.more if side > 0 else self.less

    def reaching(self, strength: float) -> Axis:
        """The same, measured at this strength too, on both sides."""
        furthest = max(map(abs, self.strengths))
        if not 0 < strength <= furthest:
            raise NfadError(
                f"{self.name} is measured up to {furthest:g} {self.unit}; got {strength:g}: "
                f"require a strength above 0 and no more than that"
            )
        wanted = {side * strength for side in self.sides}
        return replace(self, strengths=tuple(sorted(wanted | set(self.strengths))))


def exposed(stops: float, images: Images, part: Foreground, generator: Generator) -> Images:
    """Twice the light a stop, as a camera without tone curve records it."""
    return affine(2.0**stops, 0.0, images, part, generator)


def toned(doublings: float, images: Images, part: Foreground, generator: Generator) -> Images:
    return gamma(2.0**doublings, images, part, generator)


def contrasted(percent: float, images: Images, part: Foreground, generator: Generator) -> Images:
    return contrast(1 + percent / 100, images, part, generator)


def lit(mired: float, images: Images, part: Foreground, generator: Generator) -> Images:
    """Another lamp under the old white balance; green is left alone, so that exposure stays a matter of its own."""
    return temperature(lamp_gains(mired), images, part, generator)


def lamp_gains(mired: float) -> tuple[float, float, float]:
    """Of red, green and blue when a lamp's reciprocal temperature grows by so much: Wien's law, relative to green."""
    logs = [-SECOND_RADIATION * mired / wavelength for wavelength in WAVELENGTHS]
    red, green, blue = (math.exp(each - logs[1]) for each in logs)
    return red, green, blue


def kelvin(mired: float) -> float:
    """The lamp's temperature, so many mired (a million over kelvin) from daylight."""
    return 1e6 / (1e6 / DAYLIGHT + mired)


def shaded(percent: float, images: Images, part: Foreground, generator: Generator) -> Images:
    """Light that grows from left to right: so much less at the one edge, so much more at the other."""
    return ramp(3, 1 - percent / 100, 1 + percent / 100, images, part, generator)


def noisy(percent: float, images: Images, part: Foreground, generator: Generator) -> Images:
    return noise(percent / 100, images, part, generator)


def before_other(percent: float, images: Images, part: Foreground, _: Generator) -> Images:
    """The background mixed with so much white, or black; its border with the part is left alone and soft."""
    reach = images.shape[-1] // 32
    wide = _over_squares(F.max_pool2d, part.float(), reach)
    kept = _over_squares(partial(F.avg_pool2d, count_include_pad=False), wide, reach)
    other = torch.full_like(images, float(percent > 0))
    return torch.lerp(torch.lerp(images, other, abs(percent) / 100), images, kept)


def _over_squares(pool: Callable[..., Tensor], images: Tensor, reach: int) -> Tensor:
    """Pooled over squares about each pixel: first along rows, then along columns, in a fifth of the time."""
    rows = pool(images, (1, 2 * reach + 1), stride=1, padding=(0, reach))
    return pool(rows, (2 * reach + 1, 1), stride=1, padding=(reach, 0))


def moved(right: int, down: int, images: Images) -> Images:
    """By whole pixels, so that nothing is blurred; what comes into sight mirrors what is beside it."""
    height, width = images.shape[2:]
    reach = max(abs(right), abs(down))
    wide = F.pad(images, (reach,) * 4, mode="reflect")
    return wide[..., reach - down : reach - down + height, reach - right : reach - right + width]


def moved_across(pixels: float, images: Images, _: Foreground, __: Generator) -> Images:
    return moved(round(pixels), 0, images)


def moved_down(pixels: float, images: Images, _: Foreground, __: Generator) -> Images:
    return moved(0, round(pixels), images)


def turned(degrees: float, images: Images, _: Foreground, __: Generator) -> Images:
    """Clockwise about the middle; bicubic, which blurs least, and mirrored at the border."""
    angle = math.radians(degrees)
    matrix = torch.tensor([[math.cos(angle), math.sin(angle), 0.0], [-math.sin(angle), math.cos(angle), 0.0]])
    grid = F.affine_grid(matrix.repeat(len(images), 1, 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bicubic", padding_mode="reflection", align_corners=False)


def both(*strengths: float) -> tuple[float, ...]:
    return tuple(sorted([-strength for strength in strengths] + list(strengths)))


AXES = {
    axis.name: axis
    for axis in (
        Axis("exposure", "Exposure", "stops", both(0.25, 0.5, 1, 2), exposed, "brighter", "darker"),
        Axis(
            "gamma", "Gamma", "doublings", both(0.25, 0.5, 1), toned, "darker midtones", "brighter midtones",
            words=lambda doublings: f"gamma {2**doublings:.2g}",
        ),
        Axis("contrast", "Contrast", "%", (-75, -50, -20, 20, 50, 100), contrasted, "harder", "flatter"),
        Axis(
            "temperature", "Colour temperature", "mired", both(20, 50, 100), lit, "warmer lamp", "cooler lamp",
            words=lambda mired: f"{round(kelvin(mired), -2):.0f} K",
        ),
        Axis("shading", "Shading", "%", both(10, 25, 50), shaded, "brighter on the right", "brighter on the left"),
        Axis("blur", "Blur", "px", (0.5, 1, 2, 3), blur, "softer"),
        Axis("noise", "Noise", "%", (2, 5, 10, 15), noisy, "noisier"),
        Axis("background", "Background", "%", both(50, 100), before_other, "towards white", "towards black"),
        # 4 and 8 px are half a token of a CNN's and of a ViT's grid: a part is cut into tokens most differently there.
        Axis("shift-x", "Shift sideways", "px", both(2, 4, 8, 12), moved_across, "to the right", "to the left", True),
        Axis("shift-y", "Shift up or down", "px", both(2, 4, 8, 12), moved_down, "downwards", "upwards", True),
        Axis("rotation", "Rotation", "°", both(1, 3, 8), turned, "clockwise", "anticlockwise", True),
    )
}  # fmt: skip


def chosen_axes(names: Iterable[str] | None, foreground: bool) -> dict[str, Axis]:
    """The named axes; without names all, the background only for a model that tells it from the part."""
    if names is None:
        return {name: axis for name, axis in AXES.items() if foreground or name != "background"}
    wanted = tuple(dict.fromkeys(names))
    for name in wanted:
        if name not in AXES:
            raise NfadError(f"there is no axis {name!r}; the axes are {', '.join(AXES)}")
    return {name: AXES[name] for name in AXES if name in wanted}


def edited(axis: Axis, strength: float, view: Tensor, part: Tensor, seed: int) -> Tensor:
    """One view under one condition, within [0, 1]; strength 0 is the very view. The seed serves noise alone: the same
    for all strengths, so that a curve does not waver by luck."""
    if strength == 0:
        return view
    generator = Generator().manual_seed(seed)
    return axis.edit(float(strength), view[None], part[None], generator)[0].clamp(0, 1)


def photographed(axis: Axis, strength: float, size: int) -> Bool[Tensor, "size size"]:
    """Where the changed view shows what the camera took, a token away from what was made up to fill it.

    Any filling is an anomaly to some model: a mirror shows a second rim of the part, the edge's colour drawn out shows
    streaks. A token away little of the mirror is left, and the rest of the part is still judged (docs/stress.md).
    """
    if not axis.moves or strength == 0:
        return torch.ones(size, size, dtype=torch.bool)
    reach = size // 4  # further than any strength moves a pixel
    framed = F.pad(torch.ones(1, 3, size, size), (reach,) * 4)
    framed = axis.edit(float(strength), framed, framed[:, :1] > 0, Generator())
    made_up = (framed[:, :1, reach:-reach, reach:-reach] < 0.5).float()
    return _over_squares(F.max_pool2d, made_up, TOKEN)[0, 0] == 0
