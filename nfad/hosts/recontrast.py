"""ReContrast (Guo et al. 2023): RD4AD whose encoder adapts to the domain, held in place by a frozen copy of itself."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts.backbone import Backbone, embedded_stages, maps_and_prior, square_images
from nfad.hosts.host import HostScores, Project
from nfad.hosts.reverse import Maps, Reverse, Shape, cosine_maps, judge
from nfad.hosts.training import FrozenFeatures, batches, steps_of, train
from nfad.system.progress import Progress

ENCODER_RATE = 1e-5
WEIGHT_DECAY = 1e-5


@dataclass(frozen=True)
class ReContrast:
    """Two encoders, one frozen and one adapted, and the decoder that gives each one's layers from the other's."""

    network: Contrast
    losses: tuple[float, ...]  # of every step of the training
    sigma: float = 4.0

    @classmethod
    def fit(
        cls,
        normal_images: Tensor,
        backbone: Backbone | None = None,
        steps: int = 2000,
        rate: float = 2e-3,
        depth: int = 2,
        batch_statistics: bool = True,
        sigma: float = 4.0,
        seed: int = 54,
        batch: int = 16,
        progress: Progress | None = None,
    ) -> ReContrast:
        """Train the decoder at `rate` and a copy of the backbone at 1e-5, both with AdamW.

        `batch_statistics` has the copy's BatchNorm in training mode; the published code turns it off for some objects,
        mostly textures. The given backbone is copied, never changed.
        """
        images = square_images(normal_images, cls.__name__)
        if backbone is not None and not isinstance(backbone, nn.Module):
            raise NfadError(
                "ReContrast trains a copy of its backbone, so it takes a torch module such as embedded_stages() or "
                f"timm_maps(…); got {type(backbone).__name__}"
            )
        steps = steps_of(steps, 1, len(images), batch)
        frozen = copy.deepcopy(backbone or embedded_stages().to(images.device)).eval().requires_grad_(False)
        features = FrozenFeatures(frozen, images, batch, progress)
        with torch.random.fork_rng(devices=[]):  # what a copied backbone drops at random draws from it too
            torch.manual_seed(seed)
            network = Contrast(frozen, features.shapes, depth).to(images)
            network.encoder.train(batch_statistics)

            def loss_of(indices: Tensor, step: int) -> Tensor:
                layers, decoded = network(images[indices], features(indices))
                return contrast_loss(layers, decoded, hardness(step, steps))

            optimizers = [
                torch.optim.AdamW(network.reverse.parameters(), rate, weight_decay=WEIGHT_DECAY),
                torch.optim.AdamW(network.encoder.parameters(), ENCODER_RATE, weight_decay=WEIGHT_DECAY),
            ]
            chosen = batches(len(images), batch, steps, seed)
            losses = train(network, loss_of, optimizers, chosen, steps, progress)
        return cls(network, losses, sigma)

    @property
    def unit(self) -> bool:
        return True  # cosines compare directions

    @torch.inference_mode()
    def features(self, images: Tensor) -> list[Tensor]:
        """The frozen encoder's layers, then the adapted one's."""
        return self.features_and_prior(images)[0]

    @torch.inference_mode()
    def features_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor | None]:
        images = square_images(images, type(self).__name__)
        frozen, prior = maps_and_prior(self.network.frozen, images)
        return [*frozen, *self.network.encoder(images)], prior

    @torch.inference_mode()
    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        layers, decoded = self.network(square_images(images, type(self).__name__))
        if project:
            layers, decoded = project(layers), project(decoded)
        return judge(layers, decoded, images.shape[-1], self.sigma)

    def prepare(self, project: Project) -> ReContrast:
        return self


class Contrast(nn.Module):
    """A frozen encoder, a copy of it that is trained, and a decoder with a head for each."""

    def __init__(self, frozen: nn.Module, shapes: Sequence[Shape], depth: int) -> None:
        super().__init__()
        self.frozen = frozen
        self.encoder = copy.deepcopy(frozen).requires_grad_(True)
        self.reverse = Reverse(shapes, depth, heads=2)

    def forward(self, images: Tensor, frozen: Maps | None = None) -> tuple[list[Tensor], list[Tensor]]:
        """Layers of the frozen encoder and of the adapted one, and what is decoded for them; `frozen` if known."""
        fixed: Maps = self.frozen(images) if frozen is None else frozen
        adapted = self.encoder(images)
        # Together through the embedding, so that its batch statistics are those of both.
        first, second = self.reverse([torch.cat(pair) for pair in zip(adapted, fixed, strict=True)])
        # Crosswise: the frozen layers from the adapted ones' embedding, and the adapted layers from the frozen ones'.
        crossed = [maps[: len(images)] for maps in first] + [maps[len(images) :] for maps in second]
        return [*fixed, *adapted], crossed


def contrast_loss(layers: Maps, decoded: Maps, alpha: float) -> Float[Tensor, ""]:
    """Global cosine distance to each layer, mined for hard positions, summed over layers and halved: two encoders.

    No gradient enters by the layers themselves: the adapted encoder learns only by what is decoded from it.
    """
    pairs = [(a.detach(), b) for a, b in zip(layers, decoded, strict=True)]
    return torch.stack([global_cosine(a, hard_positions(a, b, alpha)) for a, b in pairs]).sum() / 2


def global_cosine(layer: Float[Tensor, "image _ _ _"], decoded: Float[Tensor, "image _ _ _"]) -> Float[Tensor, ""]:
    """1 − cos of the whole maps as one vector an image, averaged over images."""
    return (1 - F.cosine_similarity(layer.flatten(1), decoded.flatten(1), dim=1)).mean()


def hard_positions(
    layer: Float[Tensor, "image channel y x"], decoded: Float[Tensor, "image channel y x"], alpha: float
) -> Float[Tensor, "image channel y x"]:
    """What was decoded, unchanged, but passing gradient only where it is far: at mean + α·deviation and beyond."""
    with torch.no_grad():
        [gaps] = cosine_maps([layer], [decoded])
        hard = gaps >= gaps.mean() + alpha * gaps.std()
    return torch.where(hard[:, None], decoded, decoded.detach())


def hardness(step: int, steps: int) -> float:
    """α rises from −3 to 1 over the first tenth of the training, then stays."""
    return min(-3 + 4 * step / (0.1 * steps), 1.0)
