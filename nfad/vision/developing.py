"""Photos developed alike before a network looks at them: noise is taken out, exposure and white balance made the fit's.

What a lamp or a camera does to all of a photo alike can be undone in its pixels, and then neither a reference nor the
nuisance subspace need bear it; they have the rest, shadows, spots, what was burnt out or drowned in noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nfad.vision.photo import shrunk
from nfad.vision.region import looked_at
from nfad.vision.teacher import Teacher

Views = Float[Tensor, "image 3 side side"]
Coarser = Float[Tensor, "image 3 _ _"]
TAPS = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)  # a cubic B-spline's, by which fine detail is told
APART = (4, 8)  # pixels between places where it is looked at, the finest and the next: a sample tells as much
LEVELS = 3  # of detail that is cleaned, each of twice the size; coarser noise is too weak to matter
NEAR = 3  # squares of 2 × 2 a side, over which detail is told from noise
OVER = 1.5  # times its mean: as far as noise's energy over so few pixels goes, mostly
# Red, green and blue as grey and two differences: a part has little detail in those, and noise as much as in grey.
OPPONENT = ((3**-0.5, 3**-0.5, 3**-0.5), (2**-0.5, 0.0, -(2**-0.5)), (6**-0.5, -2 * 6**-0.5, 6**-0.5))
AS_GRAINY = 0.95  # of the fit's photos are less grainy than what is taken for noise
SPAN = (0.05, 0.95)  # of the fit's photos: within it, exposure and white balance are left as they are
TELLS = 0.1  # by how much of itself white noise must be finer than the fit's grain, to be told from it
STRONGEST = 5.0  # change of contrast: as far as the fit's acquisitions go
GREY_LEVEL = 1 / 255
LEAST = (GREY_LEVEL / 10) ** 2  # energy of a detail: what is plain stays so, in a graph's arithmetic, too
SAMPLE = 16  # photos whose way into a view noise is sent
EVERY = 4  # pixels, along and across, of which one is looked at to tell how much was undone
TINY, PIECE = 1e-12, 16


@dataclass(frozen=True)
class Development:
    """What a model keeps of how its photos look, by which every photo is developed."""

    fine: Float[Tensor, "2"]  # energies of fine detail and of the next, of white noise of σ = 1 in a photo
    white: Float[Tensor, " level"]  # and of each level of the pyramid; 0: not sought
    grain: Float[Tensor, ""]  # the finest detail's energy over the next one's, in the fit's photos
    mean: Float[Tensor, "2 3"]  # of a view's pixels: from where to where it lies in most of the fit's photos
    spread: Float[Tensor, "2 3"]

    @classmethod
    def of(cls, views: Iterable[Views], side: int, sampled: Callable[[Views], Views]) -> Development:
        """Of the fit's views of this side; `sampled` is what a photo's pixels go through on their way into a view."""
        ratios, means, spreads = [], [], []
        for some in views:
            finest, next_one = fine_details(some)
            ratios.append(finest / (next_one + TINY))
            mean = _mean(some)
            means.append(mean[:, :, 0, 0])
            spreads.append(_spread(some, mean))
        noise = torch.randn(SAMPLE, 3, side, side, generator=torch.Generator().manual_seed(0))
        strength = 0.1  # about a middle grey, far from both ends
        noise = (sampled(0.5 + strength * noise) - 0.5) / strength
        fine = torch.stack([energy.mean() for energy in fine_details(noise)])
        white = torch.stack([_energy(detail).mean() for detail in details(noise)[0]])
        grain = torch.cat(ratios).quantile(AS_GRAINY)
        if fine[0] - grain * fine[1] < TELLS * fine[0]:
            fine, white = torch.zeros_like(fine), torch.zeros_like(white)
        spans = (torch.cat(each).quantile(torch.tensor(SPAN), dim=0).contiguous() for each in (means, spreads))
        return cls(fine, white, grain, *spans)

    def __call__(self, views: Views) -> tuple[Views, Float[Tensor, "image 2"]]:
        """The photos developed, and what that undid."""
        noise = self.noise(views)
        quiet, noisy = views, noise > 0
        if noisy.any():  # of the fit's own kind few are
            quiet = views.clone()
            quiet[noisy] = self.denoised(views[noisy], noise[noisy])
        developed = self.balanced(quiet)
        return developed, shares_undone(views, quiet, developed)

    def noise(self, views: Views) -> Float[Tensor, " image"]:
        """σ² of the noise in photos, by their fine detail: light and contrast move all of it by the same factor, and
        only noise makes the finest more than the fit's grain makes of the next."""
        finest, next_one = fine_details(views)
        tells = self.fine[0] - self.grain * self.fine[1]
        return torch.where(self.fine[0] > 0, (finest - self.grain * next_one) / tells.clamp(min=TINY), 0).clamp(min=0)

    def denoised(self, views: Views, noise: Float[Tensor, " image"]) -> Views:
        """Wiener's filter, level by level, of grey and of colour: detail counts by how much of its energy nearby is
        more than that of noise of this σ²."""
        opponent, noise = torch.tensor(OPPONENT), OVER * noise[:, None, None, None]
        found, left = details(_mixed(opponent, views))
        for detail, white in zip(reversed(found), self.white.flip(0), strict=True):
            noisy = (noise * white / _nearby(detail.square()).clamp(min=LEAST)).clamp(max=1)
            left = _as_large(left, detail) + detail * (1 - _as_large(noisy, detail))
        return _mixed(opponent.T, left)

    def balanced(self, views: Views) -> Views:
        """Each channel's mean and spread within those of the fit's photos, no further: parts differ in both. A photo
        without contrast is not made of nothing."""
        mean = _mean(views)
        spread = _spread(views, mean)
        gain = (spread.clamp(*self.spread) / spread).clamp(1 / STRONGEST, STRONGEST)
        wanted = mean[:, :, 0, 0].clamp(*self.mean)
        return ((views - mean) * gain[:, :, None, None] + wanted[:, :, None, None]).clamp(0, 1)


def shares_undone(views: Views, quiet: Views, developed: Views) -> Float[Tensor, "image 2"]:
    """What developing undid, noise and light: their shares of all energy, with what is left."""
    views, quiet, developed = (each[..., ::EVERY, ::EVERY] for each in (views, quiet, developed))
    off = developed - developed.mean(dim=(2, 3), keepdim=True)
    noise, light, left = (_energy(each) for each in (views - quiet, quiet - developed, off))
    return torch.stack([noise, light], dim=1) / (noise + light + left + GREY_LEVEL**2)[:, None]


def fine_details(views: Views) -> tuple[Float[Tensor, " image"], Float[Tensor, " image"]]:
    """Energies of what differs from the nearest surroundings, and of what these differ from theirs ("à trous")."""
    counts = _counts(int(views.shape[-1]))
    kernel, side = TELLING.shape[-1], counts.shape[-1]
    beyond = max(0, (side - 1) * APART[1] + kernel - int(views.shape[-1]))
    planes = F.pad(views.flatten(0, 1)[:, None], (0, beyond, 0, beyond))  # for torch is slow with groups of channels
    energy = F.conv2d(planes, TELLING, stride=APART[1])[..., :side, :side].square() * counts
    energy = energy.sum(dim=(2, 3)).unflatten(0, (-1, 3)).mean(dim=1)
    return energy[:, :-1].sum(dim=1), energy[:, -1]


def details(views: Views) -> tuple[list[Coarser], Coarser]:
    """What each size of detail adds to the next coarser one, the finest first, and what is left: a pyramid."""
    left, found = views, []
    for _ in range(LEVELS):
        coarser = _halved(left)
        found.append(left - _as_large(coarser, left))
        left = coarser
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


def _spread(views: Views, mean: Float[Tensor, "image 3 1 1"]) -> Float[Tensor, "image 3"]:
    off = (views - mean).square()
    return (_mean(off)[:, :, 0, 0] + GREY_LEVEL**2).sqrt()


def _energy(detail: Coarser) -> Float[Tensor, " image"]:
    return detail.square().mean(dim=(1, 2, 3))


def _mean(views: Views) -> Float[Tensor, "image 3 1 1"]:
    """Of means of rows' pieces: a sum of so many pixels would depend on its order by more digits."""
    pieces = views[..., : int(views.shape[-1]) // PIECE * PIECE].unflatten(3, (-1, PIECE))
    return pieces.mean(dim=4).mean(dim=(2, 3), keepdim=True)


def _mixed(shares: Float[Tensor, "3 3"], views: Views) -> Views:
    """Each channel the sum of these shares of all."""
    return (shares @ views.flatten(2)).reshape(views.shape)


def _halved(views: Views) -> Coarser:
    """By (1, 3, 3, 1) / 8 along and across, nearly: the mean of a square's mean and that of the square about it."""
    around = shrunk(F.pad(views, (1, 1, 1, 1), mode="replicate"), 2)
    return (shrunk(views, 2) + _moving_mean(around, 2)[..., : views.shape[-2] // 2, : views.shape[-1] // 2]) / 2


def _as_large(coarse: Coarser, views: Views) -> Views:
    return F.interpolate(coarse, (int(views.shape[-2]), int(views.shape[-1])), mode="bilinear", align_corners=False)


def _nearby(energy: Views) -> Coarser:
    near = NEAR // 2
    return _moving_mean(F.pad(shrunk(energy, 2), (near, near, near, near), mode="replicate"), NEAR)


def _moving_mean(views: Coarser, width: int) -> Coarser:
    """Of squares of this width, wherever there is one; by sums of slices, for torch's pooling is slow."""
    for dim in (2, 3):
        count = int(views.shape[dim]) - width + 1
        views = reduce(torch.add, [views.narrow(dim, first, count) for first in range(width)]) / width
    return views


def _telling() -> Float[Tensor, "5 1 13 13"]:
    """A pixel less its smooth surroundings, at each of the four places of a square that it is looked at; and these less
    theirs, whose taps are two pixels apart. Both by one convolution: a graph lays views out anew for each."""
    near, wide = torch.tensor(TAPS), torch.zeros(9)
    wide[::2] = near
    smooth, finest, next_one = torch.outer(near, near), -torch.outer(near, near), -torch.outer(wide, wide)
    finest[2, 2] += 1
    next_one[4, 4] += 1
    next_one = F.conv2d(next_one[None, None], smooth[None, None], padding=4)[0, 0]
    room = len(next_one) - len(finest)
    places = ((left, room - left, top, room - top) for top in (0, APART[0]) for left in (0, APART[0]))
    return torch.stack([*(F.pad(finest, place) for place in places), next_one])[:, None]


@lru_cache(maxsize=8)
def _counts(side: int) -> Float[Tensor, "5 square square"]:
    """What a detail's energy at each place counts, for either mean to be over those that lie in a view of this side."""
    finest, next_one = (max(0, (side - taps) // apart + 1) for taps, apart in zip((5, 13), APART, strict=True))
    squares = max(-(-finest // 2), next_one)
    places = [2 * torch.arange(squares) + odd < finest for odd in (0, 1)]
    inside = [down[:, None] & along for down in places for along in places]
    wide = torch.arange(squares) < next_one
    each = [place / max(finest, 1) ** 2 for place in inside] + [(wide[:, None] & wide) / max(next_one, 1) ** 2]
    return torch.stack(each)


TELLING = _telling()
