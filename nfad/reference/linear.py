"""The linear reference: a token's projection onto the principal subspace of normal tokens of its block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from nfad.operator import Moments
from nfad.operator.readout import stable_cosine


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

    def compare(
        self, tokens: Float[Tensor, "image token channel"], removed: Float[Tensor, "channel k"]
    ) -> Float[Tensor, "image token"]:
        """1 − cos of raw tokens off the removed columns with what is expected of them, forming neither.

        With Πt the filtered token and a reference fitted off the same columns (μ and U are then orthogonal to them):
        ‖Πt‖² = ‖t‖² − ‖Vᵀt‖², ⟨Πt, s⟩ = ⟨t,μ⟩ + ⟨u, Uᵀt⟩, ‖s‖² = ‖μ‖² + 2⟨u, Uᵀμ⟩ + ‖u‖², u = Uᵀt − Uᵀμ.
        One product of the tokens with [U, V, μ] gives all of it.
        """
        count, k = self.components.shape[1], removed.shape[1]
        products = tokens @ torch.cat([self.components, removed, self.mean[:, None]], dim=1)
        along, inside, with_mean = products.split([count, k, 1], dim=-1)
        offset = self.components.T @ self.mean
        coordinates = along - offset
        token_square = tokens.square().sum(dim=-1) - inside.square().sum(dim=-1)
        dot = with_mean[..., 0] + (coordinates * along).sum(dim=-1)
        square = self.mean.square().sum() + 2 * coordinates @ offset + coordinates.square().sum(dim=-1)
        return 1 - stable_cosine(dot, token_square, square)

    def __call__(self, tokens: Float[Tensor, "image token channel"]) -> Float[Tensor, "image token channel"]:
        return self.mean + ((tokens - self.mean) @ self.components) @ self.components.T
