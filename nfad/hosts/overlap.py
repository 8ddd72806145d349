"""What would the filter cost? How much of the response to synthetic defects it removes, and the scores it moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nfad.errors import NfadError
from nfad.evaluation.auroc import paired_interval
from nfad.evaluation.metrics import image_metrics
from nfad.hosts.filter import Filtered, NuisanceFilter, as_compared, remove
from nfad.hosts.host import Host, checked_images, score_images
from nfad.stats.intervals import Interval
from nfad.vision.defects import KINDS, with_defects


@dataclass(frozen=True)
class DefectOverlap:
    """Shares are of energy, averaged over layers; AUROC is of normals against their defective copies."""

    share: float  # of the response to defects that lies in the removed subspace
    chance: float  # the same for a random subspace of that size: near it, the filter is blind to defects as such
    by_kind: Mapping[str, float]
    by_layer: tuple[float, ...]
    before: float  # AUROC of the bare host
    after: float  # AUROC of the filtered one
    change: Interval  # after less before, paired over images

    @property
    def warning(self) -> str:
        """One sentence when the filter would cost detections beyond chance; empty otherwise."""
        if not self.change.high < 0:
            return ""
        return (
            f"The filter would cost detections: synthetic defects are told from normals with AUROC {self.after:.3f} "
            f"instead of {self.before:.3f} (change {self.change.value:+.3f}, 95 % interval {self.change.low:+.3f} to "
            f"{self.change.high:+.3f}), as {self.share:.0%} of their response lies in what is removed; lower the rank."
        )


def defect_overlap(
    host: Host, nuisance: NuisanceFilter, normal_images: Tensor, seed: int = 0, batch: int = 8
) -> DefectOverlap:
    """Put three kinds of defect on every normal and look with the bare host and with the filtered one.

    Give normals that the host was not fitted on: a bank that holds an image finds it at no distance, and every copy
    of it then stands out, filtered or not.
    """
    if isinstance(host, Filtered) and host.filter is nuisance:
        raise NfadError("this host wears the filter already, so nothing of it is left to measure; give host.unwrap()")
    images = checked_images(normal_images)
    filtered = nuisance.wrap(host)
    copies = {kind: with_defects(images, kind, seed)[0] for kind in KINDS}
    inside, whole = (torch.zeros(len(KINDS), len(nuisance.bases), dtype=torch.float64) for _ in range(2))
    for start in range(0, len(images), batch):
        clean = as_compared(host, host.features(images[start : start + batch]))
        for row, kind in enumerate(KINDS):
            moved = as_compared(host, host.features(copies[kind][start : start + batch]))
            for layer, (after, before) in enumerate(zip(moved, clean, strict=True)):
                response = (after - before).double().cpu()
                left = remove(nuisance.bases[layer], response, layer)
                whole[row, layer] += response.square().sum()
                inside[row, layer] += (response - left).square().sum()
    both = torch.cat([images, *copies.values()])
    labels = (torch.arange(len(both)) >= len(images)).numpy()
    before, after = (score_images(h, both, batch).image.double().cpu().numpy() for h in (host, filtered))
    return DefectOverlap(
        share=float((inside.sum(dim=0) / _positive(whole.sum(dim=0))).mean()),
        chance=sum(basis.shape[1] / basis.shape[0] for basis in nuisance.bases) / len(nuisance.bases),
        by_kind=dict(zip(KINDS, (inside / _positive(whole)).mean(dim=1).tolist(), strict=True)),
        by_layer=tuple((inside.sum(dim=0) / _positive(whole.sum(dim=0))).tolist()),
        before=image_metrics(before, labels).auroc,
        after=image_metrics(after, labels).auroc,
        change=paired_interval(after, before, labels, seed),
    )


def _positive(energy: Tensor) -> Tensor:
    """A layer that does not respond at all has no share inside, rather than an undefined one."""
    return energy.clamp(min=torch.finfo(energy.dtype).tiny)
