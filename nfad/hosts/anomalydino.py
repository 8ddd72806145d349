"""AnomalyDINO (Damm et al. 2025): the cosine distance of a ViT's last tokens to the nearest one of normal images.

Without the paper's rotated copies of few shots and without its mask of the foreground, which it uses for some objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nfad.hosts.backbone import Backbone, maps_and_prior, square_images, vit_maps
from nfad.hosts.host import HostScores, Project
from nfad.system.progress import Progress
from nfad.vision.maps import pixel_maps

TOP = 0.01  # of the patches: the mean of their distances is an image's score


@dataclass(frozen=True)
class AnomalyDINO:
    """Every token of the normal images is kept; nothing is trained."""

    backbone: Backbone
    bank: Float[Tensor, "entry channel"]  # unit
    sigma: float = 4.0

    @classmethod
    def fit(
        cls,
        normal_images: Tensor,
        backbone: Backbone | None = None,
        sigma: float = 4.0,
        batch: int = 8,
        progress: Progress | None = None,
    ) -> AnomalyDINO:
        """Hold the tokens of the backbone's last layer: 4 bytes × images × positions × channels."""
        images = square_images(normal_images, cls.__name__)
        network, rows = backbone or vit_maps(device=images.device), []
        for part in images.split(batch):
            rows.append(unit_tokens(network(part)[-1]).flatten(0, 1))
            if progress:
                progress("collecting patches", min(len(rows) * batch, len(images)), len(images))
        return cls(network, torch.cat(rows), sigma)

    @property
    def unit(self) -> bool:
        return True  # cosines compare directions

    def features(self, images: Tensor) -> list[Tensor]:
        return self.backbone(square_images(images, type(self).__name__))[-1:]

    def features_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor | None]:
        maps, prior = maps_and_prior(self.backbone, square_images(images, type(self).__name__))
        return maps[-1:], prior

    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        features = self.features(images)
        return self.judge(project(features) if project else features, images.shape[-1])

    def judge(self, features: Sequence[Tensor], size: int) -> HostScores:
        # One image at a time: positions × entries is what takes the memory.
        gaps = torch.stack([nearest_gap(tokens, self.bank) for tokens in unit_tokens(features[-1])])
        top = gaps.topk(max(1, int(TOP * gaps.shape[1])), dim=1).values
        return HostScores(top.mean(dim=1), pixel_maps(gaps, size, self.sigma))

    def prepare(self, project: Project) -> AnomalyDINO:
        """The bank through `project`, and unit again, as the tokens it is compared with will be."""
        return replace(self, bank=unit_tokens(project([self.bank[:, :, None, None]])[0])[:, 0])


def unit_tokens(maps: Float[Tensor, "image channel y x"]) -> Float[Tensor, "image token channel"]:
    return F.normalize(maps.flatten(2).transpose(1, 2), dim=-1)


def nearest_gap(
    tokens: Float[Tensor, "token channel"], bank: Float[Tensor, "entry channel"]
) -> Float[Tensor, " token"]:
    """Eq. 1: 1 − cos to the nearest entry, all unit; a direction projected to nothing is like no other."""
    return (1 - tokens @ bank.T).amin(dim=1).clamp(min=0)
