"""Accumulate, then freeze: first and second moments of tokens, streamed in float64 (Eq. 5 without its scale)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """What one pass over tokens leaves behind; its size depends on the channels only."""

    tokens: int
    images: int
    mean: Float[Tensor, " channel"]
    second: Float[Tensor, "channel channel"]  # E[t tᵀ], uncentred
    image_second: Float[Tensor, "channel channel"]  # E over images of m mᵀ, m the image's mean token

    def pooled(self, other: Moments) -> Moments:
        """As if both had been one pass."""
        of_tokens, of_images = other.tokens / (self.tokens + other.tokens), other.images / (self.images + other.images)
        return Moments(
            tokens=self.tokens + other.tokens,
            images=self.images + other.images,
            mean=torch.lerp(self.mean, other.mean, of_tokens),
            second=torch.lerp(self.second, other.second, of_tokens),
            image_second=torch.lerp(self.image_second, other.image_second, of_images),
        )

    def weighing(self, weight: float) -> Moments:
        """The same, as if so many times as many tokens and images had been seen."""
        return replace(self, tokens=max(round(weight * self.tokens), 1), images=max(round(weight * self.images), 1))

    @property
    def covariance(self) -> Float[Tensor, "channel channel"]:
        """Var over images and tokens."""
        return self.second - torch.outer(self.mean, self.mean)

    @property
    def between(self) -> Float[Tensor, "channel channel"]:
        """Var over images of the image's mean token."""
        return self.image_second - torch.outer(self.mean, self.mean)

    @property
    def within(self) -> Float[Tensor, "channel channel"]:
        """Scatter of tokens about their own image's mean."""
        return self.second - self.image_second


class MomentFitter:
    """`update` with batches of any size in any order, then `freeze`."""

    def __init__(self) -> None:
        self._tokens = self._images = 0
        self._sum: Tensor | None = None

    def update(self, tokens: Float[Tensor, "image token channel"]) -> None:
        """Every image must bring the same number of tokens, or the image means would weigh differently."""
        images, count, channels = tokens.shape
        flat = tokens.reshape(-1, channels).double()
        means = tokens.double().mean(dim=1)
        if self._sum is None:
            self._sum = flat.new_zeros(channels)
            self._second = flat.new_zeros(channels, channels)
            self._image_second = flat.new_zeros(channels, channels)
        self._tokens += images * count
        self._images += images
        self._sum += flat.sum(dim=0)
        self._second.addmm_(flat.T, flat)
        self._image_second.addmm_(means.T, means)

    def freeze(self) -> Moments:
        if self._sum is None:
            raise ValueError("moments need at least one token; update() was never called")
        return Moments(
            tokens=self._tokens,
            images=self._images,
            mean=self._sum / self._tokens,
            second=self._second / self._tokens,
            image_second=self._image_second / self._images,
        )


def second_moment(displacements: Float[Tensor, "n channel"]) -> Float[Tensor, "channel channel"]:
    """Eq. 5: the mean is left in, for it is itself caused by the intervention."""
    wide = displacements.double()
    return wide.T @ wide / max(len(wide), 1)
