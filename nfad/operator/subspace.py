"""The nuisance subspace V: which directions move when only the acquisition changes (Sec. 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor

from nfad.operator.moments import Moments, second_moment

Rank = int | float | Mapping[str, int | float]


@dataclass(frozen=True)
class NuisanceSubspace:
    """An orthonormal basis and the family each column came from."""

    basis: Float[Tensor, "channel k"]
    families: tuple[str, ...]


def columns_for(rank: Rank, family: str, channels: int) -> int:
    """A rank is a number of columns, or (below 1) a share of the channels; a mapping names it per family."""
    value = rank[family] if isinstance(rank, Mapping) else rank
    if value < 0 or value > channels:
        raise ValueError(f"rank of family {family!r} must lie in 0..{channels} or be a share below 1; got {value}")
    return round(value * channels) if value < 1 else int(value)


def leading_directions(moment: Float[Tensor, "channel channel"], rank: int) -> Float[Tensor, "channel r"]:
    """Top eigenvectors in float64; directions without energy are left out, so that r may be smaller than rank."""
    values, vectors = torch.linalg.eigh(moment.double())
    values, vectors = values.flip(0)[:rank], vectors.flip(1)[:, :rank]
    floor = len(moment) * torch.finfo(torch.float64).eps * values.max().clamp(min=0) if len(values) else 0
    vectors = vectors[:, values > floor]
    # An eigenvector's sign is arbitrary: fix it, so that equal data give equal files.
    peak = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return vectors * peak.sign()


def join(
    bases: Mapping[str, Float[Tensor, "channel _"]],
) -> NuisanceSubspace:
    """QR of the families in the mapping's order; a column that adds no direction is dropped.

    Column by column rather than by one Householder QR: that fills dependent columns with arbitrary directions.
    """
    kept: list[Tensor] = []
    families: list[str] = []
    channels = next(iter(bases.values())).shape[0]
    tolerance = channels * torch.finfo(torch.float64).eps
    for family, directions in bases.items():
        for column in directions.double().T:
            rest = column
            for _ in range(2):  # "twice is enough" (Giraud et al. 2005) for orthogonality to rounding
                if kept:
                    basis = torch.stack(kept, dim=1)
                    rest = rest - basis @ (basis.T @ rest)
            norm = rest.norm()
            if norm > tolerance**0.5 and len(kept) < channels:
                kept.append(rest / norm)
                families.append(family)
    basis = torch.stack(kept, dim=1) if kept else torch.zeros(channels, 0, dtype=torch.float64)
    return NuisanceSubspace(basis, tuple(families))


def nuisance_subspace(moments: Mapping[str, Float[Tensor, "channel channel"]], rank: Rank = 16) -> NuisanceSubspace:
    """V = orth([U^family …]) from each family's second moment of matched intervention responses."""
    return join(
        {
            family: leading_directions(moment, columns_for(rank, family, len(moment)))
            for family, moment in moments.items()
        }
    )


def nuisance_basis(
    displacements: Mapping[str, Float[Tensor, "_ channel"]], rank: Rank = 16
) -> Float[Tensor, "channel k"]:
    """The same from the displacements themselves: {family: (n, c)} → (c, k), in the displacements' dtype."""
    moments = {family: second_moment(rows) for family, rows in displacements.items()}
    dtype = next(iter(displacements.values())).dtype
    return nuisance_subspace(moments, rank).basis.to(dtype)


# The three other constructions of the paper's supplement (Table "Nuisance-basis construction"), same size of V.


def within_image_scatter_basis(normal: Moments, rank: int) -> NuisanceSubspace:
    """(i) Top-variance directions of tokens about their image's mean: no intervention at all."""
    return join({"scatter": leading_directions(normal.within, rank)})


def generalized_eigen_basis(nuisance: Float[Tensor, "channel channel"], normal: Moments, rank: int) -> NuisanceSubspace:
    """(ii) S_nui v = λ S_norm v: movement under intervention relative to clean-normal scatter."""
    scatter = normal.covariance
    ridge = 1e-6 * scatter.diagonal().mean() * torch.eye(len(scatter), dtype=scatter.dtype)
    values, vectors = scipy.linalg.eigh(nuisance.double().numpy(), (scatter + ridge).numpy())
    del values  # ascending
    return join({"generalized": torch.from_numpy(vectors[:, ::-1][:, :rank].copy())})


def ratio_selection_basis(nuisance: Float[Tensor, "channel channel"], normal: Moments, rank: int) -> NuisanceSubspace:
    """(iii) Of the normal scatter's directions, those with the highest nuisance-to-normal energy ratio."""
    directions = leading_directions(normal.covariance, len(nuisance))
    moved = ((nuisance.double() @ directions) * directions).sum(dim=0)
    energy = ((normal.covariance @ directions) * directions).sum(dim=0)
    best = (moved / energy).argsort(descending=True)[:rank]
    return join({"ratio": directions[:, best]})
