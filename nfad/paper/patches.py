"""Which patches are defect and which normal, and their residuals: what both measurements walk over.

Where the paper is silent we read it so:
- A patch is defect if the ground truth covers it at least half as much as the image's most covered patch, and normal
  if it covers none of it; one that the defect only grazes is neither. Half of the patch itself would lose every defect
  thinner than the grid; any pixel at all would count intact patches as defects and so make the two groups alike.
- Normal patches come from good images and from around the defects alike: the paper compares patches, not images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.evaluation.tally import mask_of
from nfad.records import Sample
from nfad.reference.scoring import residuals
from nfad.system.progress import Progress
from nfad.vision.images import load_part, to_view


@dataclass(frozen=True)
class Count:
    """What a number rests on. An anomalous image is lost if no patch of it is defect: its mask is missing, empty
    or outside of the view."""

    images: int = 0
    lost: int = 0
    defect: int = 0  # patches
    normal: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.images + other.images,
            self.lost + other.lost,
            self.defect + other.defect,
            self.normal + other.normal,
        )


@dataclass(frozen=True)
class Batch:
    """Some images of one domain: as the model sees them, what it did not expect, and which patches are which."""

    domain: str
    views: Float[Tensor, "image 3 size size"]
    tokens: Sequence[Float[Tensor, "image token _"]]
    prior: Float[Tensor, "image token"] | None
    residuals: Sequence[Float[Tensor, "image token _"]]
    defect: Bool[Tensor, "image token"]
    normal: Bool[Tensor, "image token"]
    count: Count


def patch_labels(
    masks: Bool[Tensor, "image size size"], grid: int
) -> tuple[Bool[Tensor, "image token"], Bool[Tensor, "image token"]]:
    """Defect patches, covered at least half as much as the image's most covered one, and normal ones, not at all."""
    covered = F.adaptive_avg_pool2d(masks.double(), grid).flatten(1)
    touched = covered > 0
    return touched & (covered >= covered.amax(dim=1, keepdim=True) / 2), ~touched


def measured(detector: Detector, samples: Sequence[Sample], progress: Progress | None = None) -> Iterator[Batch]:
    """Batches of one domain each, domain after domain in order of first appearance; one teacher pass an image."""
    if not samples:
        raise NfadError("there is nothing to measure; give at least one sample")
    done = 0
    for domain in dict.fromkeys(sample.domain for sample in samples):
        here = [sample for sample in samples if sample.domain == domain]
        for start in range(0, len(here), detector.config.batch):
            chosen = here[start : start + detector.config.batch]
            yield _batch(detector, chosen, domain)
            done += len(chosen)
            if progress:
                progress("measuring", done, len(samples))


@torch.inference_mode()
def _batch(detector: Detector, samples: Sequence[Sample], domain: str) -> Batch:
    pairs = [_view_and_mask(sample, detector.config.size, detector.config.resize) for sample in samples]
    views, masks = torch.stack([view for view, _ in pairs]), torch.stack([mask for _, mask in pairs])
    if detector.config.foreground:
        tokens, prior = detector.seeing.tokens_and_prior(views)
    else:
        tokens, prior = detector.seeing.tokens(views), None
    defect, normal = patch_labels(masks, detector.teacher.grid)
    anomalous = torch.tensor([sample.anomalous for sample in samples])
    known = torch.tensor([sample.mask is not None for sample in samples]) | ~anomalous
    normal = normal & known[:, None]  # an anomalous image without a mask may be defect anywhere
    count = Count(
        images=len(samples),
        lost=int((anomalous & ~defect.any(dim=1)).sum()),
        defect=int(defect.sum()),
        normal=int(normal.sum()),
    )
    return Batch(domain, views, tokens, prior, residuals(detector.scorer, tokens, views), defect, normal, count)


def _view_and_mask(sample: Sample, size: int, resize: int | None) -> tuple[Tensor, Tensor]:
    view, geometry = to_view(load_part(sample.path), size, resize)
    return view, torch.from_numpy(mask_of(sample, geometry, size))
