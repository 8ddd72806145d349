"""Teacher tokens of the fit's images, computed once: epochs and calibration passes read them back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nfad.fitting.views import AcquiredViews, ViewCache
from nfad.system.ahead import ahead
from nfad.system.progress import Progress
from nfad.vision.developing import Developing
from nfad.vision.photo import NUMBERS, photo_numbers
from nfad.vision.pose import shown_by
from nfad.vision.region import looked_at
from nfad.vision.teacher import Teacher


class TokenCache:
    """Tokens at fp16 and the prior at fp32, memory-mapped on disk; what does not fit is computed again when asked for,
    as is what `room` bytes do not hold.

    fp16 costs a cosine about 1e-7: a token's rounding errors are relative and independent. Without `with_prior` the
    prior is left at 0, and a ViT's last blocks are not run.
    """

    def __init__(
        self,
        teacher: Teacher,
        views: ViewCache | AcquiredViews,
        batch: int,
        directory: Path,
        with_prior: bool = True,
        room: int | None = None,
    ) -> None:
        self.views, self._with_prior = views, with_prior
        self.numbers = torch.zeros(len(views), len(NUMBERS))  # of every photo, once the cache is filled
        self._shown: Tensor | None = None  # how much each token counts, where that is not the same for all
        self._undone: Tensor | None = None  # of every photo, where photos are developed
        self._teacher, self._batch = teacher, batch
        tokens = teacher.grid**2
        per_image = 2 * tokens * sum(teacher.channels) + 4 * tokens
        # Half of what is free, so that a long fit never fills a disk that others need.
        free = shutil.disk_usage(directory).free // 2
        room = free if room is None else min(free, room)
        self._cached = min(len(views), room // per_image)
        self._blocks = [
            np.lib.format.open_memmap(
                directory / f"block{index}.npy", mode="w+", dtype=np.float16, shape=(self._cached, tokens, channels)
            )
            for index, channels in enumerate(teacher.channels)
        ]
        self._priors = np.lib.format.open_memmap(
            directory / "prior.npy", mode="w+", dtype=np.float32, shape=(self._cached, tokens)
        )

    def fill(
        self, progress: Progress | None = None, task: str = "looking at images", order: Tensor | None = None
    ) -> Iterator[tuple[Tensor, list[Tensor], Tensor]]:
        """The one teacher pass over all images, in their order or another: (indices, tokens at full precision,
        prior)."""
        batches, done = (torch.arange(len(self.views)) if order is None else order).split(self._batch), 0
        for indices, made in zip(batches, ahead(self.views.placed, batches, 1), strict=True):  # as the network works
            views, boxes = made.result()
            views, teacher = looked_at(self._teacher.region, views), self._teacher
            self.numbers[indices] = photo_numbers(views)
            if isinstance(teacher, Developing):  # once for both
                self._undone = torch.zeros(len(self.views), 2) if self._undone is None else self._undone
                views, self._undone[indices] = teacher.development(views)
                teacher = teacher.teacher
            tokens, prior = look_at(teacher, views, self._with_prior)
            shown = shown_by(self.views.pose, boxes, self._teacher.grid)
            if shown is not None:
                self._shown = torch.ones(len(self.views), shown.shape[1]) if self._shown is None else self._shown
                self._shown[indices] = shown
            here = indices < self._cached
            kept = indices[here].numpy()
            for store, block in zip(self._blocks, tokens, strict=True):
                store[kept] = block[here].half().numpy()
            self._priors[kept] = prior[here].numpy()
            done += len(indices)
            if progress:
                progress(task, done, len(self.views))
            yield indices, tokens, prior

    def read(self, indices: Int[Tensor, " image"]) -> tuple[list[Tensor], Tensor]:
        """Tokens and prior of some images, from the cache where they are in it."""
        if len(indices) == 0 or int(indices.max()) < self._cached:
            chosen = indices.numpy()
            blocks = [torch.from_numpy(store[chosen]).float() for store in self._blocks]
            return blocks, torch.from_numpy(self._priors[chosen])
        return look_at(self._teacher, self.views(indices), self._with_prior)

    def undone(self, indices: Int[Tensor, " image"]) -> Float[Tensor, "image 2"] | None:
        """What developing undid."""
        return None if self._undone is None else self._undone[indices]

    def shown(self, indices: Int[Tensor, " image"]) -> Float[Tensor, "image token"] | None:
        """How much each token counts; None where all do."""
        return None if self._shown is None else self._shown[indices]


def look_at(
    teacher: Teacher, views: Float[Tensor, "view 3 size size"], with_prior: bool
) -> tuple[list[Tensor], Float[Tensor, "view token"]]:
    """Tokens and prior; the latter is 0 where nobody asks for it."""
    if with_prior:
        return teacher.tokens_and_prior(views)
    return teacher.tokens(views), torch.zeros(len(views), teacher.grid**2)
