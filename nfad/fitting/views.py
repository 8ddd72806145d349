"""The fit's photos as the model sees them: each file is decoded once, and its view read back as often as needed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nfad.config import FEWEST
from nfad.errors import NfadError
from nfad.system.ahead import ahead
from nfad.system.progress import Progress, Skip
from nfad.vision.acquisitions import acquired
from nfad.vision.defects import ALL_KINDS, with_defect
from nfad.vision.flaws import FLAWS, flawed
from nfad.vision.images import ImageLike, load_part, to_view
from nfad.vision.nudging import nudged
from nfad.vision.pose import Boxes, Pose
from nfad.vision.region import Region

DRAWS, VISIBLE = 20, 0.5  # of a defect, until this share of it lies where a model looks
NUDGE, FLAW = 1, 2  # the purposes of what moves the camera, and of flaws; of light it has none
STRETCH = 1.1  # of a part that is still the same part
STEPS = 65535  # a view's values are kept in 16 bits: exact where a photo was not resized, else within 8e-6


class ViewCache:
    """Views on disk, memory-mapped; what there is no room for is decoded again when it is asked for."""

    def __init__(
        self, images: Sequence[ImageLike], size: int, resize: int | None, directory: Path, room: int | None = None
    ) -> None:
        self.images = list(images)
        self.ratios: list[float] = []  # of those that were read
        self.size, self._resize = size, resize
        self.pose: Pose | None = None  # by which parts are turned to lie alike
        free = shutil.disk_usage(directory).free // 4  # the tokens need as much, and others some too
        room = free if room is None else min(free, room)
        self._cached = min(len(self.images), room // (6 * size * size))
        self._kept = np.lib.format.open_memmap(
            directory / "views.npy", mode="w+", dtype=np.uint16, shape=(self._cached, 3, size, size)
        )

    def __len__(self) -> int:
        return len(self.images)

    @classmethod
    def read(
        cls,
        images: Sequence[ImageLike],
        size: int,
        resize: int | None,
        directory: Path,
        skip: Skip | None = None,
        progress: Progress | None = None,
        room: int | None = None,
    ) -> ViewCache:
        """Decodes every image before the long work begins: a bad one shows up now, not in an hour; a few at a time.

        `skip` is told of images that cannot be read, which are then left out; without it they raise.
        """
        cache = cls(images, size, resize, directory, room)
        good: list[ImageLike] = []
        begun = ahead(cache._decode, images, torch.get_num_threads())
        for index, (image, decoded) in enumerate(zip(images, begun, strict=True)):
            try:
                view, ratio = decoded.result()
                if len(good) < cache._cached:
                    cache._kept[len(good)] = (view * STEPS).round().numpy().astype(np.uint16)
                good.append(image)
                cache.ratios.append(ratio)
            except NfadError as error:
                if skip is None:
                    raise
                skip(image, str(error))
            if progress:
                progress("reading images", index + 1, len(images))
        check_enough(len(good))
        cache.images, cache._cached = good, min(cache._cached, len(good))
        return cache

    def __call__(self, indices: Int[Tensor, " image"]) -> Float[Tensor, "image 3 size size"]:
        """Some of the views as the model sees them, in [0, 1]."""
        return self.placed(indices)[0]

    def placed(self, indices: Int[Tensor, " image"]) -> tuple[Float[Tensor, "image 3 size size"], Boxes | None]:
        """And where each point of them was, if they were turned."""
        return self.turned(self.as_taken(indices))

    def turned(
        self, views: Float[Tensor, "image 3 size size"]
    ) -> tuple[Float[Tensor, "image 3 size size"], Boxes | None]:
        return (views, None) if self.pose is None else self.pose.turned(views)

    def sampled(
        self, photos: Float[Tensor, "image 3 size size"], like: Int[Tensor, " some"]
    ) -> Float[Tensor, "image 3 size size"]:
        """What a view shows of these photos where parts lie as in some of the fit's."""
        if self.pose is None:
            return photos
        return self.pose.sampled(photos, self.pose.found(self.as_taken(like[torch.arange(len(photos)) % len(like)])))

    def as_taken(self, indices: Int[Tensor, " image"]) -> Float[Tensor, "image 3 size size"]:
        if len(indices) == 0 or int(indices.max()) < self._cached:
            return torch.from_numpy(self._kept[indices.numpy()].astype(np.float32)) / STEPS
        return torch.stack([self._decode(self.images[int(index)])[0] for index in indices])

    def _decode(self, image: ImageLike) -> tuple[Float[Tensor, "3 size size"], float]:
        """The view, and width over height of what it shows."""
        view, geometry = to_view(load_part(image), self.size, self._resize)
        return view, geometry.ratio


def judged_ratios(ratios: Sequence[float]) -> tuple[float, float]:
    """Of width to height: those of the fit's photos, and a tenth or (where they vary) their own spread beyond. A photo
    of another shape would be stretched, and its part with it."""
    logs = np.log(ratios)
    beyond = max(np.log(STRETCH), float(logs.std()))
    return float(np.exp(logs.min() - beyond)), float(np.exp(logs.max() + beyond))


def check_enough(count: int) -> None:
    if count < FEWEST:
        raise NfadError(f"a fit needs at least {FEWEST} readable normal images that show something; got {count}")


class AcquiredViews:
    """Views of normals under random acquisitions; each follows from the seed and its number alone, and is made anew
    whenever it is asked for."""

    def __init__(
        self, views: ViewCache, images: Int[Tensor, " view"], seed: int, tile: int | None = None, nudges: bool = False
    ) -> None:
        """With a `tile` blur and small defects go with its side, not with the view's; `nudges` move the camera, too."""
        self._views, self.images, self._seed, self._tile, self._nudges = views, images, seed, tile, nudges

    def __len__(self) -> int:
        return len(self.images)

    @property
    def pose(self) -> Pose | None:
        return self._views.pose

    def __call__(self, indices: Int[Tensor, " view"]) -> Float[Tensor, "view 3 size size"]:
        return self.placed(indices)[0]

    def placed(self, indices: Int[Tensor, " view"]) -> tuple[Float[Tensor, "view 3 size size"], Boxes | None]:
        """And where each point of them was, if they were turned."""
        taken = self._views.as_taken(self.images[indices])
        lit = [
            self._acquired(self._nudged(view, int(index)), int(index))
            for view, index in zip(taken, indices, strict=True)
        ]
        return self._views.turned(torch.stack(lit))  # as every photo is: in its own light

    def _nudged(self, view: Float[Tensor, "3 size size"], index: int) -> Float[Tensor, "3 size size"]:
        """Every other one at random: what moves a photo blurs it a little, and takes off some of its noise, and most
        photos are not moved."""
        draw = seeded(self._seed, index, NUDGE)
        return nudged(view[None], draw)[0] if self._nudges and torch.rand(1, generator=draw) < 0.5 else view

    def _acquired(self, view: Float[Tensor, "3 size size"], index: int) -> Float[Tensor, "3 size size"]:
        return acquired(view, seeded(self._seed, index), self._tile)[0]


class DamagedViews(AcquiredViews):
    """The same with a synthetic defect drawn on the part first, where it is looked at; every other one in the light it
    was taken in."""

    def __init__(
        self,
        views: ViewCache,
        images: Int[Tensor, " view"],
        seed: int,
        region: Region | None = None,
        tile: int | None = None,
        nudges: bool = False,
    ) -> None:
        super().__init__(views, images, seed, tile, nudges)
        self._seen = None if region is None else region.seen.numpy()
        self.kinds = tuple(ALL_KINDS[(index // 2) % len(ALL_KINDS)] for index in range(len(images)))
        self.as_taken = torch.arange(len(images)) % 2 == 0

    def _acquired(self, view: Float[Tensor, "3 size size"], index: int) -> Float[Tensor, "3 size size"]:
        draw = np.random.default_rng([self._seed, index])
        damaged, where = with_defect(view, self.kinds[index], draw, self._tile)
        for _ in range(DRAWS - 1):
            if self._seen is None or self._seen[where].mean() >= VISIBLE:
                break
            damaged, where = with_defect(view, self.kinds[index], draw, self._tile)
        return damaged if self.as_taken[index] else super()._acquired(damaged, index)


class FlawedViews(AcquiredViews):
    """Views of normals with a flaw, each kind in turn, as taken else."""

    def _acquired(self, view: Float[Tensor, "3 size size"], index: int) -> Float[Tensor, "3 size size"]:
        return flawed(view, tuple(FLAWS)[index % len(FLAWS)], np.random.default_rng([self._seed, index, FLAW]))


def seeded(seed: int, index: int, *purpose: int) -> torch.Generator:
    """A generator of its own for each number, and for each purpose."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence([seed, index, *purpose]).generate_state(1)[0]))
