"""RAD (arXiv 2601.22763): the normal images most like a photo, and at each place the nearest of their tokens.

Training-free. Several layers of a ViT are matched each by itself and averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts.backbone import VitMaps, square_images, vit_maps
from nfad.hosts.host import HostScores, Project, in_batches
from nfad.system.progress import Progress
from nfad.vision.maps import image_score, pixel_maps

BLOCKS = (3, 6, 9, 11)


@dataclass(frozen=True)
class RAD:
    """Every token of the normal images, and a summary of each image."""

    backbone: VitMaps
    banks: tuple[Float[Tensor, "image channel y x"], ...]  # a layer each, unit along channels
    summaries: Float[Tensor, "image channel"]  # unit CLS tokens of the last layer
    images: int = 150  # most similar ones that are matched
    radius: int = 1  # patches that a token may have moved by
    sigma: float = 1.0

    @classmethod
    def fit(
        cls,
        normal_images: Tensor,
        backbone: VitMaps | None = None,
        images: int = 150,
        radius: int = 1,
        sigma: float = 1.0,
        batch: int = 8,
        progress: Progress | None = None,
    ) -> RAD:
        """Hold all tokens: 4 bytes × images × positions × channels × layers."""
        if images < 1 or radius < 0:
            raise NfadError(f"images must be at least 1 and radius at least 0; got {images} and {radius}")
        normals = square_images(normal_images, cls.__name__)
        network = backbone or vit_maps(blocks=BLOCKS, device=normals.device)
        rows: list[list[Tensor]] = []
        summaries: list[Tensor] = []
        for part in in_batches(normals, batch, progress):
            maps, summary = network.maps_and_summary(part)
            rows.append([F.normalize(layer, dim=1) for layer in maps])
            summaries.append(F.normalize(summary, dim=1))
        banks = tuple(torch.cat(layers) for layers in zip(*rows, strict=True))
        return cls(network, banks, torch.cat(summaries), images, radius, sigma)

    @property
    def unit(self) -> bool:
        return True  # cosines compare directions

    def features(self, images: Tensor) -> list[Tensor]:
        return self.backbone(square_images(images, type(self).__name__))

    def features_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        return self.backbone.maps_and_prior(square_images(images, type(self).__name__))

    @torch.inference_mode()
    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        maps, summary = self.backbone.maps_and_summary(square_images(images, type(self).__name__))
        if maps[0].shape[2:] != self.banks[0].shape[2:]:
            grid, own = maps[0].shape[-1], self.banks[0].shape[-1]
            raise NfadError(f"RAD was fitted on a grid of {own}² positions; these images give {grid}²: resize them")
        layers = [F.normalize(layer, dim=1) for layer in (project(maps) if project else maps)]
        like = most_similar(F.normalize(summary, dim=1), self.summaries, self.images)
        gaps = torch.stack([self._gaps([layer[i] for layer in layers], like[i]) for i in range(len(images))])
        pixels = pixel_maps(gaps.flatten(1), images.shape[-1], self.sigma)
        return HostScores(image_score(pixels), pixels)

    def prepare(self, project: Project) -> RAD:
        """The banks through `project`; which images are alike is asked of their CLS tokens, which no filter changes."""
        return replace(self, banks=tuple(F.normalize(layer, dim=1) for layer in project(list(self.banks))))

    def _gaps(self, layers: Sequence[Float[Tensor, "channel y x"]], like: Int[Tensor, " k"]) -> Float[Tensor, "y x"]:
        """Layers averaged: each token's distance to the nearest of the retrieved images' around its place."""
        return torch.stack(
            [placed_gap(layer, bank[like], self.radius) for layer, bank in zip(layers, self.banks, strict=True)]
        ).mean(dim=0)


def most_similar(
    query: Float[Tensor, "image channel"], summaries: Float[Tensor, "normal channel"], count: int
) -> Int[Tensor, "image k"]:
    """The normal images whose summaries have the largest cosine."""
    return (query @ summaries.T).topk(min(count, len(summaries)), dim=1).indices


def placed_gap(
    query: Float[Tensor, "channel y x"], bank: Float[Tensor, "k channel y x"], radius: int
) -> Float[Tensor, "y x"]:
    """1 − the largest cosine with a token of the bank at most `radius` patches away; beyond the border is none."""
    height, width = query.shape[1:]
    best = query.new_full((height, width), -torch.inf)
    down, right = min(radius, height - 1), min(radius, width - 1)  # farther there is nothing
    for dy in range(-down, down + 1):
        for dx in range(-right, right + 1):
            rows, columns = slice(max(0, -dy), height - max(0, dy)), slice(max(0, -dx), width - max(0, dx))
            there = (slice(max(0, dy), height + min(0, dy)), slice(max(0, dx), width + min(0, dx)))
            cosine = torch.einsum("cyx,kcyx->kyx", query[:, rows, columns], bank[:, :, there[0], there[1]]).amax(dim=0)
            best[rows, columns] = torch.maximum(best[rows, columns], cosine)
    return 1 - best
