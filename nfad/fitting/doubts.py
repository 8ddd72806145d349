"""What a fit finds odd about its own photos: told file by file, so that somebody can look."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nfad.fitting.views import ViewCache

THUMB = 32  # side of what copies are told by
COPY = 0.5 / 255  # mean difference of two thumbnails below which one photo is a copy of the other
BLANK = 2 / 255  # spread of the grey levels below which there is nothing to see
FAR, FURTHER = 4.0, 6.0  # robust standard deviations above the median, of the score and of the content


def doubts_of_views(views: ViewCache, batch: int = 64) -> Iterator[tuple[int, str]]:
    """Copies and empty photos, before any long work: (place, why)."""
    thumbs = torch.cat([F.adaptive_avg_pool2d(views(some), THUMB) for some in torch.arange(len(views)).split(batch)])
    spread = thumbs.mean(dim=1).flatten(1).std(dim=1)
    flat = thumbs.flatten(1)
    for place in range(len(views)):
        if spread[place] < BLANK:
            yield place, f"shows nothing: all of it is {_shade(float(flat[place].mean()))}; remove it"
        elif place:
            gaps = (flat[:place] - flat[place]).abs().mean(dim=1)
            nearest = int(gaps.argmin())
            if gaps[nearest] < COPY:
                yield place, f"is a copy of {views.images[nearest]}; a copy counts twice and tells nothing: remove it"


def doubts_of_scores(
    images: Int[Tensor, " image"], log_scores: Float[Tensor, " image"], content: Float[Tensor, "image channels"]
) -> Iterator[tuple[int, str]]:
    """Photos that stand out, by models that have not seen them: (image, why)."""
    strange = (content - content.median(dim=0).values).square().sum(dim=1).clamp(min=1e-12).log()
    for image, score, far in zip(images.tolist(), _robust(log_scores), _robust(strange), strict=True):
        if far > FURTHER:
            yield image, "does not look like the other photos; if it is another part, remove it"
        elif score > FAR:
            yield image, "stands out among the good parts; look whether it has a defect, and remove it if so"


def _robust(values: Tensor) -> list[float]:
    """Each in robust standard deviations from the median."""
    off = values - values.median()
    return (off / (1.4826 * off.abs().median()).clamp(min=1e-9)).tolist()


def _shade(level: float) -> str:
    return "black" if level < 0.1 else "white" if level > 0.9 else "one grey"
