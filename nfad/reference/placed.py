"""The placed reference: how far a token is from the mean token of its place, in the spread that normals have there.

Its covariance is taken over normals × acquisitions, so that a direction counts the less the more acquisition moves it:
a soft filter beside the projection's hard one. It sees what a projection off V may lose, above all parts that are
missing or moved. On a part that lies anywhere the places' means are alike, and it is one Mahalanobis distance for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

FLOOR = 0.01  # of the mean variance: what is added to each, so that no direction without any counts for everything


@dataclass(frozen=True)
class Placed:
    """Of one block: Σ_w^−½ for all places, Σ_w the covariance about the places' means; and those means, whitened."""

    white: Float[Tensor, "channel channel"]
    means: Float[Tensor, "token channel"]

    @classmethod
    def fit(cls, second: Float[Tensor, "channel channel"], means: Float[Tensor, "token channel"]) -> Placed:
        """From E[t tᵀ] over all tokens and E[t] of each place: closed form, and both are additive over images."""
        within = second - means.T @ means / len(means)
        values, vectors = torch.linalg.eigh(within)
        values = values.clamp(min=0)
        # Where normals have no spread at all, what rounding does to a token counts 1.
        floor = (FLOOR * values.mean()).clamp(min=torch.finfo(torch.float32).eps ** 2)
        white = vectors / (values + floor).sqrt()
        # As a file keeps them: the same numbers in another order would give products that differ in the last bit.
        return cls(white.float().contiguous(), (means @ white).float().contiguous())

    def __call__(self, tokens: Float[Tensor, "image token channel"]) -> Float[Tensor, "image token"]:
        """Mean square of the whitened deviation: about 1 for a normal."""
        return (tokens @ self.white - self.means).square().mean(dim=-1)
