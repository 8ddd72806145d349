"""The placed reference: how far a token is from the mean token of its place, in the spread that normals have.

Its covariance is taken over normals × acquisitions, so that a direction counts the less the more acquisition moves it:
a soft filter beside the projection's hard one. It sees what a projection off V may lose, above all parts that are
missing or moved. On a part that lies anywhere the places' means are alike, and it is one Mahalanobis distance for all.
Of a part that always lies alike every region has a covariance of its own: what is ordinary at its leads is not on its
case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

FLOOR = 0.01  # of the mean variance: what is added to each, so that no direction without any counts for everything
ROUNDING, TINY = 8 * torch.finfo(torch.float32).eps, torch.finfo(torch.float32).tiny
MOST = 8  # regions a side
PER_CHANNEL = 10  # tokens that a region's covariance needs
FINE, COARSE = 64, 32  # tokens a side, up to which each has a mean of its own; and places a side beyond
OWN = 0.7  # of a region's covariance is its own; the rest is that of all


@dataclass(frozen=True)
class Placed:
    """Of one block: Σ^−½ of every region, Σ the covariance about the places' means; and those means, whitened. A place
    is a token, or (of a large view) a square of tokens."""

    white: Float[Tensor, "region channel channel"]
    means: Float[Tensor, "place channel"]

    @classmethod
    def fit(cls, second: Float[Tensor, "region channel channel"], means: Float[Tensor, "place channel"]) -> Placed:
        """From E[t tᵀ] over each region's tokens (of one region: all) and E[t] of each place: both additive."""
        places = by_region(means[None], len(second))[:, 0]
        within = second - places.mT @ places / places.shape[1]
        together = within.mean(dim=0)
        # Where normals have hardly any spread, it is not to be less than what rounding does to sums in float32.
        rounding = ROUNDING * second.diagonal(dim1=1, dim2=2).sum(dim=1).max().clamp(min=TINY)
        floor = (FLOOR * together.trace() / len(together)).maximum(rounding)
        unit = torch.eye(len(together), dtype=second.dtype)
        spread = torch.linalg.cholesky(OWN * within + (1 - OWN) * together + floor * unit)
        white = torch.linalg.solve_triangular(spread, unit.expand_as(spread), upper=False).mT
        # As a file keeps them: the same numbers in another order would give products that differ in the last bit.
        whitened = by_place((places @ white)[:, None])[0]
        return cls(white.float().contiguous(), whitened.float().contiguous())

    def telling(
        self, strangest: Float[Tensor, "channel channel"], flaws: Float[Tensor, "channel channel"], share: float = 0.5
    ) -> Placed:
        """The same, but a deviation counts by how well it tells a flaw from the strangest tokens that normals have, by
        the second moments of either.

        The log likelihood ratio of N(0, Σ + D) to N(0, Σ), x ↦ xᵀ (Σ⁻¹ − (Σ + D)⁻¹) x. A share of Σ is that of the
        strangest tokens, for it is these that set a threshold, the rest that of all normal ones. D is that of flaws at
        the edge of what can be seen, on the mean over directions as large as Σ; larger ones are found in any way.
        """
        white, unit = self.white, torch.eye(self.white.shape[-1])
        odd, flaw = (white.mT @ (each / each.trace().clamp(min=TINY)).float() @ white for each in (strangest, flaws))
        spread = torch.lerp(unit, odd / _mean_trace(unit, odd), share)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(spread))
        flaw = flaw / _mean_trace(unit, flaw) + FLOOR * unit  # no direction counts for nothing
        flaw = flaw / _mean_trace(inverse, flaw)
        ratio = inverse - torch.cholesky_inverse(torch.linalg.cholesky(spread + flaw))
        turn = torch.linalg.cholesky(ratio / _mean_trace(spread, ratio))
        places = by_region(self.means[None], len(white))[:, 0]
        return Placed((white @ turn).contiguous(), by_place((places @ turn)[:, None])[0].contiguous())

    def __call__(self, tokens: Float[Tensor, "image token channel"]) -> Float[Tensor, "image token"]:
        """Mean square of the whitened deviation: about 1 for a normal."""
        means = by_token(self.means, int(tokens.shape[1]))  # int(): the older ONNX exporter's shapes are tensors
        if len(self.white) == 1:
            return (tokens @ self.white[0] - means).square().mean(dim=-1)
        grouped = by_region(tokens, len(self.white))
        white = (grouped.flatten(1, 2) @ self.white).reshape(grouped.shape)  # not image by image: few large products
        off = white - by_region(means[None], len(self.white))
        return by_place(off.square().mean(dim=-1, keepdim=True))[..., 0]


def _mean_trace(
    one: Float[Tensor, "*region channel channel"], other: Float[Tensor, "region channel channel"]
) -> Float[Tensor, "region 1 1"]:
    """Of the product of two symmetric matrices, on the mean over directions."""
    return (one * other).sum(dim=(1, 2), keepdim=True).clamp(min=TINY) / other.shape[-1]


def places_a_side(grid: int) -> int:
    """One a token; of a large view as many as divide the grid, at most 32: no part lies within a token of 1/400 of its
    photo's side, and means of so many places would be larger than all else that a fit keeps."""
    if grid <= FINE:
        return grid
    return next(side for side in range(COARSE, 0, -1) if grid % side == 0)


def by_square(tokens: Float[Tensor, "token channel"]) -> Float[Tensor, "place channel"]:
    """The mean of each place's tokens."""
    grid = math.isqrt(len(tokens))
    places = places_a_side(grid)
    if places == grid:
        return tokens
    return tokens.reshape(places, grid // places, places, grid // places, -1).mean(dim=(1, 3)).flatten(0, 1)


def by_token(means: Float[Tensor, "place channel"], tokens: int) -> Float[Tensor, "token channel"]:
    """Of every token, the mean of its place."""
    if len(means) == tokens:
        return means
    places, grid = math.isqrt(len(means)), math.isqrt(tokens)
    step = grid // places
    square = means.reshape(places, 1, places, 1, -1).expand(places, step, places, step, -1)
    return square.reshape(tokens, means.shape[1])


def regions_a_side(grid: int, channels: int, views: int) -> int:
    """As many as divide the places and leave each region tokens enough."""
    fits = (side for side in range(MOST, 1, -1) if places_a_side(grid) % side == 0)
    return next((side for side in fits if views * (grid // side) ** 2 >= PER_CHANNEL * channels), 1)


def by_region(tokens: Float[Tensor, "image token channel"], regions: int) -> Float[Tensor, "region image own channel"]:
    """The tokens of each square region, row by row; one region is all of them, square or not."""
    if regions == 1:
        return tokens[None]
    side, grid = math.isqrt(regions), math.isqrt(int(tokens.shape[1]))
    step = grid // side
    square = tokens.reshape(len(tokens), side, step, side, step, -1)
    return square.permute(1, 3, 0, 2, 4, 5).reshape(regions, len(tokens), step * step, -1)


def by_place(tokens: Float[Tensor, "region image own channel"]) -> Float[Tensor, "image token channel"]:
    """And back."""
    if len(tokens) == 1:
        return tokens[0]
    regions, images, count, channels = tokens.shape
    side, step = math.isqrt(regions), math.isqrt(count)
    square = tokens.reshape(side, side, images, step, step, channels)
    return square.permute(2, 0, 3, 1, 4, 5).reshape(images, regions * count, channels)
