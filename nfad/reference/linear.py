"""The linear reference: a token's projection onto the principal subspace of normal tokens of its block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from nfad.operator import Moments
from nfad.operator.readout import Coefficients, inverse_norm, stable_cosine


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
        ‖Πt‖² = ‖t‖² − ‖Vᵀt‖², and ⟨Πt, s⟩ = ⟨t, s⟩.
        """
        count, k = self.components.shape[1], removed.shape[1]
        products = tokens @ torch.cat([*self._directions, removed], dim=1)
        along, with_rest, inside = products.split([count, 1, k], dim=-1)
        dot, square = self._expected(along, with_rest)
        return 1 - stable_cosine(dot, tokens.square().sum(dim=-1) - inside.square().sum(dim=-1), square)

    @property
    def _directions(self) -> tuple[Float[Tensor, "channel q"], Float[Tensor, "channel 1"]]:
        """U, and m = μ − UUᵀμ: expected(t) = m + UUᵀt, a sum of two orthogonal parts."""
        return self.components, (self.mean - self.components @ (self.components.T @ self.mean))[:, None]

    def _expected(self, along: Tensor, with_rest: Tensor) -> tuple[Tensor, Tensor]:
        """⟨t,s⟩ = ⟨t,m⟩ + ‖Uᵀt‖² and ‖s‖² = ‖m‖² + ‖Uᵀt‖² of the expected s, from Uᵀt and ⟨t,m⟩."""
        energy = along.square().sum(dim=-1)
        return with_rest[..., 0] + energy, self._directions[1].square().sum() + energy

    def __call__(self, tokens: Float[Tensor, "image token channel"]) -> Float[Tensor, "image token channel"]:
        return self.mean + ((tokens - self.mean) @ self.components) @ self.components.T


def compare_both(
    raw: Linear,
    filtered: Linear | None,
    tokens: Float[Tensor, "image token channel"],
    basis: Float[Tensor, "channel k"],
) -> tuple[Coefficients, Float[Tensor, "image token"] | None]:
    """What every read-out over `raw` needs, and `filtered.compare`, from one product with [V, U, m, U', m']."""
    both = [raw] if filtered is None else [raw, filtered]
    widths = [basis.shape[1]] + [width for reference in both for width in (reference.components.shape[1], 1)]
    stacked = torch.cat([basis, *(columns for reference in both for columns in reference._directions)], dim=1)
    inside, along, with_rest, *others = (tokens @ stacked).split(widths, dim=-1)
    dot, square = raw._expected(along, with_rest)
    token_square = tokens.square().sum(dim=-1)
    scale_t, scale_s = inverse_norm(token_square), inverse_norm(square)
    components, rest = raw._directions
    expected = along @ (components.T @ basis) + rest.T @ basis  # Vᵀs
    found = Coefficients(dot * scale_t * scale_s, inside * scale_t[..., None], expected * scale_s[..., None])
    if filtered is None:
        return found, None
    dot, square = filtered._expected(*others)
    return found, 1 - stable_cosine(dot, token_square - inside.square().sum(dim=-1), square)
