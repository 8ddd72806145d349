"""Dinomaly (Guo et al. 2025): a decoder kept too blunt to copy a defect gives a ViT's middle layers back.

Dropout makes the bottleneck noisy, linear attention cannot focus, and layers are compared in two groups, their easy
positions counting little. Patch tokens alone pass through it (the published code's `remove_class_token`), or the class
token with them (its default); that one is never compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts.backbone import Backbone, VitMaps, maps_and_prior, square_images, vit_maps
from nfad.hosts.host import HostScores, Project
from nfad.hosts.recontrast import global_cosine
from nfad.hosts.reverse import Maps, cosine_maps
from nfad.hosts.training import FrozenFeatures, batches, steps_of, train
from nfad.system.progress import Progress
from nfad.vision.maps import image_score, pixel_maps

BLOCKS = (2, 3, 4, 5, 6, 7, 8, 9)
DROPOUT, CLIP = 0.2, 0.1
EASY, FACTOR, RISE = (
    0.9,
    0.1,
    0.1,
)  # share of easy positions, what their gradient counts, share of the steps it rises in
WARM, LAST = 0.02, 0.1  # share of the steps the rate rises in, and what it falls to


@dataclass(frozen=True)
class Dinomaly:
    """The frozen ViT, and the decoder trained to give two means of its layers back."""

    backbone: Backbone
    network: Rebuilder
    losses: tuple[float, ...]  # of every step of the training
    sigma: float = 4.0
    class_token: bool = False

    @classmethod
    def fit(
        cls,
        normal_images: Tensor,
        backbone: Backbone | None = None,
        steps: int = 5000,
        rate: float = 2e-3,
        depth: int = 8,
        heads: int = 6,
        sigma: float = 4.0,
        seed: int = 54,
        batch: int = 16,
        progress: Progress | None = None,
        class_token: bool = False,
    ) -> Dinomaly:
        """Train with AdamW (the paper's stabilised variant clips each tensor's step too), warm-up and a cosine's fall.

        `depth` is the decoder's blocks; the backbone gives as many layers, and sees every image once. With
        `class_token` the decoder sees each layer's too.
        """
        images = square_images(normal_images, cls.__name__)
        steps = steps_of(steps, 1, len(images), batch)
        encoder = backbone or vit_maps(blocks=BLOCKS, last=False, device=images.device)
        features = FrozenFeatures(lambda views: _read(encoder, views, class_token), images, batch, progress)
        width, count = features.shapes[0][0], len(features.shapes) // (2 if class_token else 1)
        if count != depth or depth % 2 or width % heads:
            raise NfadError(
                f"depth must be even and the number of the backbone's layers, and their channels a multiple of heads; "
                f"got depth {depth} for {count} layers of {width} channels, {heads} heads"
            )
        with torch.random.fork_rng(devices=[]):  # initial weights and dropout draw from it
            torch.manual_seed(seed)
            network = Rebuilder(width, depth, heads).to(images)

            def loss_of(indices: Tensor, step: int) -> Tensor:
                layers, tokens = _split(features(indices), depth)
                return loose_loss(grouped(layers), network(layers, tokens), easy_share(step, steps))

            optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=1e-4, amsgrad=True)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_share(step, steps))
            chosen = batches(len(images), batch, steps, seed)
            losses = train(network, loss_of, [optimizer], chosen, steps, progress, CLIP, schedule)
        return cls(encoder, network, losses, sigma, class_token)

    @property
    def unit(self) -> bool:
        return True  # cosines compare directions

    def features(self, images: Tensor) -> list[Tensor]:
        """The two means that are compared."""
        return grouped(self.backbone(square_images(images, type(self).__name__)))

    def features_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor | None]:
        maps, prior = maps_and_prior(self.backbone, square_images(images, type(self).__name__))
        return grouped(maps), prior

    @torch.inference_mode()
    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        read = _read(self.backbone, square_images(images, type(self).__name__), self.class_token)
        layers, tokens = _split(read, len(self.network.blocks))
        means, rebuilt = grouped(layers), self.network(layers, tokens)
        if project:
            means, rebuilt = project(means), project(rebuilt)
        gaps = torch.stack(cosine_maps(means, rebuilt)).mean(dim=0)
        pixels = pixel_maps(gaps.flatten(1), images.shape[-1], self.sigma)
        return HostScores(image_score(pixels), pixels)

    def prepare(self, project: Project) -> Dinomaly:
        return self


def _read(backbone: Backbone, images: Tensor, class_token: bool) -> list[Tensor]:
    """The layers' maps and, where they are asked for, behind them their class tokens, as maps of one position."""
    if not class_token:
        return backbone(images)
    if not isinstance(backbone, VitMaps):
        raise NfadError(f"class_token needs a backbone of vit_maps(…); got {type(backbone).__name__}: leave it out")
    maps, tokens = backbone.maps_and_summaries(images)
    return [*maps, *(each[:, :, None, None] for each in tokens)]


def _split(read: list[Tensor], depth: int) -> tuple[list[Tensor], list[Tensor]]:
    return read[:depth], read[depth:]


class Rebuilder(nn.Module):
    """All layers' mean through a noisy bottleneck, then decoder blocks, their outputs grouped from the last back."""

    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.bottleneck = Mlp(width, DROPOUT, noisy_input=True)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.01, a=-0.03, b=0.03)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, layers: Maps, class_tokens: Maps = ()) -> list[Tensor]:
        """`class_tokens`, as maps of one position, pass through with the others and are left out at the end."""
        shape, extra = layers[0].shape, 1 if class_tokens else 0
        tokens = torch.stack(list(layers)).mean(dim=0).flatten(2).transpose(1, 2)
        if class_tokens:
            tokens = torch.cat([torch.stack(list(class_tokens)).mean(dim=0).flatten(2).transpose(1, 2), tokens], dim=1)
        tokens = self.bottleneck(tokens)
        rebuilt = []
        for block in self.blocks:
            tokens = block(tokens)
            rebuilt.append(tokens[:, extra:].transpose(1, 2).reshape(shape))
        return grouped(rebuilt[::-1])  # the decoder's last block answers the encoder's first layer


class Block(nn.Module):
    """Linear attention and a two-layer network, each normalised before and added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-8), nn.LayerNorm(width, eps=1e-8)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = Mlp(width, 0.0)

    def forward(self, tokens: Float[Tensor, "image token channel"]) -> Float[Tensor, "image token channel"]:
        query, key, value = (
            each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in self.qkv(self.norm1(tokens)).chunk(3, dim=2)
        )
        seen = linear_attention(query, key, value).transpose(1, 2).flatten(2)
        tokens = tokens + self.proj(seen)
        return tokens + self.mlp(self.norm2(tokens))


class Mlp(nn.Module):
    """Two linear layers without biases; the bottleneck's has dropout before, between and after."""

    def __init__(self, width: int, dropout: float, noisy_input: bool = False) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.drop, self.noisy_input = nn.Dropout(dropout), noisy_input

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = self.drop(tokens) if self.noisy_input else tokens
        return self.drop(self.fc2(self.drop(F.gelu(self.fc1(tokens)))))


def linear_attention(
    query: Float[Tensor, "image head token channel"],
    key: Float[Tensor, "image head token channel"],
    value: Float[Tensor, "image head token channel"],
) -> Float[Tensor, "image head token channel"]:
    """φ(q) Σ φ(k)ᵀv / φ(q) Σ φ(k) with φ = elu + 1: no softmax, so attention cannot narrow to a place."""
    query, key = F.elu(query) + 1, F.elu(key) + 1
    weight = 1 / (query * key.sum(dim=-2, keepdim=True)).sum(dim=-1, keepdim=True)
    return query @ (key.transpose(-2, -1) @ value) * weight


def grouped(layers: Maps) -> list[Tensor]:
    """Loose constraint: the mean of the first half of the layers, and that of the second."""
    half = len(layers) // 2
    return [torch.stack(list(group)).mean(dim=0) for group in (layers[:half], layers[half:])]


def loose_loss(means: Maps, rebuilt: Maps, easy: float) -> Float[Tensor, ""]:
    """Loose loss: one global cosine distance a group, averaged; the easy positions pass little gradient."""
    losses = [global_cosine(a.detach(), damped(a.detach(), b, easy)) for a, b in zip(means, rebuilt, strict=True)]
    return torch.stack(losses).mean()


def damped(
    wanted: Float[Tensor, "image channel y x"], rebuilt: Float[Tensor, "image channel y x"], easy: float
) -> Float[Tensor, "image channel y x"]:
    """Unchanged, but where it is nearer than the farthest (1 − easy) of the positions its gradient counts a tenth."""
    with torch.no_grad():
        [gaps] = cosine_maps([wanted], [rebuilt])
        hard = gaps >= gaps.flatten().topk(max(1, int(gaps.numel() * (1 - easy)))).values[-1]
    return torch.where(hard[:, None], rebuilt, rebuilt.detach() * (1 - FACTOR) + rebuilt * FACTOR)


def easy_share(step: int, steps: int) -> float:
    """Rises from none to nine tenths of the positions over the first part of the training."""
    return min(EASY * step / max(RISE * steps, 1), EASY)


def rate_share(step: int, steps: int) -> float:
    """Of the learning rate: a linear rise, then half a cosine down to a tenth."""
    warm = max(1, round(WARM * steps))
    if step < warm:
        return (step + 1) / warm
    return LAST + (1 - LAST) * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))) / 2
