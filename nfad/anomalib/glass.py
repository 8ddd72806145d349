"""GLASS (Chen et al. 2024) as anomalib has it, trained in minutes on the embedded CNN, so without a download."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from anomalib.models.components import TimmFeatureExtractor
from anomalib.models.image.glass.torch_model import GlassModel
from torch import Tensor, nn, optim

from nfad.anomalib.host import AnomalibHost
from nfad.errors import NfadError
from nfad.hosts.host import checked_images
from nfad.system.progress import Progress
from nfad.vision.weights import EMBEDDED_ARCHITECTURE, embedded_cnn

LAYERS = ["blocks.2", "blocks.4"]  # 1/8 and 1/16 of the image, the stages the other hosts read
DIMENSIONS = 256  # of the embedding: these stages have 40 and 112 channels, not the 1536 published for a wide ResNet
ASCENT = 5  # steps uphill from a normal feature; the published 20 cost four times as much


def fit_glass(
    normal_images: Tensor,
    steps: int = 200,
    batch: int = 4,
    learning_rate: float = 1e-3,
    seed: int = 54,
    progress: Progress | None = None,
) -> AnomalibHost:
    """anomalib's GlassModel by `steps` of its own loss; synthetic defects take no textures from outside.

    The published schedule is thousands of steps at a tenth of this rate.
    """
    images = checked_images(normal_images)
    if steps < 1 or batch < 2:
        raise NfadError(f"steps must be at least 1 and batch at least 2, for its batch norm; got {steps} and {batch}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = embedded_cnn()
        mean, std = list(network.pretrained_cfg["mean"]), list(network.pretrained_cfg["std"])
        model = GlassModel(
            input_shape=(images.shape[2], images.shape[3]),
            backbone=EMBEDDED_ARCHITECTURE["embedded-cnn"],
            pre_trained=False,  # True would ask the hub
            layers=LAYERS,
            pretrain_embed_dim=DIMENSIONS,
            target_embed_dim=DIMENSIONS,
            discriminator_hidden=DIMENSIONS,
            step=ASCENT,
            normalize_mean=mean,
            normalize_std=std,
        )
        _freeze(model, network)
        shift, scale = (torch.tensor(values)[:, None, None] for values in (mean, std))

        def prepared(images: Tensor) -> Tensor:
            return (images - shift) / scale

        _train(model, prepared(images), steps, batch, learning_rate, progress)
    return AnomalibHost.of_torch(model.eval().requires_grad_(False), prepared, images)


def _train(
    model: GlassModel, images: Tensor, steps: int, batch: int, learning_rate: float, progress: Progress | None
) -> None:
    """Optimisers and rates in proportion as in anomalib's Glass."""
    optimisers = (
        optim.AdamW(model.discriminator.parameters(), lr=2 * learning_rate),
        optim.Adam(model.projection.parameters(), lr=learning_rate, weight_decay=1e-5),
    )
    done = 0
    while done < steps:
        # Normalised images, as the loss sees them: the projection moves, so their centre is found anew every pass.
        parts = [SimpleNamespace(image=part) for part in images.split(batch)]
        # anomalib's signature says DataLoader; all it does is iterate
        model.calculate_center(parts, images.device)  # pyright: ignore[reportArgumentType]
        model.train()
        for chosen in torch.randperm(len(images)).split(batch)[: steps - done]:
            *_, loss = model(images[chosen])
            for optimiser in optimisers:
                optimiser.zero_grad()
            loss.backward()
            for optimiser in optimisers:
                optimiser.step()
            done += 1
            if progress:
                progress("training GLASS", done, steps)


def _freeze(model: GlassModel, network: nn.Module) -> None:
    """The weights into anomalib's extractor, and the state `pre_trained=True` would have left it in."""
    extractor = model.forward_modules["feature_aggregator"]
    if not isinstance(extractor, TimmFeatureExtractor):
        raise NfadError("this anomalib's Glass reads its features otherwise than expected; install anomalib>=2.7,<2.8")
    left_over = extractor.feature_extractor.load_state_dict(network.state_dict(), strict=False)
    assert not left_over.missing_keys
    extractor.eval().requires_grad_(False)
    extractor.requires_grad, model.pre_trained = False, True
