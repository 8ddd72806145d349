"""Spatial incidence: which columns of V act image-wide (Eq. 8) and so may be removed from a pixel map."""

from __future__ import annotations

from collections.abc import Sequence

import scipy.linalg
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nfad.operator.moments import MomentFitter, Moments


def incidence(basis: Float[Tensor, "channel k"], tokens: Float[Tensor, "image token channel"]) -> Float[Tensor, " k"]:
    """ρ = Var over images of the token-mean coefficient / Var over images and tokens of the coefficient."""
    fitter = MomentFitter()
    fitter.update(tokens)
    return incidence_from_moments(basis, fitter.freeze()).to(basis.dtype)


def incidence_from_moments(basis: Float[Tensor, "channel k"], normal: Moments) -> Float[Tensor, " k"]:
    """ρ is a ratio of quadratic forms, so the streamed moments of unperturbed normals are all it needs."""
    wide = basis.double()
    between = ((normal.between @ wide) * wide).sum(dim=0).clamp(min=0)
    total = ((normal.covariance @ wide) * wide).sum(dim=0)
    # A direction in which nothing varies is neither global nor local: call it local, it is then left alone.
    floor = len(wide) * torch.finfo(torch.float64).eps * normal.second.trace()
    return torch.where(total > floor, between / total.clamp(min=floor), torch.zeros_like(total)).clamp(max=1)


def global_columns(incidences: Sequence[Float[Tensor, " _"]], quantile: float = 0.25) -> list[Bool[Tensor, " _"]]:
    """V_g keeps the columns above the lower quartile of all blocks' scores pooled."""
    pooled = torch.cat(list(incidences))
    if len(pooled) == 0:
        return [torch.zeros(0, dtype=torch.bool) for _ in incidences]
    floor = torch.quantile(pooled, quantile)
    return [scores > floor for scores in incidences]


def rotation_invariant_columns(basis: Float[Tensor, "channel k"], normal: Moments) -> Float[Tensor, "channel k"]:
    """The supplement's alternative: span V by mixtures of its columns, from the most image-wide to the most local.

    Solves (Vᵀ Between V) a = λ (Vᵀ Total V) a; the leading ones serve as V_g. The paper found it worse.
    """
    wide = basis.double()
    between = wide.T @ normal.between @ wide
    total = wide.T @ normal.covariance @ wide
    ridge = 1e-9 * total.diagonal().mean() * torch.eye(len(total), dtype=total.dtype)
    _, mixing = scipy.linalg.eigh(between.numpy(), (total + ridge).numpy())
    mixed, _ = torch.linalg.qr(wide @ torch.from_numpy(mixing[:, ::-1].copy()))  # eigenvalues ascend
    return mixed.to(basis.dtype)
