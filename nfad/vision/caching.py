"""A teacher that remembers: many fits over the same images share one teacher pass."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from nfad.vision.teacher import Teacher

CAPACITY = 6 * 2**30  # bytes of tokens that a teacher remembers


class Remembering:
    """The tokens of the teacher it wraps (rounded to fp16, as a fit's own store does), by the content of each view.

    What does not fit into `capacity` bytes is computed anew each time.
    """

    def __init__(self, teacher: Teacher, capacity: int = CAPACITY) -> None:
        self._teacher = teacher
        self.identity, self.channels, self.grid = teacher.identity, teacher.channels, teacher.grid
        self.device, self.region = teacher.device, teacher.region
        self._tokens: dict[bytes, list[Tensor]] = {}
        self._priors: dict[bytes, Tensor] = {}  # of some of them
        self._left = capacity

    def tokens(self, images: Tensor) -> list[Tensor]:
        keys = _keys(images)
        found = {key: self._tokens[key] for key in keys if key in self._tokens}
        missing = [i for i, key in enumerate(keys) if key not in found]
        if missing:
            found |= self._kept([keys[i] for i in missing], self._teacher.tokens(images[missing]))
        return _stacked([found[key] for key in keys])

    def tokens_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        keys = _keys(images)
        priors = {key: self._priors[key] for key in keys if key in self._priors}
        found = {key: self._tokens[key] for key in priors}
        missing = [i for i, key in enumerate(keys) if key not in priors]
        if missing:
            tokens, prior = self._teacher.tokens_and_prior(images[missing])
            new = dict(zip([keys[i] for i in missing], prior, strict=True))
            found |= self._kept([keys[i] for i in missing], tokens)
            priors |= new
            self._priors |= {key: each for key, each in new.items() if key in self._tokens}
        return _stacked([found[key] for key in keys]), torch.stack([priors[key] for key in keys])

    def _kept(self, keys: list[bytes], tokens: list[Tensor]) -> dict[bytes, list[Tensor]]:
        """The tokens image by image, remembered as far as there is room."""
        found = {key: [block[place].half() for block in tokens] for place, key in enumerate(keys)}
        for key, blocks in found.items():
            size = sum(block.nbytes for block in blocks)
            if key in self._tokens or size <= self._left:
                self._left -= 0 if key in self._tokens else size
                self._tokens[key] = blocks
        return found


def _keys(images: Tensor) -> list[bytes]:
    return [hashlib.blake2b(image.numpy().tobytes(), digest_size=16).digest() for image in images]


def _stacked(images: list[list[Tensor]]) -> list[Tensor]:
    return [torch.stack(block).float() for block in zip(*images, strict=True)]
