"""Three read-outs from one pass, in closed form: no projected feature is ever formed.

With unit tokens t, s and coefficients a = Vᵀt, b = Vᵀs:
    ⟨Πt, Πs⟩ = ⟨t,s⟩ − ⟨a,b⟩             ‖Πt‖² = 1 − ‖a‖²
    ⟨Aᵞt, Aᵞs⟩ = ⟨t,s⟩ − (2γ−γ²)⟨a_g,b_g⟩,  likewise the norms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nfad.operator.gate import gate, magnitude, participation_ratio

EPSILON = 1e-8


@dataclass(frozen=True)
class ReadOut:
    """Token maps are means over blocks of 1 − cos of the transformed features (Eq. 6)."""

    control: Float[Tensor, "image token"]
    detection: Float[Tensor, "image token"]
    localization: Float[Tensor, "image token"]
    participation: Float[Tensor, " image"]
    gate: Float[Tensor, " image"]
    nuisance_fraction: Float[Tensor, " image"]
    nuisance_by_family: dict[str, Float[Tensor, " image"]] = field(default_factory=dict)


def stable_cosine(dot: Tensor, square_a: Tensor, square_b: Tensor) -> Tensor:
    """cos_ε from an inner product and two squared norms."""
    norm_a = square_a.clamp(min=EPSILON**2).sqrt()
    norm_b = square_b.clamp(min=EPSILON**2).sqrt()
    return (dot / (norm_a * norm_b)).clamp(-1, 1)  # a token wholly inside V leaves only rounding errors to divide


def discrepancy(
    teacher: Float[Tensor, "image token channel"], reference: Float[Tensor, "image token channel"]
) -> Float[Tensor, "image token"]:
    """1 − cos_ε of one block's tokens, as they are."""
    return 1 - stable_cosine(
        (teacher * reference).sum(dim=-1), teacher.square().sum(dim=-1), reference.square().sum(dim=-1)
    )


def read_out(
    teacher: Sequence[Float[Tensor, "image token _"]],
    reference: Sequence[Float[Tensor, "image token _"]],
    bases: Sequence[Float[Tensor, "_ _"]],
    keep: Sequence[Bool[Tensor, " _"]],
    tau: float | Tensor,
    families: Sequence[Sequence[str]] | None = None,
    gate_by: str = "participation",
) -> ReadOut:
    """Control, detection and gated localization maps of a batch, with the share of the residual that was nuisance.

    `families` names the columns' families (one sequence a block); `gate_by` is "participation" (the paper's) or
    "magnitude" (its supplement's alternative; tau must then be the normals' median of that).
    """
    dots, inner, pairs = [], [], []
    residual_energy: Tensor | float = 0.0
    family_energy: dict[str, Tensor] = {}
    nuisance_energy: Tensor | float = 0.0
    for index, (t, s, basis) in enumerate(zip(teacher, reference, bases, strict=True)):
        scale_t = t.square().sum(dim=-1).clamp(min=EPSILON**2).rsqrt()
        scale_s = s.square().sum(dim=-1).clamp(min=EPSILON**2).rsqrt()
        dot = (t * s).sum(dim=-1) * scale_t * scale_s
        a = (t @ basis) * scale_t[..., None]
        b = (s @ basis) * scale_s[..., None]
        dots.append(dot)
        inner.append((a, b))
        pairs.append(((a * b).sum(dim=-1), a.square().sum(dim=-1), b.square().sum(dim=-1)))
        column_energy = (a - b).square().sum(dim=1)  # (image, k)
        nuisance_energy = nuisance_energy + column_energy.sum(dim=-1)
        residual_energy = residual_energy + (2 - 2 * dot).sum(dim=1)
        if families is not None:
            for family in dict.fromkeys(families[index]):
                chosen = torch.tensor([name == family for name in families[index]])
                energy = column_energy[:, chosen].sum(dim=-1)
                family_energy[family] = family_energy.get(family, 0.0) + energy
    control = torch.stack([1 - dot for dot in dots]).mean(dim=0)
    detection = torch.stack(
        [1 - stable_cosine(dot - ab, 1 - aa, 1 - bb) for dot, (ab, aa, bb) in zip(dots, pairs, strict=True)]
    ).mean(dim=0)
    spread = participation_ratio(control)
    strength = gate(magnitude(control) if gate_by == "magnitude" else spread, tau)
    weight = (2 * strength - strength.square())[:, None]
    localized = []
    for dot, (a, b), kept in zip(dots, inner, keep, strict=True):
        a_g, b_g = a[..., kept], b[..., kept]
        localized.append(
            1
            - stable_cosine(
                dot - weight * (a_g * b_g).sum(dim=-1),
                1 - weight * a_g.square().sum(dim=-1),
                1 - weight * b_g.square().sum(dim=-1),
            )
        )
    whole = torch.as_tensor(residual_energy).clamp(min=EPSILON)
    return ReadOut(
        control=control,
        detection=detection,
        localization=torch.stack(localized).mean(dim=0),
        participation=spread,
        gate=strength,
        nuisance_fraction=(nuisance_energy / whole).clamp(0, 1),
        nuisance_by_family={family: (energy / whole).clamp(0, 1) for family, energy in family_energy.items()},
    )
