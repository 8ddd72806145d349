"""Random acquisitions: the lamps, lenses and cameras under which a model promises to judge its part.

Continuous in strength, one to three kinds together, seeded. Interventions teach what to filter, acquisitions how a
normal's score moves and how far a photo may be from the fit's; corruptions, which share no code with either, test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional as F

View = Float[Tensor, "3 side side"]


@dataclass(frozen=True)
class Range:
    """Strengths from low to high, evenly or (log) evenly in ratio."""

    low: float
    high: float
    log: bool = False

    def at(self, share: float) -> float:
        if self.log:
            return self.low * (self.high / self.low) ** share
        return self.low + share * (self.high - self.low)


# The model's promise, in the order in which light passes: lamp, lens, camera.
RANGES: dict[str, Range] = {
    "gain": Range(0.35, 3.0, log=True),  # exposure, lamp power
    "colour": Range(-0.35, 0.35),  # log gain of a channel
    "ramp": Range(0.0, 0.5),  # ± at opposite edges, in any direction
    "spot": Range(0.4, 2.3, log=True),  # gain at its centre; radius .2–.5 of the side, anywhere
    "blur": Range(0.0, 3.0),  # σ in pixels of a view of 256²: a Gaussian's, or that of a disk of twice the radius
    "offset": Range(-0.25, 0.4),  # stray light, black level
    "contrast": Range(0.2, 1.8, log=True),  # about the image's mean
    "gamma": Range(0.45, 2.2, log=True),
    "noise": Range(0.0, 0.2),  # σ of [0, 1]
}
TOGETHER = (0.5, 0.3, 0.2)  # chance of one, two, three kinds at a time
VISIBLE = 0.1  # share of a view's own fine contrast that a draw must leave
GREY_LEVEL = 1 / 255  # and of it at least this much, and a quarter of the noise: else the part is hidden
TRIES = 20


@dataclass(frozen=True)
class Acquisition:
    """One draw: kinds and strengths, and a seed for place, colour, direction and noise."""

    steps: tuple[tuple[str, float], ...]
    seed: int

    def __call__(self, view: View) -> View:
        return self.with_noise(self.noiseless(view))

    @property
    def noise(self) -> float:
        return dict(self.steps).get("noise", 0.0)

    def noiseless(self, view: View) -> View:
        """All but the noise, which comes last."""
        generator = Generator().manual_seed(self.seed)
        for kind, strength in self.steps:
            if kind != "noise":
                view = KINDS[kind](view, strength, generator)
        return view.clamp(0, 1)

    def with_noise(self, view: View) -> View:
        if not self.noise:
            return view
        drawn = torch.randn(view.shape, generator=Generator().manual_seed(self.seed + 1))
        return (view + self.noise * drawn).clamp(0, 1)


def draw(generator: Generator, ranges: Mapping[str, Range] = RANGES) -> Acquisition:
    """One to three kinds, each at a strength from its range."""
    count = 1 + int(torch.multinomial(torch.tensor(TOGETHER), 1, generator=generator))
    names = list(ranges)
    chosen = sorted(torch.randperm(len(names), generator=generator)[:count].tolist())
    shares = torch.rand(count, generator=generator).tolist()
    seed = int(torch.randint(2**31, (1,), generator=generator))
    steps = tuple((names[k], ranges[names[k]].at(share)) for k, share in zip(chosen, shares, strict=True))
    return Acquisition(steps, seed)


def acquired(view: View, generator: Generator, tile: int | None = None) -> tuple[View, Acquisition]:
    """The view under a random acquisition in which its part can still be seen: nobody can judge a hidden one.

    A view seen in tiles is blurred in pixels of a tile of 256²: a lens out of focus by more hides what tiles are for.
    """
    ranges = RANGES
    if tile is not None:
        blur = RANGES["blur"]
        ranges = {**RANGES, "blur": Range(blur.low, blur.high * tile / view.shape[-1])}
    fine = _fine(view)
    for _ in range(TRIES):
        acquisition = draw(generator, ranges)
        lit = acquisition.noiseless(view)
        gain = _gain_of(fine, _fine(lit))
        left = min(gain, 1.0) * float(fine.square().mean().sqrt())  # who raises contrast raises the noise, too
        if gain >= VISIBLE and left >= acquisition.noise / 4 + GREY_LEVEL:
            return acquisition.with_noise(lit), acquisition
    return view.clone(), Acquisition((), 0)


def _fine(view: View) -> Float[Tensor, "half half"]:
    """Grey less its mean over a sixteenth of the side, at half the size."""
    grey = F.avg_pool2d(view, 2).mean(dim=0)[None, None]
    width = max(grey.shape[-1] // 16, 1) | 1
    padded = F.pad(grey, (width // 2,) * 4, mode="reflect")
    return (grey - F.avg_pool2d(F.avg_pool2d(padded, (1, width), stride=1), (width, 1), stride=1))[0, 0]


def _gain_of(before: Tensor, after: Tensor) -> float:
    """The least-squares gain from one fine structure to the other: 1 unchanged, 0 gone."""
    return float((before * after).sum() / before.square().sum().clamp(min=1e-12))


def _gain(view: View, strength: float, _: Generator) -> View:
    return view * strength


def _colour(view: View, strength: float, generator: Generator) -> View:
    """The strength is one channel's; the others' are drawn beside it."""
    others = (torch.rand(2, generator=generator) * 2 - 1) * RANGES["colour"].high
    order = torch.randperm(3, generator=generator)
    return view * torch.cat([torch.tensor([strength]), others])[order].exp()[:, None, None]


def _ramp(view: View, strength: float, generator: Generator) -> View:
    angle = float(torch.rand(1, generator=generator)) * 2 * math.pi
    axis = torch.linspace(-1, 1, view.shape[-1])
    along = math.cos(angle) * axis[None, :] + math.sin(angle) * axis[:, None]
    return view * (1 + strength * along / along.abs().max())


def _spot(view: View, strength: float, generator: Generator) -> View:
    y, x = torch.rand(2, generator=generator).tolist()
    radius = 0.2 + 0.3 * float(torch.rand(1, generator=generator))
    axis = torch.linspace(0, 1, view.shape[-1])
    bump = torch.exp(-0.5 * ((axis[:, None] - y) ** 2 + (axis[None, :] - x) ** 2) / radius**2)
    return view * (1 + (strength - 1) * bump)


def _blur(view: View, strength: float, generator: Generator) -> View:
    """Soft or, as often, out of focus, which no Gaussian looks like: a disk, whose edge shows at every edge."""
    sigma, out_of_focus = strength * view.shape[-1] / 256, torch.rand(1, generator=generator) < 0.5
    if sigma < 0.2:
        return view
    if out_of_focus:
        return defocused(view, 2 * sigma)  # of the same spread
    reach = min(int(4 * sigma + 0.5), view.shape[-1] - 1)
    taps = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / sigma) ** 2)
    taps = (taps / taps.sum()).repeat(3, 1, 1, 1)
    padded = F.pad(view[None], (reach,) * 4, mode="reflect")
    return F.conv2d(F.conv2d(padded, taps, groups=3), taps.transpose(2, 3), groups=3)[0]


def defocused(view: View, radius: float) -> View:
    """Every point a disk of this radius, in pixels; as a product of spectra, for a large view's disk has many."""
    reach = min(math.ceil(radius), view.shape[-1] - 1)
    axis = torch.arange(-reach, reach + 1)
    disk = (radius + 0.5 - (axis[:, None] ** 2 + axis**2).sqrt()).clamp(0, 1)
    padded = F.pad(view[None], (reach,) * 4, mode="reflect")[0]
    size = padded.shape[1:]
    spectrum = torch.fft.rfft2(padded) * torch.fft.rfft2(disk / disk.sum(), s=size)
    return torch.fft.irfft2(spectrum, s=size)[:, 2 * reach :, 2 * reach :].contiguous()


def toned(curve: Callable[[Tensor, float], Tensor]) -> Callable[[View, float, Generator], View]:
    """A camera's tone curve, of every channel alone or, as often, of the brightest with the hue kept: what is dark then
    gains as much in colour as in light."""

    def under(view: View, strength: float, generator: Generator) -> View:
        if torch.rand(1, generator=generator) < 0.5:
            return curve(view, strength)
        view = view.clamp(min=0)
        brightest = view.amax(dim=0, keepdim=True)
        shown = curve(brightest, strength).clamp(0, 1)
        return torch.where(brightest < GREY_LEVEL, shown, view * (shown / brightest.clamp(min=GREY_LEVEL)))

    return under


def _offset(view: Tensor, strength: float) -> Tensor:
    return view + strength


def _contrast(view: Tensor, strength: float) -> Tensor:
    mean = view.mean()
    return (view - mean) * strength + mean


def _gamma(view: Tensor, strength: float) -> Tensor:
    return view.clamp(min=0) ** strength


KINDS: dict[str, Callable[[View, float, Generator], View]] = {
    "gain": _gain,
    "colour": _colour,
    "ramp": _ramp,
    "spot": _spot,
    "blur": _blur,
    "offset": toned(_offset),
    "contrast": toned(_contrast),
    "gamma": toned(_gamma),
}
