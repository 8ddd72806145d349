"""The nearest reference: the closest normal training token of the same block (the paper's student-free residual)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

ROOM = 256 * 2**20  # bytes of similarities at once


@dataclass(frozen=True)
class Nearest:
    """A capped bank of unit tokens and the training image each came from, on a device of its own."""

    bank: Float[Tensor, "entry channel"]
    owner: Int[Tensor, " entry"]

    @classmethod
    def filtered(cls, bank: Nearest, removed: Float[Tensor, "channel k"]) -> Nearest:
        """The same bank off the removed columns, unit again: projected once, not per query."""
        return cls(F.normalize(bank.bank - (bank.bank @ removed) @ removed.T, dim=-1), bank.owner)

    def to(self, device: torch.device) -> Nearest:
        return Nearest(self.bank.to(device), self.owner.to(device))

    def __call__(
        self, tokens: Float[Tensor, "image token channel"], exclude: Int[Tensor, " image"] | None = None
    ) -> Float[Tensor, "image token channel"]:
        """Nearest by cosine, which on unit tokens is nearest by L2.

        `exclude` gives each image's index among the training images: its own tokens are left out, or calibration
        would find distance zero. Tokens come from any device, and the nearest are given on it.
        """
        room = max(1, ROOM // (4 * len(self.bank)))  # tokens
        if len(tokens) == 1 and tokens.shape[1] > room:
            return torch.cat([self(some, exclude) for some in tokens.split(room, dim=1)], dim=1)
        some = max(1, room // tokens.shape[1])  # images
        if len(tokens) > some:
            excluded = [None] * len(tokens) if exclude is None else exclude.split(some)
            return torch.cat([self(*each) for each in zip(tokens.split(some), excluded, strict=False)])
        similarity = F.normalize(tokens.to(self.bank.device), dim=-1) @ self.bank.T
        if exclude is not None:
            exclude = exclude.to(self.owner.device)
            if (self.owner[:, None] == exclude[None]).all(dim=0).any():
                raise ValueError("one image owns the whole bank: leaving it out leaves nothing; raise the bank's cap")
            similarity = similarity.masked_fill(self.owner[None, None] == exclude[:, None, None], -torch.inf)
        return self.bank[similarity.argmax(dim=-1)].to(tokens.device)


def choose_entries(images: int, tokens: int, cap: int, seed: int) -> Int[Tensor, "entry 2"]:
    """Which (image, token) pairs enter the bank: seeded, the cap spread evenly over the images."""
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.stack([torch.randperm(tokens, generator=generator) for _ in range(images)])
    # Order all pairs by their rank within the image (ties shuffled), so that a cap takes as many from each.
    order = (ranks.flatten() + torch.rand(images * tokens, generator=generator)).argsort()[:cap].sort().values
    return torch.stack([order // tokens, order % tokens], dim=1)
