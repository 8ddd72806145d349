"""What does projection do? Residuals and scores of the same patches and images before → after Π_V (supplement).

Patches: the RMS over a group's patches and blocks of ‖r‖, then of ‖r − VVᵀr‖, with r the control reference's residual
in either order. Images: the control score, then the detection score, whatever else that one does (a reference of its
own and the common mode in filter-then-fit).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import stats
from torch import Tensor

from nfad.detector import Detector
from nfad.evaluation.tally import EVERYWHERE
from nfad.paper.patches import Batch, Count, measured
from nfad.records import Sample
from nfad.system.progress import Progress
from nfad.vision.maps import image_score, pixel_maps
from nfad.vision.photo import photo_numbers
from nfad.vision.region import looked_at


@dataclass(frozen=True)
class Magnitudes:
    """Root-mean-square residuals of two groups of patches; NaN for a group without any."""

    control_defect: float
    defect: float
    control_normal: float
    normal: float

    @property
    def energy_removed(self) -> float:
        """Share of the normal patches' energy: pooled over them, so that large residuals weigh more than in f_norm."""
        return 1 - _ratio(self.normal, self.control_normal) ** 2

    @property
    def control_contrast(self) -> float:
        return _ratio(self.control_defect, self.control_normal)

    @property
    def contrast(self) -> float:
        """Defect over normal: what detection lives on."""
        return _ratio(self.defect, self.normal)


@dataclass(frozen=True)
class MechanismRow:
    """One domain."""

    domain: str
    count: Count
    magnitudes: Magnitudes
    spearman: float  # between the images' control and detection scores


class MagnitudeFitter:
    """All blocks: `update` with batches of any size in any order, then `freeze`. Holds six numbers."""

    def __init__(self, bases: Sequence[Float[Tensor, "_ _"]]) -> None:
        self._bases = [basis.double() for basis in bases]
        self._energy = torch.zeros(2, 2, dtype=torch.float64)  # defect, normal: before, after
        self._count = torch.zeros(2, 1, dtype=torch.float64)

    def update(
        self,
        residuals: Sequence[Float[Tensor, "image token _"]],
        defect: Bool[Tensor, "image token"],
        normal: Bool[Tensor, "image token"],
    ) -> None:
        for basis, block in zip(self._bases, residuals, strict=True):
            for group, chosen in enumerate((defect, normal)):
                before = block[chosen].double()
                after = before - (before @ basis) @ basis.T
                self._energy[group] += torch.stack([before.square().sum(), after.square().sum()])
                self._count[group] += len(before)

    def freeze(self) -> Magnitudes:
        return Magnitudes(*(self._energy / self._count).sqrt().flatten().tolist())


def rank_correlation(before: Sequence[float], after: Sequence[float]) -> float:
    """Spearman's ρ; NaN where nothing can be ranked: a single image, or equal scores throughout."""
    if min(len(np.unique(before)), len(np.unique(after))) < 2:
        return float("nan")
    return float(np.corrcoef(stats.rankdata(before), stats.rankdata(after))[0, 1])


def mechanism(detector: Detector, samples: Sequence[Sample], progress: Progress | None = None) -> list[MechanismRow]:
    """A row a domain, in order of first appearance; last, where there are several, one for all (the pooled ρ)."""
    bases = detector.scorer.operator.bases
    domains: dict[str, _Row] = {}
    together = _Row(bases)
    for batch in measured(detector, samples, progress):
        before, after = image_scores(detector, batch)
        for row in (domains.setdefault(batch.domain, _Row(bases)), together):
            row.update(batch, before, after)
    rows = [row.freeze(domain) for domain, row in domains.items()]
    return rows if len(rows) == 1 else [*rows, together.freeze(EVERYWHERE)]


@torch.inference_mode()
def image_scores(detector: Detector, batch: Batch) -> tuple[list[float], list[float]]:
    """Control and detection scores; not z-scored, which no rank would notice."""
    scorer, config = detector.scorer, detector.config
    numbers = photo_numbers(looked_at(detector.teacher.region, batch.views))
    out = scorer(batch.tokens, scorer.predicted(batch.views), None, batch.prior, numbers)
    control, detection = (
        image_score(pixel_maps(tokens, config.size, config.sigma), config.scored_fraction).tolist()
        for tokens in (out.control, out.detection)
    )
    return control, detection


class _Row:
    def __init__(self, bases: Sequence[Tensor]) -> None:
        self._count = Count()
        self._fitter = MagnitudeFitter(bases)
        self._before: list[float] = []  # ranks need every score: two numbers an image
        self._after: list[float] = []

    def update(self, batch: Batch, before: list[float], after: list[float]) -> None:
        self._count += batch.count
        self._fitter.update(batch.residuals, batch.defect, batch.normal)
        self._before += before
        self._after += after

    def freeze(self, domain: str) -> MechanismRow:
        return MechanismRow(domain, self._count, self._fitter.freeze(), rank_correlation(self._before, self._after))


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else float("nan")
