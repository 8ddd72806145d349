"""Estimate the operator from normal images: matched intervention responses → V, incidence → V_g."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from nfad.config import Config
from nfad.errors import NfadError
from nfad.fitting.tokens import TokenCache
from nfad.operator import Moments, NuisanceSubspace, global_columns, nuisance_subspace
from nfad.operator.incidence import incidence_from_moments, rotation_invariant_columns
from nfad.operator.subspace import (
    columns_for,
    generalized_eigen_basis,
    ratio_selection_basis,
    within_image_scatter_basis,
)
from nfad.reference.scoring import Operator
from nfad.system.progress import Progress
from nfad.vision.interventions import SETS, Intervention, intervene
from nfad.vision.region import looked_at
from nfad.vision.teacher import Teacher
from nfad.vision.tiles import STEP, Tiled


def families_of(config: Config) -> dict[str, dict]:
    """The interventions in use: those families of the set that are given a rank."""
    known = SETS[config.interventions]
    for family in config.rank:
        if family not in known:
            raise NfadError(f"rank names family {family!r}; the {config.interventions} set has {', '.join(known)}")
    return {family: known[family] for family, rank in config.rank.items() if rank > 0}


def check_ranks(config: Config, channels: Sequence[int]) -> None:
    """Every family's rank must fit the narrowest block."""
    for family in families_of(config):
        try:
            columns_for(config.rank, family, min(channels))
        except ValueError as error:
            raise NfadError(f"{error}; lower it (--set rank, or --ranks of a table)") from None


def intervention_moments(
    store: TokenCache, teacher: Teacher, config: Config, fit: Int[Tensor, " image"], progress: Progress | None = None
) -> dict[str, list[Tensor]]:
    """Per family, each block's second moment of Δz = teacher(F(x)) − teacher(x) (Eq. 5).

    Every transform is applied to `config.pairs` images, a seeded choice of its own, so that a small budget still
    meets many images.
    """
    families = families_of(config)
    check_ranks(config, teacher.channels)
    per_transform = len(fit) if config.pairs is None else min(config.pairs, len(fit))
    total = per_transform * sum(len(transforms) for transforms in families.values())
    generator = torch.Generator().manual_seed(config.seed)
    done, moments = 0, {}
    for family, transforms in families.items():
        sums = [torch.zeros(c, c, dtype=torch.float64) for c in teacher.channels]
        # METHOD: at most `displacements` tokens a family, spread evenly over images × transforms.
        budget = None if config.displacements is None else config.displacements / (per_transform * len(transforms))
        owed = 0.0
        for transform in transforms.values():
            chosen = fit[torch.randperm(len(fit), generator=generator)[:per_transform]]
            for indices in chosen.split(config.at_once):
                images = store.views(indices)
                side = config.basis_size or config.size
                if isinstance(teacher, Tiled):
                    clean, moved = _on_a_tile(teacher, transform, images, generator)
                elif images.shape[-1] == side:
                    clean, prior = store.read(indices)
                    moved = teacher.tokens(intervene(transform, images, prior, generator))
                else:  # the paper's bases are always seen at 224, whatever the model's size
                    images = F.interpolate(images, (side, side), mode="bilinear", antialias=True, align_corners=False)
                    try:
                        clean, prior = teacher.tokens_and_prior(images)
                    except AssertionError:  # BEiT's relative positions are tied to one size
                        raise NfadError(
                            f"{teacher.identity.architecture} sees {config.size}² only; set basis_size={config.size}"
                        ) from None
                    moved = teacher.tokens(intervene(transform, images, prior, generator))
                count = clean[0].shape[1]
                picked: Tensor | slice = slice(None)
                if budget is not None:
                    owed += budget * len(indices)
                    picked = torch.randperm(len(indices) * count, generator=generator)[: int(owed)]
                    owed -= len(picked)
                for block, (after, before) in enumerate(zip(moved, clean, strict=True)):
                    response = (after - before).flatten(0, 1)[picked].double()
                    sums[block].addmm_(response.T, response)
                done += len(indices)
                if progress:
                    progress("learning nuisance", done, total)
        moments[family] = sums
    return moments


def _on_a_tile(
    teacher: Tiled, transform: Intervention, images: Tensor, generator: torch.Generator
) -> tuple[list[Tensor], list[Tensor]]:
    """Tokens before and after an edit of the whole view, of a tile at random: as many as a view of one tile has, for V
    is of channels and knows no place."""
    prior = teacher.prior(images)
    edited = looked_at(teacher.region, intervene(transform, images, prior, generator))
    images = looked_at(teacher.region, images)
    last = (images.shape[-1] - teacher.tile) // STEP
    top, left = (STEP * torch.randint(0, last + 1, (2,), generator=generator)).tolist()
    place = (..., slice(top, top + teacher.tile), slice(left, left + teacher.tile))
    return teacher.teacher.tokens(images[place]), teacher.teacher.tokens(edited[place])


def estimate_operator(config: Config, normal: Sequence[Moments], moved: dict[str, list[Tensor]]) -> Operator:
    """V of every block, with the basis construction the config names; V_g where localization is gated."""
    subspaces = [
        _subspace(config, moments, {family: blocks[index] for family, blocks in moved.items()})
        for index, moments in enumerate(normal)
    ]
    keep = None
    share = config.local_share or 0.0  # that V_g leaves in
    if config.incidence == "rotated":
        # Mixed columns are of no one family any more; span V, and so detection, stays as it is.
        subspaces = [
            NuisanceSubspace(rotation_invariant_columns(s.basis, moments), ("mixed",) * len(s.families))
            for s, moments in zip(subspaces, normal, strict=True)
        ]
        widths = [s.basis.shape[1] for s in subspaces]
        keep = tuple(torch.arange(width) < round((1 - share) * width) for width in widths)
    elif config.incidence == "columns":
        scores = [incidence_from_moments(s.basis, moments) for s, moments in zip(subspaces, normal, strict=True)]
        keep = tuple(global_columns(scores, share))
    return Operator(
        bases=tuple(s.basis.float() for s in subspaces), families=tuple(s.families for s in subspaces), keep=keep
    )


def _subspace(config: Config, normal: Moments, moved: dict[str, Tensor]) -> NuisanceSubspace:
    channels = len(normal.mean)
    if not moved:
        return NuisanceSubspace(torch.zeros(channels, 0, dtype=torch.float64), ())
    if config.basis == "mir":
        return nuisance_subspace(moved, config.rank)
    rank = min(sum(columns_for(config.rank, family, channels) for family in moved), channels)
    if config.basis == "scatter":
        return within_image_scatter_basis(normal, rank)
    together = torch.stack(list(moved.values())).sum(dim=0)
    build = generalized_eigen_basis if config.basis == "generalized" else ratio_selection_basis
    return build(together, normal, rank)
