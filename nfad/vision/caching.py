"""A teacher that remembers: many fits over the same images share one teacher pass."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from nfad.vision.teacher import Teacher

Seen = tuple[list[Tensor], Tensor | None]


class Remembering:
    """The tokens of the teacher it wraps (rounded to fp16, as a fit's own store does), by the content of each view.

    What does not fit into `capacity` bytes is computed anew each time.
    """

    def __init__(self, teacher: Teacher, capacity: int = 6 * 2**30) -> None:
        self._teacher = teacher
        self.identity, self.channels, self.grid = teacher.identity, teacher.channels, teacher.grid
        self._seen: dict[bytes, Seen] = {}
        self._left = capacity

    def tokens(self, images: Tensor) -> list[Tensor]:
        return self._look_up(images, False)[0]

    def tokens_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        tokens, priors = self._look_up(images, True)
        return tokens, torch.stack(priors)

    def _look_up(self, images: Tensor, with_prior: bool) -> tuple[list[Tensor], list[Tensor]]:
        keys = [hashlib.blake2b(image.numpy().tobytes(), digest_size=16).digest() for image in images]
        found = [self._seen.get(key) for key in keys]
        missing = [i for i, seen in enumerate(found) if seen is None or (with_prior and seen[1] is None)]
        if missing:
            run = images[torch.tensor(missing)]
            tokens, prior = self._teacher.tokens_and_prior(run) if with_prior else (self._teacher.tokens(run), None)
            for place, i in enumerate(missing):
                found[i] = ([block[place].half() for block in tokens], None if prior is None else prior[place])
                self._keep(keys[i], found[i])
        together = [torch.stack([seen[0][b] for seen in found]).float() for b in range(len(self.channels))]
        return together, [seen[1] for seen in found]

    def _keep(self, key: bytes, seen: Seen) -> None:
        size = sum(block.nbytes for block in seen[0])
        if key in self._seen or size <= self._left:
            self._left -= 0 if key in self._seen else size
            self._seen[key] = seen
