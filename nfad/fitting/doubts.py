"""What a fit finds odd about its own photos: told file by file, so that somebody can look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from nfad.fitting.views import ViewCache
from nfad.vision.images import ImageLike
from nfad.vision.region import Region, looked_at

THUMB = 32  # side of what copies are told by
COPY = 0.5 / 255  # mean difference of two thumbnails below which one photo is a copy of the other
BLANK = 2 / 255  # spread of the grey levels below which there is nothing to see
AT_ONCE = 2**22  # pixels of views
FAR, FURTHER = 4.0, 6.0  # robust standard deviations above the median, of the score and of the content


def doubts_of_views(
    thumbs: Float[Tensor, "image 3 side side"], images: Sequence[ImageLike]
) -> Iterator[tuple[int, str]]:
    """Copies and empty photos, before any long work: (place, why)."""
    empty, flat = is_empty(thumbs), thumbs.flatten(1)
    for place in range(len(thumbs)):
        if empty[place]:
            shade = _shade(float(flat[place].mean()))
            yield place, f"shows nothing: all of it is {shade}, and it is left out of the fit; remove it"
        elif place:
            gaps = (flat[:place] - flat[place]).abs().mean(dim=1)
            nearest = int(gaps.argmin())
            if gaps[nearest] < COPY:
                yield place, f"is a copy of {images[nearest]}; a copy counts twice and tells nothing: remove it"


def thumbnails(views: ViewCache, region: Region | None = None) -> Float[Tensor, "image 3 side side"]:
    parts = torch.arange(len(views)).split(max(1, AT_ONCE // views.size**2))
    return torch.cat([F.adaptive_avg_pool2d(looked_at(region, views(some)), THUMB) for some in parts])


def is_empty(thumbs: Float[Tensor, "image 3 side side"]) -> Bool[Tensor, " image"]:
    """Without anything to see. A fit leaves these out: a black photo among the good ones would let every one pass."""
    return thumbs.mean(dim=1).flatten(1).std(dim=1) < BLANK


def foreign(images: Int[Tensor, " image"], content: Float[Tensor, "image channels"]) -> Int[Tensor, " foreign"]:
    """The images that do not look like the others, which must not widen what a model judges."""
    strange = (content - content.median(dim=0).values).square().sum(dim=1).clamp(min=1e-12).log()
    return images[torch.tensor(_robust(strange)) > FURTHER]


def doubts_of_scores(
    images: Int[Tensor, " image"], log_scores: Float[Tensor, " image"], content: Float[Tensor, "image channels"]
) -> Iterator[tuple[int, str]]:
    """Photos that stand out, by models that have not seen them: (image, why)."""
    others = set(foreign(images, content).tolist())
    for image, score in zip(images.tolist(), _robust(log_scores), strict=True):
        if image in others:
            yield (
                image,
                "does not look like the other photos, whose like is not judged; if it is another part, remove it",
            )
        elif score > FAR:
            yield image, "stands out among the good parts; look whether it has a defect, and remove it if so"


def doubts_told(doubts: Sequence[tuple[int, str]], images: Sequence[ImageLike]) -> str:
    """Why a strict fit ends: every doubt on a line of its own."""
    names = [f"image {place}" if isinstance(images[place], np.ndarray) else str(images[place]) for place, _ in doubts]
    lines = [f"  {name} {why}" for name, (_, why) in zip(names, doubts, strict=True)]
    return "\n".join(["these photos may not belong, and a strict fit takes none of them; nothing was written:", *lines])


def _robust(values: Tensor) -> list[float]:
    """Each in robust standard deviations from the median."""
    off = values - values.median()
    return (off / (1.4826 * off.abs().median()).clamp(min=1e-9)).tolist()


def _shade(level: float) -> str:
    return "black" if level < 0.1 else "white" if level > 0.9 else "one grey"
