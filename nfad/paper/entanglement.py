"""Can direction tell a defect from nuisance? How much of the residuals' energy lies inside V (the paper's Sec. 3).

f_def and f_norm are means over patches of each patch's own share ‖Vᵀr‖²/‖r‖²; f_disc is the share of the direction
between the two groups' mean residuals, in which what they share cancels; a random V of k columns has k/C.

Order of averaging: patches within a block, then blocks, then (the caller's, with `average`) categories; domains are
pooled patch by patch. The paper's own figures say so: its categories average to its mean, its four domains do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nfad.detector import Detector
from nfad.evaluation.tally import EVERYWHERE
from nfad.paper.patches import Batch, Count, measured
from nfad.records import Sample
from nfad.system.progress import Progress


@dataclass(frozen=True)
class Overlap:
    """Shares of energy inside V, in 0..1; NaN where there is no such patch."""

    f_def: float
    f_norm: float
    f_disc: float
    chance: float


@dataclass(frozen=True)
class EntanglementRow:
    """One domain."""

    domain: str
    count: Count
    blocks: tuple[Overlap, ...]  # in the order of config.blocks

    @property
    def mean(self) -> Overlap:
        """Over the blocks: the number the paper prints."""
        return average(self.blocks)


def energy_shares(
    residuals: Float[Tensor, "patch channel"], basis: Float[Tensor, "channel k"]
) -> Float[Tensor, " patch"]:
    """Eq. 3 for each residual: ‖Vᵀr‖²/‖r‖² in float64; NaN for one without length, which has no direction."""
    wide = residuals.double()
    return (wide @ basis.double()).square().sum(dim=1) / wide.square().sum(dim=1)


def average(overlaps: Sequence[Overlap]) -> Overlap:
    """The plain mean of each share: over blocks, or over categories."""
    return Overlap(*torch.tensor([astuple(overlap) for overlap in overlaps], dtype=torch.float64).mean(dim=0).tolist())


class OverlapFitter:
    """One block: `update` with batches of any size in any order, then `freeze`. Holds two sums and a vector a group."""

    def __init__(self, basis: Float[Tensor, "channel k"]) -> None:
        self._basis = basis.double()
        self._shares = torch.zeros(2, 2, dtype=torch.float64)  # defect, normal: their sum, and of how many
        self._patches = torch.zeros(2, 1, dtype=torch.float64)
        self._sum = torch.zeros(2, len(basis), dtype=torch.float64)

    def update(
        self,
        residuals: Float[Tensor, "image token channel"],
        defect: Bool[Tensor, "image token"],
        normal: Bool[Tensor, "image token"],
    ) -> None:
        for group, chosen in enumerate((defect, normal)):
            picked = residuals[chosen].double()
            shares = energy_shares(picked, self._basis)
            self._shares[group] += torch.stack([shares.nansum(), (~shares.isnan()).sum()])
            self._patches[group] += len(picked)
            self._sum[group] += picked.sum(dim=0)

    def freeze(self) -> Overlap:
        f_def, f_norm = (self._shares[:, 0] / self._shares[:, 1]).tolist()
        defect, normal = self._sum / self._patches
        channels, k = self._basis.shape
        return Overlap(f_def, f_norm, float(energy_shares((defect - normal)[None], self._basis)), k / channels)


def entanglement(
    detector: Detector, samples: Sequence[Sample], progress: Progress | None = None
) -> list[EntanglementRow]:
    """A row a domain, in order of first appearance; last, where there are several, one for all together."""
    bases = detector.scorer.operator.bases
    domains: dict[str, _Row] = {}
    together = _Row(bases)
    for batch in measured(detector, samples, progress):
        for row in (domains.setdefault(batch.domain, _Row(bases)), together):
            row.update(batch)
    rows = [row.freeze(domain) for domain, row in domains.items()]
    return rows if len(rows) == 1 else [*rows, together.freeze(EVERYWHERE)]


class _Row:
    def __init__(self, bases: Sequence[Tensor]) -> None:
        self._count = Count()
        self._fitters = [OverlapFitter(basis) for basis in bases]

    def update(self, batch: Batch) -> None:
        self._count += batch.count
        for fitter, residuals in zip(self._fitters, batch.residuals, strict=True):
            fitter.update(residuals, batch.defect, batch.normal)

    def freeze(self, domain: str) -> EntanglementRow:
        return EntanglementRow(domain, self._count, tuple(fitter.freeze() for fitter in self._fitters))
