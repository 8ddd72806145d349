"""The linear reference: a token's projection onto the principal subspace of normal tokens of its block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from nfad.operator import Moments


@dataclass(frozen=True)
class Linear:
    """expected(t) = μ + U Uᵀ(t − μ): closed form, one streaming pass, constant size."""

    mean: Float[Tensor, " channel"]
    components: Float[Tensor, "channel q"]

    @classmethod
    def fit(cls, normal: Moments, variance: float, removed: Float[Tensor, "channel k"] | None = None) -> Linear:
        """From the moments of raw normal tokens; with `removed` as if fitted to tokens projected off those columns.

        Moments of Πt are Π(moments of t)Π, so that every filtered reference comes from the same single pass.
        """
        mean, covariance = normal.mean, normal.covariance
        if removed is not None:
            project = torch.eye(len(mean), dtype=torch.float64) - removed.double() @ removed.double().T
            mean, covariance = project @ mean, project @ covariance @ project
        values, vectors = torch.linalg.eigh(covariance)
        values, vectors = values.flip(0), vectors.flip(1)
        floor = len(mean) * torch.finfo(torch.float64).eps * normal.second.trace()
        values = torch.where(values > floor, values, 0)  # rounding is not variance
        held = values.cumsum(0) / values.sum().clamp(min=torch.finfo(torch.float64).tiny)
        count = min(int((held < variance).sum()) + 1, int((values > 0).sum()))
        return cls(mean.float(), vectors[:, :count].float().contiguous())

    def __call__(self, tokens: Float[Tensor, "image token channel"]) -> Float[Tensor, "image token channel"]:
        return self.mean + ((tokens - self.mean) @ self.components) @ self.components.T
