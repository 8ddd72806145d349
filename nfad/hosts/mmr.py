"""MMR (Zhang et al. 2023): a ViT that sees a part of the patches gives a frozen network's stages of all of them.

The paper starts the ViT from MAE's weights; without them it starts from random ones, which takes longer to train.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import timm
import torch
from jaxtyping import Int
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from nfad.errors import NfadError
from nfad.hosts.backbone import Backbone, embedded_stages, maps_and_prior, square_images
from nfad.hosts.host import HostScores, Project
from nfad.hosts.reverse import Shape, judge, on_grid, reconstruction_loss
from nfad.hosts.training import FrozenFeatures, batches, steps_of, train
from nfad.system.progress import Progress
from nfad.vision.networks import normalisation

BETAS, WEIGHT_DECAY = (0.9, 0.95), 0.05
PATCH = 16


@dataclass(frozen=True)
class MMR:
    """The frozen network whose stages are wanted, and the ViT with a pyramid that gives them."""

    backbone: Backbone
    network: Masked
    losses: tuple[float, ...]  # of every step of the training
    sigma: float = 4.0

    @classmethod
    def fit(
        cls,
        normal_images: Tensor,
        backbone: Backbone | None = None,
        epochs: int = 200,
        steps: int | None = None,
        rate: float = 1e-3,
        mask: float = 0.4,
        student: str = "vit_tiny_patch16_224",
        sigma: float = 4.0,
        seed: int = 54,
        batch: int = 16,
        progress: Progress | None = None,
    ) -> MMR:
        """Train with AdamW; `steps` (of `batch` images) instead of `epochs` where time is short.

        `mask` is the share of patches hidden in training; at inference all are seen. `student` is a timm ViT.
        """
        images = square_images(normal_images, cls.__name__)
        if not 0 <= mask < 1:
            raise NfadError(f"mask must lie in 0..1, below 1; got {mask}")
        if images.shape[-1] % PATCH:
            raise NfadError(
                f"MMR takes images whose side is a multiple of {PATCH}; got {images.shape[-1]}: resize them"
            )
        steps = steps_of(steps, epochs, len(images), batch)
        encoder = backbone or embedded_stages().to(images.device)
        features = FrozenFeatures(encoder, images, batch, progress)
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = Masked(student, images.shape[-1], features.shapes).to(images)

        def loss_of(indices: Tensor, step: int) -> Tensor:
            shown = visible(len(indices), network.tokens, mask, generator).to(images.device)
            return reconstruction_loss(features(indices), network(images[indices], shown))

        optimizer = torch.optim.AdamW(network.parameters(), rate, betas=BETAS, weight_decay=WEIGHT_DECAY)
        losses = train(network, loss_of, [optimizer], batches(len(images), batch, steps, seed), steps, progress)
        return cls(encoder, network, losses, sigma)

    @property
    def unit(self) -> bool:
        return True  # cosines compare directions

    def features(self, images: Tensor) -> list[Tensor]:
        return self.backbone(square_images(images, type(self).__name__))

    def features_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor | None]:
        return maps_and_prior(self.backbone, square_images(images, type(self).__name__))

    @torch.inference_mode()
    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        layers, given = self.features(images), self.network(images)
        if project:
            layers, given = project(layers), project(given)
        return judge(layers, given, images.shape[-1], self.sigma)

    def prepare(self, project: Project) -> MMR:
        return self


class Masked(nn.Module):
    """A ViT over the patches that are shown; the others are a learned token at their places, then a pyramid a stage."""

    mean: Tensor
    std: Tensor

    def __init__(self, student: str, size: int, shapes: Sequence[Shape]) -> None:
        super().__init__()
        plain = timm.models.is_model_in_modules(student.split(".")[0], ["vision_transformer"])
        model = timm.create_model(student, num_classes=0, img_size=size) if plain else None
        if not isinstance(model, VisionTransformer) or model.patch_embed.patch_size != (PATCH, PATCH):
            raise NfadError(f"student must be a timm ViT with patches of {PATCH}²; got {student!r}")
        self.model, self.side = model, size // PATCH
        for key, value in zip(("mean", "std"), normalisation(model), strict=True):
            self.register_buffer(key, value)
        width = model.embed_dim
        self.hidden = nn.Parameter(torch.randn(width) * 0.02)
        self.places = nn.Parameter(torch.randn(self.side**2, width) * 0.02)
        self.embed = nn.Linear(width, width)
        self.pyramid = nn.ModuleList(_scale(width, shape, self.side) for shape in shapes)
        self.grids = [shape[1:] for shape in shapes]

    @property
    def tokens(self) -> int:
        return self.side**2

    def forward(self, images: Tensor, shown: Int[Tensor, "image shown"] | None = None) -> list[Tensor]:
        """The stages, from all patches or from those whose places are given."""
        patches = self.model.patch_embed((images - self.mean) / self.std)
        prefix = self.model.num_prefix_tokens
        tokens = self.model._pos_embed(patches)  # positions first: what is shown knows where it is
        if shown is not None:
            seen = shown[:, :, None].expand(-1, -1, tokens.shape[2])
            tokens = torch.cat([tokens[:, :prefix], tokens[:, prefix:].gather(1, seen)], dim=1)
        tokens = self.embed(self.model.norm(self.model.blocks(tokens)))[:, prefix:]
        if shown is not None:
            whole = self.hidden.expand(len(images), self.tokens, -1)
            tokens = whole.scatter(1, shown[:, :, None].expand_as(tokens), tokens)
        tokens = tokens + self.places
        maps = tokens.transpose(1, 2).unflatten(2, (self.side, self.side))
        return [on_grid(scale(maps), torch.Size(grid)) for scale, grid in zip(self.pyramid, self.grids, strict=True)]


def visible(count: int, tokens: int, share: float, generator: torch.Generator) -> Int[Tensor, "image shown"]:
    """For each image on its own the places left when this share is hidden, in rising order."""
    order = torch.rand(count, tokens, generator=generator).argsort(dim=1)
    return order[:, round(share * tokens) :].sort(dim=1).values


def _scale(width: int, shape: Shape, side: int) -> nn.Sequential:
    """From the ViT's grid to one stage's: deconvolutions that double it, or pooling that halves it, then two layers."""
    channels, grid = shape[0], shape[1]
    layers: list[nn.Module] = []
    doublings = round(math.log2(grid / side))
    for _ in range(doublings):
        layers += [nn.ConvTranspose2d(width, width // 2, 2, 2), nn.GroupNorm(1, width // 2), nn.GELU()]
        width //= 2
    layers += [nn.MaxPool2d(2) for _ in range(-doublings)]
    layers += [nn.Conv2d(width, channels, 1, bias=False), nn.GroupNorm(1, channels)]
    return nn.Sequential(*layers, nn.Conv2d(channels, channels, 3, padding=1))
