"""SubspaceAD (arXiv 2602.23013): what a ViT's mean token holds beyond the normal images' principal components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from nfad.errors import NfadError
from nfad.hosts.anomalydino import turns
from nfad.hosts.backbone import Backbone, maps_and_prior, square_images, vit_maps
from nfad.hosts.host import HostScores, Project, in_batches
from nfad.operator import MomentFitter
from nfad.system.progress import Progress
from nfad.vision.maps import image_score, pixel_maps

BLOCKS = (5, 6, 7, 8)  # of twelve: the middle ones, as the paper takes 22 to 28 of forty


@dataclass(frozen=True)
class SubspaceAD:
    """A mean and some components; nothing is trained."""

    backbone: Backbone
    mean: Float[Tensor, " channel"]
    components: Float[Tensor, "channel k"]  # orthonormal
    covariance: Float[Tensor, "channel channel"]
    variance: float
    sigma: float = 4.0

    @classmethod
    def fit(
        cls,
        normal_images: Tensor,
        backbone: Backbone | None = None,
        variance: float = 0.99,
        sigma: float = 4.0,
        batch: int = 8,
        progress: Progress | None = None,
        rotations: int = 1,
    ) -> SubspaceAD:
        """Keep the components that hold this share of the normal tokens' variance.

        `rotations` are the angles each image is seen at, itself among them: for few shots.
        """
        images = square_images(normal_images, cls.__name__)
        network = backbone or vit_maps(blocks=BLOCKS, device=images.device)
        if not 0 < variance < 1:
            raise NfadError(f"variance must lie between 0 and 1; got {variance}")
        fitter = MomentFitter()
        for part in in_batches(images, batch, progress, "reading images"):
            for turned in turns(part, rotations):
                fitter.update(averaged(network(turned)).flatten(2).transpose(1, 2).cpu())
        moments = fitter.freeze()
        components = principal(moments.covariance, variance).to(images)
        return cls(network, moments.mean.to(images), components, moments.covariance, variance, sigma)

    @property
    def unit(self) -> bool:
        return False  # Euclidean residuals

    def features(self, images: Tensor) -> list[Tensor]:
        return [averaged(self.backbone(square_images(images, type(self).__name__)))]

    def features_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor | None]:
        maps, prior = maps_and_prior(self.backbone, square_images(images, type(self).__name__))
        return [averaged(maps)], prior

    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        [maps] = project(self.features(images)) if project else self.features(images)
        gaps = residual(maps.flatten(2).transpose(1, 2), self.mean, self.components)
        pixels = pixel_maps(gaps, images.shape[-1], self.sigma)
        return HostScores(image_score(pixels), pixels)

    def prepare(self, project: Project) -> SubspaceAD:
        """Mean and covariance through `project`, which is linear; of what is left the components are found anew."""

        def through(rows: Tensor) -> Tensor:
            return project([rows.to(self.mean)[:, :, None, None]])[0][:, :, 0, 0].to(rows)

        covariance = through(through(self.covariance).T).T
        components = principal(covariance, self.variance).to(self.mean)
        return replace(self, mean=through(self.mean[None])[0], components=components, covariance=covariance)


def averaged(layers: Sequence[Float[Tensor, "image channel y x"]]) -> Float[Tensor, "image channel y x"]:
    """The mean over layers, position by position."""
    return torch.stack(list(layers)).mean(dim=0)


def principal(covariance: Float[Tensor, "channel channel"], share: float) -> Float[Tensor, "channel k"]:
    """As few eigenvectors as hold this share of the variance, the largest first."""
    values, vectors = torch.linalg.eigh((covariance + covariance.T) / 2)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    held = values.cumsum(0) / values.sum()
    return vectors[:, : int((held < share).sum()) + 1]


def residual(
    tokens: Float[Tensor, "image token channel"],
    mean: Float[Tensor, " channel"],
    components: Float[Tensor, "channel k"],
) -> Float[Tensor, "image token"]:
    """‖(I − CCᵀ)(x − μ)‖²: what the components do not explain."""
    centred = tokens - mean
    return (centred - (centred @ components) @ components.T).square().sum(dim=-1)
