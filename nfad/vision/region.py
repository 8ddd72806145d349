"""Where to look: what lies under a mask (a belt, a clamp, a time stamp) must not move a verdict, whatever it is."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.vision.images import ImageLike, load_part, to_view

LEAST = 0.05  # share of the view that must be left to look at
ALIKE = 0.02  # by which the mask's and the photos' ratio of sides may differ


@dataclass(frozen=True)
class Region:
    """Calling it paints what is not looked at in the mean colour of what is: the same in every photo but for its light,
    so that neither a network nor a number of the photo can tell what is there."""

    seen: Bool[Tensor, "size size"]

    @classmethod
    def read(cls, mask: ImageLike, photo: ImageLike, size: int, resize: int | None) -> Region:
        """From an image of the photos' shape, bright where to look."""
        drawn, (height, width) = load_part(mask), load_part(photo).shape[:2]
        if abs(drawn.shape[1] * height / (drawn.shape[0] * width) - 1) > ALIKE:
            raise NfadError(
                f"the mask has {drawn.shape[1]}×{drawn.shape[0]} pixels and a photo {width}×{height}: their sides must "
                "have the same ratio; draw the mask on one of the photos"
            )
        region = cls(to_view(drawn, size, resize)[0].mean(dim=0) > 0.5)
        if region.share < LEAST:
            raise NfadError(
                f"the mask leaves {region.share:.1%} of the photo to look at, and {LEAST:.0%} are the least; it must "
                "be white where to look and black where not"
            )
        return region

    @property
    def share(self) -> float:
        return float(self.seen.float().mean())

    def __call__(self, views: Float[Tensor, "image 3 side side"]) -> Float[Tensor, "image 3 side side"]:
        seen = self.at(views.shape[-1]).to(views)
        mean = (views * seen).sum(dim=(2, 3), keepdim=True) / seen.sum()
        return views * seen + mean * (1 - seen)

    def at(self, side: int) -> Bool[Tensor, "side side"]:
        """For views of another size."""
        if side == self.seen.shape[0]:
            return self.seen
        return F.interpolate(self.seen[None, None].float(), (side, side), mode="nearest")[0, 0] > 0.5


def looked_at(region: Region | None, views: Float[Tensor, "image 3 side side"]) -> Float[Tensor, "image 3 side side"]:
    """The views, or what a region leaves of them."""
    return views if region is None else region(views)
