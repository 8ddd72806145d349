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
    localization: Float[Tensor, "image token"] | None  # None, as the gate, where no V_g is given
    participation: Float[Tensor, " image"]
    gate: Float[Tensor, " image"] | None
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


@dataclass(frozen=True)
class Coefficients:
    """One block's unit tokens t and s, as far as any read-out needs them: ⟨t,s⟩, a = Vᵀt and b = Vᵀs."""

    dot: Float[Tensor, "image token"]
    teacher: Float[Tensor, "image token k"]
    reference: Float[Tensor, "image token k"]


def coefficients(
    teacher: Float[Tensor, "image token channel"],
    reference: Float[Tensor, "image token channel"],
    basis: Float[Tensor, "channel k"],
) -> Coefficients:
    """From tokens of any length."""
    scale_t = inverse_norm(teacher.square().sum(dim=-1))
    scale_s = inverse_norm(reference.square().sum(dim=-1))
    return Coefficients(
        (teacher * reference).sum(dim=-1) * scale_t * scale_s,
        (teacher @ basis) * scale_t[..., None],
        (reference @ basis) * scale_s[..., None],
    )


def inverse_norm(square: Tensor) -> Tensor:
    """What makes a vector of this squared length unit."""
    return square.clamp(min=EPSILON**2).rsqrt()


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
    blocks = [coefficients(t, s, basis) for t, s, basis in zip(teacher, reference, bases, strict=True)]
    return read_coefficients(blocks, keep, tau, families, gate_by)


def read_coefficients(
    blocks: Sequence[Coefficients],
    keep: Sequence[Bool[Tensor, " _"]] | None,
    tau: float | Tensor = 1.0,
    families: Sequence[Sequence[str]] | None = None,
    gate_by: str = "participation",
) -> ReadOut:
    """The same for a reference that knows the coefficients without forming its tokens; without `keep` there is no V_g,
    and so neither a gate nor a localization map.

    Columns are chosen by products with 0 and 1, never by indexing, so that the function can be exported as a graph.
    """
    names = list(dict.fromkeys(name for block in families or () for name in block))
    detected, localized = [], []
    residual_energy = nuisance_energy = family_energy = torch.zeros((), dtype=blocks[0].dot.dtype)
    control = torch.stack([1 - block.dot for block in blocks]).mean(dim=0)
    spread = participation_ratio(control)
    strength = None if keep is None else gate(magnitude(control) if gate_by == "magnitude" else spread, tau)
    for index, block in enumerate(blocks):
        dot, a, b = block.dot, block.teacher, block.reference
        products = (a * b, a.square(), b.square())
        detected.append(_off(dot, products, torch.ones(a.shape[-1], dtype=a.dtype, device=a.device)))
        if keep is not None and strength is not None:
            localized.append(_off(dot, products, keep[index].to(a.dtype), (2 * strength - strength.square())[:, None]))
        column_energy = (a - b).square().sum(dim=1)  # (image, k)
        nuisance_energy = nuisance_energy + column_energy.sum(dim=-1)
        residual_energy = residual_energy + (2 - 2 * dot).sum(dim=1)
        if families and names:
            members = torch.tensor(
                [[name == family for family in names] for name in families[index]], dtype=a.dtype, device=a.device
            )
            family_energy = family_energy + column_energy @ members.reshape(-1, len(names))
    whole = residual_energy.clamp(min=EPSILON)
    shares = (family_energy / whole[:, None]).clamp(0, 1).unbind(dim=1) if names else ()
    return ReadOut(
        control=control,
        detection=torch.stack(detected).mean(dim=0),
        localization=torch.stack(localized).mean(dim=0) if localized else None,
        participation=spread,
        gate=strength,
        nuisance_fraction=(nuisance_energy / whole).clamp(0, 1),
        nuisance_by_family=dict(zip(names, shares, strict=True)),
    )


def _off(
    dot: Tensor, products: tuple[Tensor, Tensor, Tensor], columns: Float[Tensor, " k"], weight: Tensor | float = 1.0
) -> Float[Tensor, "image token"]:
    """1 − cos_ε once the marked columns' share of both tokens is taken away, or `weight` of it."""
    ab, aa, bb = (weight * (product @ columns) for product in products)
    return 1 - stable_cosine(dot - ab, 1 - aa, 1 - bb)
