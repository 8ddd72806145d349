"""A score read in its own light: what was removed tells how a normal's score would be under this acquisition.

Coordinates inside V and the photo's own numbers → what is expected of a normal's log score there → log score less
that. The same factor reads the map, so that a colour means the same in every light and the read score is the top-share
mean of the read map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nfad.vision.maps import cell_means
from nfad.vision.photo import NUMBERS

CELLS = 4  # a side: a median of 16 cells is blind to a defect in up to 7 of them
COMPONENTS = 8
PER_COMPONENT = 16  # views a component needs
RIDGE = 0.1  # of a regressor's variance
# Of a photo's numbers those without a step, beyond which a hair's difference in a pixel would read another light.
SMOOTH = tuple(NUMBERS.index(name) for name in ("brightness", "contrast", "noise", "colour", "uneven"))
ENOUGH = PER_COMPONENT * (COMPONENTS + len(SMOOTH))  # views; the fewer there are, the less do numbers count
STILL = 0.02  # spread of a photo's number under acquisitions, below which it tells little


def coordinates(
    tokens: Sequence[Float[Tensor, "image token _"]], bases: Sequence[Float[Tensor, "_ _"]]
) -> Float[Tensor, "image k"]:
    """Where a photo's acquisition lies inside V: per block the median over cells of the cell's mean token, stacked."""
    found = []
    for block, basis in zip(tokens, bases, strict=True):
        inside = (cell_means(block, CELLS) @ basis).sort(dim=1).values  # median() has no export
        count = int(inside.shape[1])
        found.append((inside[:, (count - 1) // 2] + inside[:, count // 2]) / 2)
    return torch.cat(found, dim=1)


@dataclass(frozen=True)
class Reading:
    """The expected change of a normal's log score: weights · coordinates + photo · numbers + offset, 0 at the clean
    normals' mean."""

    weights: Float[Tensor, " k"]
    photo: Float[Tensor, "8"]
    offset: float
    low: float  # and never beyond what the fit has seen
    high: float

    @classmethod
    def fit(
        cls,
        found: Float[Tensor, "view k"],
        numbers: Float[Tensor, "view 8"],
        log_scores: Float[Tensor, " view"],
        images: Int[Tensor, " view"],
        clean: Bool[Tensor, " view"],
    ) -> Reading:
        """From normals × acquisitions: each one's coordinates, its photo's numbers, and its out-of-fold score; `clean`
        is as taken.

        Matched: both sides are deviations from the same image's own mean over its views, so that what differs from
        part to part is not mistaken for light. Ridge regression on the coordinates' leading components and on the
        numbers, all in units of their own spread, folded into one row of weights each.
        """
        x, y = within_images(found.double(), images), within_images(log_scores.double()[:, None], images)[:, 0]
        _, values, directions = torch.linalg.svd(x, full_matrices=False)
        spread = values / math.sqrt(len(x))
        count = min(COMPONENTS, len(x) // PER_COMPONENT, int((spread > 1e-9 * spread.max().clamp(min=1e-30)).sum()))
        components = directions[:count] / spread[:count, None]
        n = within_images(numbers.double()[:, SMOOTH], images)
        units = (n.square().mean(dim=0) + STILL**2).sqrt()
        if not count:
            n = torch.zeros_like(n)  # too few views tell nothing of light
        told = torch.cat([x @ components.T, n / units], dim=1)
        ridge = torch.full((told.shape[1],), RIDGE, dtype=told.dtype)
        ridge[count:] *= max(1.0, ENOUGH / len(x)) ** 2
        slopes = torch.linalg.solve(told.T @ told / len(x) + ridge.diag(), told.T @ y / len(x))
        weights, photo = slopes[:count] @ components, torch.zeros(len(NUMBERS), dtype=torch.float64)
        photo[list(SMOOTH)] = slopes[count:] / units
        expected = found.double() @ weights + numbers.double() @ photo
        offset = -float(expected[clean].mean())
        limits = (float(limit) + offset for limit in (expected.min(), expected.max()))
        return cls(weights.float(), photo.float(), offset, *limits)

    def as_dict(self) -> dict[str, float]:
        """Its numbers; the weights are tensors."""
        return {"offset": self.offset, "low": self.low, "high": self.high}

    def expected(self, found: Float[Tensor, "image k"], numbers: Float[Tensor, "image 8"]) -> Float[Tensor, " image"]:
        return (found @ self.weights + numbers @ self.photo + self.offset).clamp(self.low, self.high)

    def __call__(
        self,
        token_map: Float[Tensor, "image token"],
        found: Float[Tensor, "image k"],
        numbers: Float[Tensor, "image 8"],
    ) -> Float[Tensor, "image token"]:
        """The map as it would be in the fit's own light."""
        return token_map * torch.exp(-self.expected(found, numbers))[:, None]


def within_images(values: Float[Tensor, "view k"], images: Int[Tensor, " view"]) -> Float[Tensor, "view k"]:
    """Deviations from the mean over the same image's views."""
    _, index, counts = torch.unique(images, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(counts), values.shape[1], dtype=values.dtype).index_add_(0, index, values)
    return values - (sums / counts[:, None])[index]
