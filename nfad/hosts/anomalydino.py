"""AnomalyDINO (Damm et al. 2025): the cosine distance of a ViT's last tokens to the nearest one of normal images.

For few shots the paper also holds rotated copies (`rotations=8`), and for some objects it looks at the part alone
(`foreground=True`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts.backbone import Backbone, maps_and_prior, square_images, vit_maps
from nfad.hosts.host import HostScores, Project, in_batches
from nfad.system.progress import Progress
from nfad.vision.maps import pixel_maps

TOP = 0.01  # of the patches: the mean of their distances is an image's score
FORE = 10.0  # beyond which a token's first principal component is the part's
BORDER = 0.2  # of the image on each side, left out of the centre


@dataclass(frozen=True)
class AnomalyDINO:
    """Every token of the normal images is kept; nothing is trained."""

    backbone: Backbone
    bank: Float[Tensor, "entry channel"]  # unit
    sigma: float = 4.0
    foreground: bool = False

    @classmethod
    def fit(
        cls,
        normal_images: Tensor,
        backbone: Backbone | None = None,
        sigma: float = 4.0,
        batch: int = 8,
        progress: Progress | None = None,
        rotations: int = 1,
        foreground: bool = False,
    ) -> AnomalyDINO:
        """Hold the tokens of the backbone's last layer: 4 bytes × images × rotations × positions × channels.

        `rotations` are the angles each image is held at, itself among them; with `foreground` no distance off the part
        counts, which is told by a centred part's first principal component: for DINOv2's tokens, or those like them.
        """
        images = square_images(normal_images, cls.__name__)
        network, rows = backbone or vit_maps(device=images.device), []
        for part in in_batches(images, batch, progress):
            rows += [unit_tokens(network(turned)[-1]).flatten(0, 1) for turned in turns(part, rotations)]
        return cls(network, torch.cat(rows), sigma, foreground)

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
        part = part_of(features[-1]) if self.foreground else None
        return self.judge(project(features) if project else features, images.shape[-1], part)

    def judge(self, features: Sequence[Tensor], size: int, part: Tensor | None = None) -> HostScores:
        """`part` says which tokens count, all if left out."""
        # One image at a time: positions × entries is what takes the memory.
        gaps = torch.stack([nearest_gap(tokens, self.bank) for tokens in unit_tokens(features[-1])])
        gaps = gaps if part is None else gaps * part
        top = gaps.topk(max(1, int(TOP * gaps.shape[1])), dim=1).values
        return HostScores(top.mean(dim=1), pixel_maps(gaps, size, self.sigma))

    def prepare(self, project: Project) -> AnomalyDINO:
        """The bank through `project`, and unit again, as the tokens it is compared with will be."""
        return replace(self, bank=unit_tokens(project([self.bank[:, :, None, None]])[0])[:, 0])


def turns(images: Float[Tensor, "image 3 h w"], rotations: int) -> list[Float[Tensor, "image 3 h w"]]:
    """The images at so many equal angles, first as they are."""
    if rotations < 1:
        raise NfadError(f"rotations must be at least 1, the image as it is; got {rotations}")
    return [rotated(images, 360 * turn / rotations) for turn in range(rotations)]


def rotated(images: Float[Tensor, "image 3 h w"], degrees: float) -> Float[Tensor, "image 3 h w"]:
    """About the centre, anticlockwise, bilinear; beyond the edge it goes on mirrored."""
    if degrees % 360 == 0:
        return images
    turn = math.radians(degrees)
    matrix = torch.tensor([[math.cos(turn), -math.sin(turn), 0.0], [math.sin(turn), math.cos(turn), 0.0]])
    grid = F.affine_grid(matrix.to(images).expand(len(images), 2, 3), list(images.shape), align_corners=True)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=True).clamp(0, 1)


def part_of(maps: Float[Tensor, "image channel y x"]) -> Float[Tensor, "image token"]:
    """1 on the part, 0 elsewhere: where the first principal component of an image's own tokens exceeds FORE, on the
    side that covers more of the centre; grown by a token and closed.

    The published code takes the positive side if that covers 35 % of the centre, and else the other: where just one
    side does, which is the case it is made for, the two agree, and ours does not depend on an eigenvector's sign.
    """
    tokens = maps.flatten(2).transpose(1, 2)
    centred = tokens - tokens.mean(dim=1, keepdim=True)
    first = torch.linalg.eigh(centred.mT @ centred).eigenvectors[:, :, -1:]
    component = (centred @ first)[..., 0].unflatten(1, maps.shape[2:])
    sides = torch.stack([component > FORE, component < -FORE], dim=1).to(maps)
    rows, columns = (slice(int(n * BORDER), int(n * (1 - BORDER))) for n in maps.shape[2:])
    better = sides[:, :, rows, columns].mean(dim=(2, 3)).argmax(dim=1)
    chosen = sides[torch.arange(len(maps)), better][:, None]
    for sign in (1, 1, -1):  # grown, then closed: grown again and shrunk
        chosen = sign * F.max_pool2d(sign * chosen, 3, stride=1, padding=1)
    return chosen.flatten(1)


def unit_tokens(maps: Float[Tensor, "image channel y x"]) -> Float[Tensor, "image token channel"]:
    return F.normalize(maps.flatten(2).transpose(1, 2), dim=-1)


def nearest_gap(
    tokens: Float[Tensor, "token channel"], bank: Float[Tensor, "entry channel"]
) -> Float[Tensor, " token"]:
    """Eq. 1: 1 − cos to the nearest entry, all unit; a direction projected to nothing is like no other."""
    return (1 - tokens @ bank.T).amin(dim=1).clamp(min=0)
