"""The per-image gate: how much of V_g a localization map may lose (Eqs. 10–11)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

EPSILON = 1e-12


def participation_ratio(discrepancy: Float[Tensor, "image token"]) -> Float[Tensor, " image"]:
    """φ: 1 when every token deviates alike, 1/P when a single one does; blind to scale."""
    energy = discrepancy.clamp(min=0)
    total, squares = energy.sum(dim=1), energy.square().sum(dim=1)
    return total.square() / (energy.shape[1] * squares.clamp(min=EPSILON))


def gate(participation: Float[Tensor, " image"], tau: float | Tensor) -> Float[Tensor, " image"]:
    """γ = min(1, φ/τ): full removal for responses at least as diffuse as the median normal's."""
    return (participation / tau).clamp(max=1.0)


def magnitude(discrepancy: Float[Tensor, "image token"]) -> Float[Tensor, " image"]:
    """For the supplement's magnitude-aware gate: γ = gate(magnitude, median magnitude of normals).

    The paper names this alternative without its formula; ours weighs φ by the mean discrepancy.
    """
    return participation_ratio(discrepancy) * discrepancy.clamp(min=0).mean(dim=1)
