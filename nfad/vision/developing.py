"""Photos developed alike before a network looks at them: noise is taken out, exposure and white balance made the fit's.

What a lamp or a camera does to all of a photo alike can be undone in its pixels, and then neither a reference nor the
nuisance subspace need bear it; they have the rest, shadows, spots, what was burnt out or drowned in noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nfad.vision.region import looked_at
from nfad.vision.teacher import Teacher

Views = Float[Tensor, "image 3 side side"]
LEVELS = 3  # of detail, each of twice the size; coarser noise is too weak to matter
TAPS = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)  # a cubic B-spline's
NEAR = 7  # pixels a side, over which detail is told from noise
AS_GRAINY = 0.95  # of the fit's photos are less grainy than what is taken for noise
SPAN = (0.05, 0.95)  # of the fit's photos: within it, exposure and white balance are left as they are
TELLS = 0.1  # by how much of itself white noise must be finer than the fit's grain, to be told from it
STRONGEST = 5.0  # change of contrast: as far as the fit's acquisitions go
GREY_LEVEL = 1 / 255
LEAST = (GREY_LEVEL / 10) ** 2  # energy of a detail: what is plain stays so, in a graph's arithmetic, too
SAMPLE = 16  # photos whose way into a view noise is sent
TINY = 1e-12


@dataclass(frozen=True)
class Development:
    """What a model keeps of how its photos look, by which every photo is developed."""

    white: Float[Tensor, " level"]  # energy of each level of detail, of white noise of σ = 1 in a photo; 0: not sought
    grain: Float[Tensor, ""]  # the finest level's over the next one's, in the fit's photos
    mean: Float[Tensor, "2 3"]  # of a view's pixels: from where to where it lies in most of the fit's photos
    spread: Float[Tensor, "2 3"]

    @classmethod
    def of(cls, views: Iterable[Views], side: int, sampled: Callable[[Views], Views]) -> Development:
        """Of the fit's views of this side; `sampled` is what a photo's pixels go through on their way into a view."""
        ratios, means, spreads = [], [], []
        for some in views:
            finest, next_one = (_energy(detail) for detail in details(some)[0][:2])
            ratios.append(finest / (next_one + TINY))
            means.append(_mean(some)[:, :, 0, 0])
            spreads.append(_spread(some))
        noise = torch.randn(SAMPLE, 3, side, side, generator=torch.Generator().manual_seed(0))
        strength = 0.1  # about a middle grey, far from both ends
        seen = details((sampled(0.5 + strength * noise) - 0.5) / strength)[0]
        white = torch.stack([_energy(detail).mean() for detail in seen])
        grain = torch.cat(ratios).quantile(AS_GRAINY)
        if white[0] - grain * white[1] < TELLS * white[0]:
            white = torch.zeros_like(white)
        spans = (torch.cat(each).quantile(torch.tensor(SPAN), dim=0).contiguous() for each in (means, spreads))
        return cls(white, grain, *spans)

    def __call__(self, views: Views) -> tuple[Views, Float[Tensor, "image 2"]]:
        """The photos developed, and what that undid, noise and light: their shares of all energy, with what is left."""
        denoised = self.denoised(views)
        developed = self.balanced(denoised)
        noise, light = _energy(views - denoised), _energy(denoised - developed)
        left = _spread(developed).square().mean(dim=1)
        return developed, torch.stack([noise, light], dim=1) / (noise + light + left)[:, None]

    def noise(self, found: Sequence[Views]) -> Float[Tensor, " image"]:
        """σ² of the noise in photos, by their details: light and contrast move all levels by the same factor, and only
        noise makes the finest one more than the fit's grain makes of the next."""
        finest, next_one = (_energy(detail) for detail in found[:2])
        tells = self.white[0] - self.grain * self.white[1]
        return torch.where(self.white[0] > 0, (finest - self.grain * next_one) / tells.clamp(min=TINY), 0).clamp(min=0)

    def denoised(self, views: Views) -> Views:
        """Wiener's filter, level by level: detail counts by how much of its energy nearby is not noise's."""
        found, developed = details(views)
        noise = self.noise(found)[:, None, None, None]
        for detail, white in zip(found, self.white, strict=True):
            energy = _nearby(detail.square().mean(dim=1, keepdim=True))
            developed = developed + detail * ((energy - noise * white).clamp(min=0) / energy.clamp(min=LEAST))
        return developed

    def balanced(self, views: Views) -> Views:
        """Each channel's mean and spread within those of the fit's photos, no further: parts differ in both. A photo
        without contrast is not made of nothing."""
        mean, spread = _mean(views), _spread(views)
        gain = (spread.clamp(*self.spread) / spread).clamp(1 / STRONGEST, STRONGEST)
        wanted = mean[:, :, 0, 0].clamp(*self.mean)
        return ((views - mean) * gain[:, :, None, None] + wanted[:, :, None, None]).clamp(0, 1)


def details(views: Views) -> tuple[list[Views], Views]:
    """What differs from the surroundings, the finest level first, and what is left: together the views ("à trous")."""
    left, found = views, []
    for level in range(LEVELS):
        smooth = _smooth(left, 2**level)
        found.append(left - smooth)
        left = smooth
    return found, left


class Developing:
    """A teacher that looks at developed photos."""

    def __init__(self, teacher: Teacher, development: Development) -> None:
        self.teacher, self.development = teacher, development
        self.identity, self.channels, self.grid = teacher.identity, teacher.channels, teacher.grid
        self.device, self.region = teacher.device, teacher.region

    def tokens(self, images: Float[Tensor, "image 3 h w"]) -> list[Float[Tensor, "image token _"]]:
        return self.teacher.tokens(self.development(looked_at(self.region, images))[0])

    def tokens_and_prior(
        self, images: Float[Tensor, "image 3 h w"]
    ) -> tuple[list[Float[Tensor, "image token _"]], Float[Tensor, "image token"]]:
        return self.teacher.tokens_and_prior(self.development(looked_at(self.region, images))[0])


def developed(development: Development | None, views: Views) -> tuple[Views, Float[Tensor, "image 2"] | None]:
    """The views, and what was undone; as they are without a development."""
    return (views, None) if development is None else development(views)


def _spread(views: Views) -> Float[Tensor, "image 3"]:
    off = (views - _mean(views)).square()
    return (_mean(off)[:, :, 0, 0] + GREY_LEVEL**2).sqrt()


def _energy(detail: Views) -> Float[Tensor, " image"]:
    return _mean(detail.square()).mean(dim=(1, 2, 3))


def _mean(views: Views) -> Float[Tensor, "image 3 1 1"]:
    """Of means of squares: a sum of so many pixels would depend on its order by more digits."""
    return F.avg_pool2d(views, 16).mean(dim=(2, 3), keepdim=True)


def _smooth(views: Views, step: int) -> Views:
    """By a B-spline whose taps are `step` pixels apart."""
    taps = torch.tensor(TAPS).repeat(3, 1, 1, 1)
    padded = F.pad(views, (2 * step,) * 4, mode="reflect")
    rows = F.conv2d(padded, taps, dilation=step, groups=3)
    return F.conv2d(rows, taps.transpose(2, 3), dilation=step, groups=3)


def _nearby(energy: Float[Tensor, "image 1 side side"]) -> Float[Tensor, "image 1 side side"]:
    near = NEAR // 2
    padded = F.pad(energy, (near, near, near, near), mode="reflect")
    return F.avg_pool2d(F.avg_pool2d(padded, (1, NEAR), stride=1), (NEAR, 1), stride=1)
