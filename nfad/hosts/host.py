"""What another detector must offer to wear the filter: its features, and a score that lets them be changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nfad.errors import NfadError
from nfad.system.progress import Progress

Project = Callable[[Sequence[Tensor]], list[Tensor]]


@dataclass(frozen=True)
class HostScores:
    """A host's verdict on a batch."""

    image: Tensor  # (image,)
    maps: Tensor  # (image, size, size)


class FeatureSource(Protocol):
    """All that a filter needs to be fitted.

    A source that can tell the part from its background also has `features_and_prior(images)`, which gives the
    features with a prior (image, token) on a square grid, foreground at 0.5 and above, or None, from the same pass.
    """

    @property
    def unit(self) -> bool:
        """Whether these features are l2-normalised along channels before they are compared."""
        ...

    def features(self, images: Tensor) -> list[Tensor]:
        """One map a layer, (image, channel, y, x), from images (image, 3, h, w) in [0, 1]."""
        ...


class Host(FeatureSource, Protocol):
    """A detector that compares feature maps, with a bank, a reconstruction or a boundary it has learned.

    It works on the device of the images that it is given; a backbone given to it must be there, too.
    """

    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        """Its verdict; whatever it compares, a map a layer as in `features`, goes through `project` just before."""
        ...

    def prepare(self, project: Project) -> Host:
        """This host with the normal features it holds (a bank) put through `project` once; itself if it holds none."""
        ...


def features_and_prior(source: FeatureSource, images: Tensor) -> tuple[list[Tensor], Tensor | None]:
    """Features and, where the source offers one, the foreground prior, in one pass."""
    together = getattr(source, "features_and_prior", None)
    return together(images) if together else (source.features(images), None)


def score_images(host: Host, images: Tensor, batch: int = 8) -> HostScores:
    """Any number of images, a batch at a time."""
    parts = [host.score(part) for part in checked_images(images).split(batch)]
    return HostScores(torch.cat([part.image for part in parts]), torch.cat([part.maps for part in parts]))


def in_batches(
    images: Tensor, batch: int, progress: Progress | None, task: str = "collecting patches"
) -> Iterator[Tensor]:
    """The normal images, a batch at a time; each is told of when it is done with."""
    done = 0
    for part in images.split(batch):
        yield part
        done += len(part)
        if progress:
            progress(task, done, len(images))


def checked_images(images: Tensor) -> Tensor:
    """Images as every host takes them, or one sentence on what is wrong."""
    if not isinstance(images, Tensor) or images.ndim != 4 or images.shape[1] != 3 or len(images) == 0:
        found = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise NfadError(f"images must be a tensor (image, 3, height, width) with at least one image; got {found}")
    if not images.is_floating_point():
        raise NfadError(f"images must be floats in [0, 1]; got {images.dtype}: divide bytes by 255")
    low, high = float(images.min()), float(images.max())
    if not (low >= 0 and high <= 1):  # put so that NaN is refused too
        raise NfadError(
            f"images must lie in [0, 1], before any normalisation; got {low:.3g} to {high:.3g}: hosts normalise inside"
        )
    return images
