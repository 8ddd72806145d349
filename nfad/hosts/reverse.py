"""RD4AD (Deng & Li 2022): a decoder learns to undo a frozen encoder on normal images; it fails where they end.

The fusion, the one-class embedding and the decoder take the shapes of any backbone's layers; ReContrast uses them too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nfad.hosts.backbone import Backbone, embedded_stages, maps_and_prior, square_images
from nfad.hosts.host import HostScores, Project
from nfad.hosts.training import FrozenFeatures, batches, steps_of, train
from nfad.system.progress import Progress
from nfad.vision.maps import pixel_maps

Maps = Sequence[Float[Tensor, "image _ _ _"]]
Shape = tuple[int, ...]  # channels, height, width of one image's map
NARROWEST = 64  # channels inside the decoder: an EfficientNet's 24 are too few to compute with


@dataclass(frozen=True)
class RD4AD:
    """The frozen encoder, and the decoder trained to give its layers back from a narrow embedding of them."""

    backbone: Backbone
    network: Reverse
    losses: tuple[float, ...]  # of every step of the training
    sigma: float = 4.0

    @classmethod
    def fit(
        cls,
        normal_images: Tensor,
        backbone: Backbone | None = None,
        epochs: int = 200,
        steps: int | None = None,
        rate: float = 0.005,
        depth: int = 2,
        sigma: float = 4.0,
        seed: int = 54,
        batch: int = 16,
        progress: Progress | None = None,
    ) -> RD4AD:
        """Train the decoder with Adam; `steps` (of `batch` images) instead of `epochs` where time is short.

        Layers come shallow to deep; `depth` is the residual blocks a stage. The backbone sees every image once.
        """
        images = square_images(normal_images, cls.__name__)
        steps = steps_of(steps, epochs, len(images), batch)
        encoder = backbone or embedded_stages().to(images.device)
        features = FrozenFeatures(encoder, images, batch, progress)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = Reverse(features.shapes, depth).to(images)

        def loss_of(indices: Tensor, step: int) -> Tensor:
            layers = features(indices)
            return reconstruction_loss(layers, network(layers)[0])

        optimizer = torch.optim.Adam(network.parameters(), rate, betas=(0.5, 0.999))
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
        layers = self.features(images)
        [decoded] = self.network(layers)
        if project:
            layers, decoded = project(layers), project(decoded)
        return judge(layers, decoded, images.shape[-1], self.sigma)

    def prepare(self, project: Project) -> RD4AD:
        return self


class Residual(nn.Module):
    """Two convolutions and a way round them; `lower` halves the grid, `raised` multiplies it by a deconvolution."""

    def __init__(self, given: int, wanted: int, lower: bool = False, raised: int = 0) -> None:
        super().__init__()
        if raised:
            first = nn.ConvTranspose2d(given, wanted, raised, raised, bias=False)
            across = nn.ConvTranspose2d(given, wanted, raised, raised, bias=False)
        else:
            stride = 2 if lower else 1
            first = nn.Conv2d(given, wanted, 3, stride, 1, bias=False)
            across = nn.Conv2d(given, wanted, 1, stride, bias=False)
        second = nn.Conv2d(wanted, wanted, 3, 1, 1, bias=False)
        self.through = nn.Sequential(first, nn.BatchNorm2d(wanted), nn.ReLU(), second, nn.BatchNorm2d(wanted))
        same = given == wanted and not lower and not raised
        self.across = nn.Identity() if same else nn.Sequential(across, nn.BatchNorm2d(wanted))

    def forward(self, maps: Tensor) -> Tensor:
        return F.relu(self.through(maps) + self.across(maps))


class Embedding(nn.Module):
    """All layers fused on the deepest one's grid, then on half of it: too narrow to carry a defect through."""

    def __init__(self, shapes: Sequence[Shape], depth: int) -> None:
        super().__init__()
        channels, side = shapes[-1][0], shapes[-1][1]
        self.lowered = nn.ModuleList(_lowering(shape[0], channels, _doublings(shape[1], side)) for shape in shapes[:-1])
        self.fused = _convolution(len(shapes) * channels, channels, 1, 1)
        self.width = 2 * channels
        blocks = [Residual(channels, self.width, lower=True)]
        self.embedded = nn.Sequential(*blocks, *(Residual(self.width, self.width) for _ in range(depth - 1)))

    def forward(self, layers: Maps) -> Tensor:
        grid = layers[-1].shape[2:]
        shallow = [on_grid(lower(maps), grid) for lower, maps in zip(self.lowered, layers[:-1], strict=True)]
        return self.embedded(self.fused(torch.cat([*shallow, layers[-1]], dim=1)))


class Heads(nn.ModuleList):
    """Several layers on one input."""

    def forward(self, maps: Tensor) -> list[Tensor]:
        return [head(maps) for head in self]


class Decoder(nn.Module):
    """The encoder's stages from the deepest back to the shallowest, with `heads` outputs for each."""

    def __init__(self, given: int, shapes: Sequence[Shape], depth: int, heads: int) -> None:
        super().__init__()
        stages, outputs = [], []
        side = math.ceil(shapes[-1][1] / 2)
        for channels, height, _ in reversed(shapes):
            width = max(channels, NARROWEST)
            stage = [Residual(given, width, raised=2 ** _doublings(height, side))]
            stages.append(nn.Sequential(*stage, *(Residual(width, width) for _ in range(depth - 1))))
            # Linear: the stages of many networks are signed, where a ResNet's end in a ReLU.
            outputs.append(Heads(nn.Conv2d(width, channels, 1) for _ in range(heads)))
            given, side = width, height
        self.stages, self.outputs = nn.ModuleList(stages), nn.ModuleList(outputs)

    def forward(self, embedded: Tensor, grids: Sequence[torch.Size]) -> list[list[Tensor]]:
        """For each head the layers, shallow to deep, on the grids the encoder had them."""
        decoded: list[list[Tensor]] = []
        for stage, outputs, grid in zip(self.stages, self.outputs, reversed(grids), strict=True):
            embedded = on_grid(stage(embedded), grid)
            decoded.append(outputs(embedded))
        return [list(layers) for layers in zip(*reversed(decoded), strict=True)]


class Reverse(nn.Module):
    """Layers in, the same layers out, through the embedding."""

    def __init__(self, shapes: Sequence[Shape], depth: int = 2, heads: int = 1) -> None:
        super().__init__()
        self.embedding = Embedding(shapes, depth)
        self.decoder = Decoder(self.embedding.width, shapes, depth, heads)
        self.to(memory_format=torch.channels_last)

    def forward(self, layers: Maps) -> list[list[Tensor]]:
        layers = [maps.contiguous(memory_format=torch.channels_last) for maps in layers]
        return self.decoder(self.embedding(layers), [maps.shape[2:] for maps in layers])


def cosine_maps(layers: Maps, decoded: Maps) -> list[Float[Tensor, "image _ _"]]:
    """Eq. 1: 1 − cos along the channels at every position of every layer."""
    return [1 - F.cosine_similarity(a, b, dim=1) for a, b in zip(layers, decoded, strict=True)]


def reconstruction_loss(layers: Maps, decoded: Maps) -> Float[Tensor, ""]:
    """Eq. 2: the layers' mean discrepancies, summed. Public code takes one cosine of a whole flattened map instead."""
    return torch.stack([maps.mean() for maps in cosine_maps(layers, decoded)]).sum()


def judge(layers: Maps, decoded: Maps, size: int, sigma: float) -> HostScores:
    """Sec. 3.4: discrepancies laid over the image, summed over layers and smoothed; the largest is the score."""
    # Smoothing is linear: of the sum or of the summands is the same.
    smooth = (pixel_maps(gaps.flatten(1), size, sigma) for gaps in cosine_maps(layers, decoded))
    maps = sum(smooth, torch.zeros(()))
    return HostScores(maps.flatten(1).amax(dim=1), maps)


def _doublings(large: int, small: int) -> int:
    return max(0, round(math.log2(large / small)))


def _lowering(given: int, wanted: int, halvings: int) -> nn.Sequential:
    """3×3 convolutions of stride 2 until the grid is reached; the channels are changed by the last."""
    if halvings == 0:
        return _convolution(given, wanted, 3, 1)
    ways = [_convolution(given, wanted if last else given, 3, 2) for last in [False] * (halvings - 1) + [True]]
    return nn.Sequential(*ways)


def _convolution(given: int, wanted: int, size: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(given, wanted, size, stride, size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(wanted), nn.ReLU())


def on_grid(maps: Tensor, grid: torch.Size) -> Tensor:
    """Only where a grid does not halve evenly is anything moved."""
    return maps if maps.shape[2:] == grid else F.interpolate(maps, grid, mode="bilinear", align_corners=False)
