"""A score read in its own light: what was removed tells how a normal's score would be under this acquisition.

Coordinates inside V → what is expected of a normal's log score there → log score less that. The same factor reads the
map, so that a colour means the same in every light and the read score is the top-share mean of the read map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

CELLS = 4  # a side: a median of 16 cells is blind to a defect in up to 7 of them
COMPONENTS = 8
RIDGE = 0.1  # of a component's variance
PER_COMPONENT = 16  # views a component needs


def coordinates(
    tokens: Sequence[Float[Tensor, "image token _"]], bases: Sequence[Float[Tensor, "_ _"]]
) -> Float[Tensor, "image k"]:
    """Where a photo's acquisition lies inside V: per block the median over cells of the cell's mean token, stacked."""
    found = []
    for block, basis in zip(tokens, bases, strict=True):
        grid = math.isqrt(block.shape[1])
        step, cells = max(grid // CELLS, 1), min(CELLS, grid)
        kept = block.unflatten(1, (grid, grid))[:, : cells * step, : cells * step]
        means = kept.unflatten(2, (cells, step)).unflatten(1, (cells, step)).mean(dim=(2, 4)).flatten(1, 2)
        inside = (means @ basis).sort(dim=1).values  # median() has no export
        found.append((inside[:, (cells**2 - 1) // 2] + inside[:, cells**2 // 2]) / 2)
    return torch.cat(found, dim=1)


@dataclass(frozen=True)
class Reading:
    """The expected change of a normal's log score: weights · coordinates + offset, 0 at the clean normals' mean."""

    weights: Float[Tensor, " k"]
    offset: float
    low: float  # and never beyond what the fit has seen
    high: float

    @classmethod
    def fit(
        cls,
        found: Float[Tensor, "view k"],
        log_scores: Float[Tensor, " view"],
        images: Int[Tensor, " view"],
        clean: Bool[Tensor, " view"],
    ) -> Reading:
        """From normals × acquisitions, each with its image's number and its out-of-fold score; `clean` is as taken.

        Matched: both sides are deviations from the same image's own mean over its views, so that what differs from
        part to part is not mistaken for light. Ridge regression on the leading components of the deviations; as they
        are uncorrelated, each has its slope for itself, and all are folded into one row of weights.
        """
        x, y = within_images(found.double(), images), within_images(log_scores.double()[:, None], images)[:, 0]
        _, values, directions = torch.linalg.svd(x, full_matrices=False)
        spread = values / math.sqrt(len(x))
        count = min(COMPONENTS, len(x) // PER_COMPONENT, int((spread > 1e-9 * spread.max().clamp(min=1e-30)).sum()))
        spread, directions = spread[:count], directions[:count]
        slopes = (x @ directions.T / spread).T @ y / (len(x) * (1 + RIDGE))
        weights = (slopes / spread) @ directions
        expected = found.double() @ weights
        offset = -float(expected[clean].mean())
        return cls(weights.float(), offset, *(float(limit) + offset for limit in (expected.min(), expected.max())))

    def as_dict(self) -> dict[str, float]:
        """Its numbers; the weights are a tensor."""
        return {"offset": self.offset, "low": self.low, "high": self.high}

    def expected(self, found: Float[Tensor, "image k"]) -> Float[Tensor, " image"]:
        return (found @ self.weights + self.offset).clamp(self.low, self.high)

    def __call__(
        self, token_map: Float[Tensor, "image token"], found: Float[Tensor, "image k"]
    ) -> Float[Tensor, "image token"]:
        """The map as it would be in the fit's own light."""
        return token_map * torch.exp(-self.expected(found))[:, None]


def within_images(values: Float[Tensor, "view k"], images: Int[Tensor, " view"]) -> Float[Tensor, "view k"]:
    """Deviations from the mean over the same image's views."""
    _, index, counts = torch.unique(images, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(counts), values.shape[1], dtype=values.dtype).index_add_(0, index, values)
    return values - (sums / counts[:, None])[index]
