"""UniAD (You et al. 2022): a transformer that may not look where it reconstructs, so it cannot copy a defect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts.backbone import Backbone, embedded_stages, maps_and_prior, square_images
from nfad.hosts.host import HostScores, Project
from nfad.hosts.training import FrozenFeatures, batches, steps_of, train
from nfad.system.progress import Progress
from nfad.vision.maps import pixel_maps

STAGES = (0, 1, 2, 3)  # 1/2 to 1/16 of the image, as the paper reads its EfficientNet
POOL = 16  # pixels a side that an image's score is averaged over
CLIP = 0.1
LATE = 0.8  # of the training, after which the learning rate is a tenth


@dataclass(frozen=True)
class UniAD:
    """The frozen backbone's layers on the deepest one's grid, and the transformer that reconstructs them."""

    backbone: Backbone
    network: Reconstruction
    losses: tuple[float, ...]  # of every step of the training
    sigma: float = 0.0

    @classmethod
    def fit(
        cls,
        normal_images: Tensor,
        backbone: Backbone | None = None,
        epochs: int = 1000,
        steps: int | None = None,
        rate: float = 1e-4,
        width: int = 256,
        depth: int = 4,
        heads: int = 8,
        neighbours: int = 7,
        jitter: float = 20.0,
        dropout: float = 0.1,
        sigma: float = 0.0,
        seed: int = 54,
        batch: int = 16,
        progress: Progress | None = None,
    ) -> UniAD:
        """Train with AdamW; `steps` (of `batch` images) instead of `epochs` where time is short.

        `neighbours` is the side of the square of positions that attention leaves out, `jitter` the noise's α, `depth`
        the layers of encoder and decoder each. The backbone sees every image once.
        """
        images = square_images(normal_images, cls.__name__)
        steps = steps_of(steps, epochs, len(images), batch)
        layers = backbone or embedded_stages(STAGES).to(images.device)
        features = FrozenFeatures(lambda views: on_one_grid(layers(views)), images, batch, progress)
        channels, grid = [shape[0] for shape in features.shapes], features.shapes[0][1]
        if width % (2 * heads):
            raise NfadError(f"width must be a multiple of twice the heads; got {width} for {heads} heads")
        with torch.random.fork_rng(devices=[]):  # initial weights, dropout and jitter all draw from it
            torch.manual_seed(seed)
            network = Reconstruction(sum(channels), grid, width, depth, heads, neighbours, dropout).to(images)

            def loss_of(indices: Tensor, step: int) -> Tensor:
                wanted = torch.cat(features(indices), dim=1)
                return F.mse_loss(network(jittered(wanted, jitter)), wanted)

            optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=1e-4)
            late = torch.optim.lr_scheduler.StepLR(optimizer, max(1, round(LATE * steps)))
            chosen = batches(len(images), batch, steps, seed)
            losses = train(network, loss_of, [optimizer], chosen, steps, progress, CLIP, late)
        return cls(layers, network, losses, sigma)

    @property
    def unit(self) -> bool:
        return False  # Euclidean distances

    def features(self, images: Tensor) -> list[Tensor]:
        return on_one_grid(self.backbone(square_images(images, type(self).__name__)))

    def features_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor | None]:
        maps, prior = maps_and_prior(self.backbone, square_images(images, type(self).__name__))
        return on_one_grid(maps), prior

    @torch.inference_mode()
    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        layers = self.features(images)
        together = torch.cat(layers, dim=1)
        if together.shape[-1] != self.network.grid:
            raise NfadError(
                f"UniAD was fitted on a grid of {self.network.grid}² positions; these images give "
                f"{together.shape[-1]}²: resize them to the size it was fitted on"
            )
        rebuilt = list(self.network(together).split([maps.shape[1] for maps in layers], dim=1))
        if project:
            layers, rebuilt = project(layers), project(rebuilt)
        return judge(layers, rebuilt, images.shape[-1], self.sigma)

    def prepare(self, project: Project) -> UniAD:
        return self


class Reconstruction(nn.Module):
    """Maps in, maps out: encoder layers, then decoder layers that each start from queries of their own (Sec. 3.2)."""

    mask: Tensor

    def __init__(
        self, channels: int, grid: int, width: int, depth: int, heads: int, neighbours: int, dropout: float
    ) -> None:
        super().__init__()
        self.grid = grid
        self.register_buffer("mask", neighbour_mask(grid, neighbours), persistent=False)
        self.taken, self.given = nn.Linear(channels, width), nn.Linear(width, channels)
        self.rows, self.columns = (nn.Parameter(torch.rand(grid, width // 2)) for _ in range(2))
        self.encoder = nn.ModuleList(Layer(width, heads, dropout, attentions=1) for _ in range(depth))
        self.decoder = nn.ModuleList(Layer(width, heads, dropout, attentions=2) for _ in range(depth))
        self.queries = nn.Parameter(torch.randn(depth, grid**2, width))
        self.norm = nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, maps: Float[Tensor, "image channel y x"]) -> Float[Tensor, "image channel y x"]:
        tokens = self.taken(maps.flatten(2).transpose(1, 2))
        rows, columns = (axis.expand(self.grid, *axis.shape) for axis in (self.rows, self.columns))
        places = torch.cat([columns, rows.transpose(0, 1)], dim=2).flatten(0, 1)
        for layer in self.encoder:
            tokens = layer(tokens, [tokens], places, self.mask)
        encoded = tokens
        for layer, queries in zip(self.decoder, self.queries, strict=True):
            # The queries first ask the encoder, then what the layer before has made of it.
            tokens = layer(queries.expand_as(encoded), [encoded, tokens], places, self.mask)
        return self.given(self.norm(tokens)).transpose(1, 2).reshape(maps.shape)


class Layer(nn.Module):
    """Attention to each of the given memories in turn, then a two-layer network; normalised after each."""

    def __init__(self, width: int, heads: int, dropout: float, attentions: int) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(Attention(width, heads, dropout) for _ in range(attentions))
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(attentions + 1))
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, memories: Sequence[Tensor], places: Tensor, mask: Tensor) -> Tensor:
        for attention, norm, memory in zip(self.attentions, self.norms, memories, strict=False):
            tokens = norm(tokens + self.dropout(attention(tokens + places, memory + places, memory, mask)))
        return self.norms[-1](tokens + self.dropout(self.network(tokens)))


class Attention(nn.Module):
    """Multi-head attention that sees only where the mask allows."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        by_head = [
            linear(tokens).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for linear, tokens in ((self.query, query), (self.key, key), (self.value, value))
        ]
        dropout = self.dropout if self.training else 0.0
        seen = F.scaled_dot_product_attention(*by_head, attn_mask=mask, dropout_p=dropout)
        return self.out(seen.transpose(1, 2).flatten(2))


def neighbour_mask(grid: int, neighbours: int) -> Bool[Tensor, "token token"]:
    """Which positions each may look at: all but the square of `neighbours` a side around itself (Sec. 3.2)."""
    reach = neighbours // 2
    if neighbours < 1 or reach >= grid // 2:
        raise NfadError(
            f"neighbours must be at least 1 and leave something to look at on a grid of {grid}² (at most "
            f"{2 * (grid // 2) - 1}); got {neighbours}: lower it, or give larger images"
        )
    places = torch.arange(grid)
    near = (places[:, None] - places).abs() <= reach
    return ~(near[:, None, :, None] & near[None, :, None, :]).reshape(grid**2, grid**2)


def jittered(maps: Float[Tensor, "image channel y x"], scale: float) -> Float[Tensor, "image channel y x"]:
    """Sec. 3.2: Gaussian noise of deviation α‖f‖/C at each position, so that the network learns to denoise."""
    return maps + scale / maps.shape[1] * maps.norm(dim=1, keepdim=True) * torch.randn_like(maps)


def on_one_grid(layers: Sequence[Float[Tensor, "image _ _ _"]]) -> list[Float[Tensor, "image _ _ _"]]:
    """Each layer on the deepest one's grid, bilinear between pixel centres."""
    grid = layers[-1].shape[2:]
    return [
        maps if maps.shape[2:] == grid else F.interpolate(maps, grid, mode="bilinear", align_corners=False)
        for maps in layers
    ]


def judge(
    layers: Sequence[Float[Tensor, "image _ y x"]],
    rebuilt: Sequence[Float[Tensor, "image _ y x"]],
    size: int,
    sigma: float,
) -> HostScores:
    """The map is the difference's norm at every position; the score is the largest mean over POOL² pixels (Sec. 4)."""
    gaps = torch.cat([a - b for a, b in zip(layers, rebuilt, strict=True)], dim=1).norm(dim=1)
    maps = pixel_maps(gaps.flatten(1), size, sigma)
    return HostScores(F.avg_pool2d(maps, min(POOL, size), stride=1).flatten(1).amax(dim=1), maps)
