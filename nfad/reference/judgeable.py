"""Whether a photo can be judged at all.

Two looks, each put in units of normals × acquisitions; the larger one counts:
  content  the mean tokens of the photo's quarters: what is left of them off the plane through normals × acquisitions
  photo    eight numbers of the pixels alone, each against the span that normals × acquisitions have
And a photo without anything to see is not judged, whatever normals × acquisitions span: of a bright part a bright light
leaves next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nfad.vision.maps import cell_means
from nfad.vision.photo import NUMBERS

COMPONENTS = 48  # at most
PER_COMPONENT = 8  # views a component needs
SPAN = (0.002, 0.998)  # quantiles of normals × acquisitions between which a photo's number is ordinary
LEAST = (0.1, 0.1, 0.03, 0.03, 0.03, 0.1, 0.05, 0.03)  # from the middle to an edge, number by number, at the least
UNIT = 0.98  # the quantile that is 1 in either look's units
FLAT, NOTHING = NUMBERS.index("flat"), 10.0  # the share of plain cells, and how strange a photo of such cells alone is
RATE = 0.015  # share of normals × acquisitions, out of fold, that is not judged


def quarter_tokens(tokens: Sequence[Float[Tensor, "image token _"]]) -> Float[Tensor, "image channels"]:
    """The mean token of each quarter of the photo, of every block, stacked: half a photo covered changes half of it."""
    return torch.cat([cell_means(block, 2).flatten(1) for block in tokens], dim=1)


@dataclass(frozen=True)
class Judgeable:
    """Calling it gives the strangeness, above 1 where a photo is not to be judged, and what `why_strange` puts in
    words: the photo's eight numbers, within ±1 where the fit's photos have been, and its content, within 1."""

    mean: Float[Tensor, " channels"]
    directions: Float[Tensor, "channels q"]
    low: Float[Tensor, "8"]
    middle: Float[Tensor, "8"]
    high: Float[Tensor, "8"]
    units: Float[Tensor, "2 2"]  # of content and photo: their median and 98 % point
    limit: Float[Tensor, ""]

    def __call__(
        self, content: Float[Tensor, "image channels"], numbers: Float[Tensor, "image 8"]
    ) -> tuple[Float[Tensor, " image"], Float[Tensor, "image 9"]]:
        outside = self.outside(numbers)
        looks = torch.stack([self.off_plane(content), outside.abs().amax(dim=1)], dim=1)
        looks = in_units(looks, self.units) / self.limit
        nothing = numbers[:, FLAT] > 0.999  # 1, as far as another runtime's mean is exact
        outside = torch.where(nothing[:, None] & (torch.arange(len(NUMBERS)) == FLAT), NOTHING, outside)
        return torch.where(nothing, NOTHING, looks.amax(dim=1)), torch.cat([outside, looks[:, :1]], dim=1)

    def off_plane(self, content: Float[Tensor, "image channels"]) -> Float[Tensor, " image"]:
        """Log squared distance from the plane."""
        off = content - self.mean
        return (off.square().sum(dim=1) - (off @ self.directions).square().sum(dim=1)).clamp(min=1e-9).log()

    def outside(self, numbers: Float[Tensor, "image 8"]) -> Float[Tensor, "image 8"]:
        """±1 at the edges of what normals × acquisitions span."""
        off = numbers - self.middle
        return torch.where(off > 0, off / (self.high - self.middle), off / (self.middle - self.low))

    @classmethod
    def fit(
        cls,
        content: Float[Tensor, "view channels"],
        numbers: Float[Tensor, "view 8"],
        folds: Int[Tensor, " view"],
    ) -> tuple[Judgeable, Float[Tensor, " view"]]:
        """From normals × acquisitions, and how strange each is; units and limit from views that the plane and the spans
        were not made of."""
        looks = torch.empty(len(content), 2)
        for fold in folds.unique():
            out = folds == fold
            other = cls._of(content[~out], numbers[~out])
            looks[out] = torch.stack(
                [other.off_plane(content[out]), other.outside(numbers[out]).abs().amax(dim=1)], dim=1
            )
        wide = looks.double()
        middle, edge = wide.quantile(0.5, dim=0), wide.quantile(UNIT, dim=0)
        units = torch.stack([middle, torch.maximum(edge, middle + 1e-6)], dim=1)
        strange = in_units(wide, units).amax(dim=1)
        limit = limit_of(strange)
        whole = cls._of(content, numbers)
        found = cls(whole.mean, whole.directions, whole.low, whole.middle, whole.high, units.float(), limit.float())
        return found, (strange / limit).float()

    @classmethod
    def _of(cls, content: Tensor, numbers: Tensor) -> Judgeable:
        """Plane and spans of all that is given, without units."""
        mean = content.double().mean(dim=0)
        _, _, directions = torch.linalg.svd(content.double() - mean, full_matrices=False)
        low, middle, high = numbers.double().quantile(torch.tensor([SPAN[0], 0.5, SPAN[1]]).double(), dim=0)
        least = torch.tensor(LEAST, dtype=torch.float64)
        count = min(COMPONENTS, len(content) // PER_COMPONENT, content.shape[1] // 4)  # most of it stays off the plane
        return cls(
            mean=mean.float(),
            directions=directions[:count].T.float().contiguous(),
            low=torch.minimum(low, middle - least).float(),
            middle=middle.float(),
            high=torch.maximum(high, middle + least).float(),
            units=torch.tensor([[0.0, 1.0], [0.0, 1.0]]),
            limit=torch.tensor(1.0),
        )


def limit_of(strangeness: Float[Tensor, " view"]) -> Float[Tensor, ""]:
    """Above which views are not judged, at the stated rate."""
    return strangeness.quantile(1 - RATE, interpolation="higher").clamp(min=1e-6)


def in_units(looks: Float[Tensor, "view 2"], units: Float[Tensor, "2 2"]) -> Float[Tensor, "view 2"]:
    """Each 0 at its median and 1 at its 98 % point."""
    return (looks - units[:, 0]) / (units[:, 1] - units[:, 0])
