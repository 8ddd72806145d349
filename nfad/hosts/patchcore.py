"""PatchCore (Roth et al. 2022) on any layer maps: a coreset of normal patches, and the distance to the nearest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts.backbone import embedded_maps
from nfad.hosts.host import HostScores, Project, checked_images, in_batches
from nfad.system.progress import Progress
from nfad.vision.maps import pixel_maps

Backbone = Callable[[Tensor], list[Tensor]]
PROJECTED = 128  # dimensions in which the coreset is chosen


@dataclass(frozen=True)
class PatchCore:
    """Fitted by holding patches of normal images; nothing is trained."""

    backbone: Backbone
    bank: Float[Tensor, "entry channel"]
    channels: tuple[int, ...]  # of each layer, side by side in the bank
    neighbours: int = 9  # b of Eq. 7; below 2 the largest distance is the score
    sigma: float = 4.0

    @classmethod
    def fit(
        cls,
        normal_images: Tensor,
        backbone: Backbone | None = None,
        share: float = 0.1,
        neighbours: int = 9,
        sigma: float = 4.0,
        seed: int = 54,
        batch: int = 8,
        progress: Progress | None = None,
    ) -> PatchCore:
        """Keep the `share` of all normal patches that covers the rest best.

        All patches are held while it is chosen: 4 bytes × images × positions × channels.
        """
        images = _square(normal_images)
        if not 0 < share <= 1:
            raise NfadError(f"share must lie above 0 and at most 1; got {share}")
        network = backbone or embedded_maps(device=images.device)
        rows, channels = [], ()
        for part in in_batches(images, batch, progress):
            layers = locally_pooled(network(part))
            channels = tuple(maps.shape[1] for maps in layers)
            rows.append(patches(layers).flatten(0, 1))
        everything = torch.cat(rows)
        kept = greedy_coreset(everything, max(1, round(share * len(everything))), seed, progress)
        return cls(network, everything[kept], channels, neighbours, sigma)

    @property
    def unit(self) -> bool:
        return False  # plain Euclidean distances

    def features(self, images: Tensor) -> list[Tensor]:
        return locally_pooled(self.backbone(_square(images)))

    def features_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor | None]:
        together = getattr(self.backbone, "maps_and_prior", None)
        if together is None:
            return self.features(images), None
        maps, prior = together(_square(images))
        return locally_pooled(maps), prior

    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        features = self.features(images)
        return self.judge(project(features) if project else features, images.shape[-1])

    def judge(self, features: Sequence[Tensor], size: int) -> HostScores:
        """The map is every patch's distance to its nearest entry; the image's score is Eq. 7 of its farthest patch."""
        query = patches(features)
        if query.shape[2] != self.bank.shape[1]:
            raise NfadError(f"the bank holds {self.bank.shape[1]} channels; the features have {query.shape[2]}")
        scores, distances = [], []
        for image in query:  # one at a time: positions × entries is what takes the memory
            distance, nearest = nearest_entries(image, self.bank)
            farthest = int(distance.argmax())
            weight = 1.0
            if self.neighbours > 1:
                weight = rarity(image[farthest], int(nearest[farthest]), self.bank, self.neighbours)
            distances.append(distance)
            scores.append(weight * distance[farthest])
        maps = pixel_maps(torch.stack(distances), size, self.sigma)
        return HostScores(torch.stack(scores), maps)

    def prepare(self, project: Project) -> PatchCore:
        """The bank through `project`, once: projection passes through pooling and resizing, being channel-wise."""
        layers = self.bank.split(self.channels, dim=1)
        filtered = project([layer[:, :, None, None] for layer in layers])
        return replace(self, bank=torch.cat([layer[:, :, 0, 0] for layer in filtered], dim=1))


def locally_pooled(layers: Sequence[Float[Tensor, "image _ _ _"]]) -> list[Float[Tensor, "image _ _ _"]]:
    """Mean over 3×3 positions; zeros beyond the border count, as in the published code."""
    return [F.avg_pool2d(maps, 3, stride=1, padding=1) for maps in layers]


def patches(layers: Sequence[Float[Tensor, "image _ _ _"]]) -> Float[Tensor, "image token channel"]:
    """Layers side by side on the first one's grid."""
    grid = layers[0].shape[2:]
    same = [
        maps if maps.shape[2:] == grid else F.interpolate(maps, grid, mode="bilinear", align_corners=False)
        for maps in layers
    ]
    return torch.cat(same, dim=1).flatten(2).transpose(1, 2)


def greedy_coreset(
    rows: Float[Tensor, "row channel"], count: int, seed: int, progress: Progress | None = None
) -> Int[Tensor, " count"]:
    """Farthest-point choice from a seeded start: each next row is the one farthest from those chosen (Alg. 1).

    Distances are measured after a random Gaussian projection, which keeps them in proportion (Johnson, Lindenstrauss).
    """
    generator = torch.Generator().manual_seed(seed)
    start = int(torch.randint(len(rows), (1,), generator=generator))
    if rows.shape[1] > PROJECTED:
        rows = rows @ (torch.randn(rows.shape[1], PROJECTED, generator=generator) / PROJECTED**0.5).to(rows)
    squares = rows.square().sum(dim=1)
    chosen = torch.empty(count, dtype=torch.int64)
    least = torch.full_like(squares, torch.inf)
    current = start
    for place in range(count):
        chosen[place] = current
        least = torch.minimum(least, squares - 2 * (rows @ rows[current]) + squares[current])
        least[current] = -torch.inf  # a row is taken once, however rounding falls
        current = int(least.argmax())
        if progress and (place + 1) % 100 == 0:
            progress("choosing patches", place + 1, count)
    return chosen


def nearest_entries(
    query: Float[Tensor, "token channel"], bank: Float[Tensor, "entry channel"]
) -> tuple[Float[Tensor, " token"], Int[Tensor, " token"]]:
    """Distance to the nearest entry, and which it is."""
    nearest = (bank.square().sum(dim=1) - 2 * query @ bank.T).argmin(dim=1)
    # Differences, not expanded squares: those lose a small distance between large features to rounding.
    return (query - bank[nearest]).norm(dim=1), nearest


def rarity(
    patch: Float[Tensor, " channel"], nearest: int, bank: Float[Tensor, "entry channel"], neighbours: int
) -> Float[Tensor, ""]:
    """Eq. 7: 1 − e^‖p − m*‖ / Σ e^‖p − m‖ over the b entries nearest to m* (itself one): near 1 where m* is alone."""
    around = (bank - bank[nearest]).norm(dim=1).topk(min(neighbours, len(bank)), largest=False).indices
    distances = (bank[around] - patch).norm(dim=1)
    return 1 - 1 / (distances - (bank[nearest] - patch).norm()).exp().sum()


def _square(images: Tensor) -> Tensor:
    images = checked_images(images)
    if images.shape[2] != images.shape[3]:
        raise NfadError(f"PatchCore takes square images; got {images.shape[2]}×{images.shape[3]}: resize or crop them")
    return images
