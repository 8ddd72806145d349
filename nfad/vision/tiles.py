"""Large views in overlapping tiles: the network sees one at a time at the scale it was trained for, and what it says
of all of them is laid into one grid, so that nothing behind the teacher knows of tiles.

Of every tile the tokens away from its inner edges are kept: near an edge a network sees its own padding, and a tile's
neighbour sees the part. Memory is that of a few tiles and of the tokens, whatever the view's size.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.vision.devices import CPU
from nfad.vision.region import Region, looked_at
from nfad.vision.teacher import CnnTeacher, Teacher, VitTeacher, load_teacher

RIM = 64  # pixels at an inner edge that are left to the neighbour: within them a CNN's padding outweighs its neighbours
STEP = 16  # where tiles begin and end: a ViT's patch and the stride of a CNN's fourth stage
AT_ONCE = 2**20  # pixels of tiles that the network looks at together


def starts(size: int, tile: int) -> list[int]:
    """Where tiles begin along one side: as few as overlap by two rims, evenly spread."""
    if tile >= size:
        return [0]
    stride = tile - 2 * rim(tile)
    count = -(-(size - tile) // stride) + 1
    return [round(place * (size - tile) / (count - 1) / STEP) * STEP for place in range(count)]


def rim(tile: int) -> int:
    return min(RIM, tile // 4 // STEP * STEP)


def spans(size: int, tile: int) -> list[tuple[int, int, int]]:
    """Along one side: where a tile begins, and from where to where it is kept; the cuts halve the overlaps."""
    begin = starts(size, tile)
    middles = [(here + tile + after) // 2 // STEP * STEP for here, after in pairwise(begin)]
    return list(zip(begin, [0, *middles], [*middles, size], strict=True))


class Tiled:
    """A teacher of views larger than it looks at once. The prior, a matter of the whole part, is that of the view at
    the tile's size."""

    region: Region | None = None

    def __init__(self, teacher: VitTeacher | CnnTeacher, size: int, tile: int) -> None:
        self.teacher, self.network, self.tile = teacher, teacher.network, tile
        self.identity, self.channels, self.device = teacher.identity, teacher.channels, teacher.device
        self._pixels = tile // teacher.grid  # a token's side
        self.grid = size // self._pixels
        self.spans = spans(size, tile)

    @property
    def count(self) -> int:
        return len(self.spans) ** 2

    def tokens(self, images: Float[Tensor, "image 3 h w"]) -> list[Float[Tensor, "image token _"]]:
        images, pixels, side = looked_at(self.region, images), self._pixels, self.teacher.grid
        found = [torch.empty(len(images), self.grid, self.grid, c) for c in self.channels]
        places = [(down, across) for down in self.spans for across in self.spans]
        some = max(1, AT_ONCE // (len(images) * self.tile**2))
        for first in range(0, len(places), some):
            chosen = places[first : first + some]
            tiles = [self._cut(images, down[0], across[0]) for down, across in chosen]
            for laid, block in zip(found, self.teacher.tokens(torch.cat(tiles)), strict=True):
                squares = block.unflatten(1, (side, side)).split(len(images))
                for (down, across), square in zip(chosen, squares, strict=True):
                    (y, top, bottom), (x, left, right) = ([each // pixels for each in span] for span in (down, across))
                    laid[:, top:bottom, left:right] = square[:, top - y : bottom - y, left - x : right - x]
        return [block.flatten(1, 2) for block in found]

    def tokens_and_prior(
        self, images: Float[Tensor, "image 3 h w"]
    ) -> tuple[list[Float[Tensor, "image token _"]], Float[Tensor, "image token"]]:
        return self.tokens(images), self.prior(images)

    def prior(self, images: Float[Tensor, "image 3 h w"]) -> Float[Tensor, "image token"]:
        images, side = looked_at(self.region, images), self.teacher.grid
        small = F.interpolate(images, (self.tile, self.tile), mode="bilinear", antialias=True, align_corners=False)
        coarse = self.teacher.tokens_and_prior(small)[1].reshape(-1, 1, side, side)
        return F.interpolate(coarse, (self.grid, self.grid), mode="bilinear", align_corners=False).flatten(1)

    def stacked(self, images: Float[Tensor, "image 3 h w"]) -> Float[Tensor, "tile image 3 side side"]:
        """All tiles of the views, for a graph that looks at one after the other."""
        begin = [start for start, _, _ in self.spans]
        images = looked_at(self.region, images)
        return torch.stack([self._cut(images, top, left) for top in begin for left in begin])

    @property
    def kept(self) -> Int[Tensor, " token"]:
        """Of all tiles' tokens, one tile after the other: the place of each token of the grid."""
        side, laid = self.teacher.grid, torch.empty(self.grid, self.grid, dtype=torch.long)
        for number, (down, across) in enumerate((down, across) for down in self.spans for across in self.spans):
            (y, top, bottom), (x, left, right) = ([each // self._pixels for each in span] for span in (down, across))
            rows, columns = torch.arange(top - y, bottom - y), torch.arange(left - x, right - x)
            laid[top:bottom, left:right] = number * side**2 + rows[:, None] * side + columns
        return laid.flatten()

    def _cut(self, images: Tensor, top: int, left: int) -> Tensor:
        return images[..., top : top + self.tile, left : left + self.tile]


def tiled_teacher(
    name: str,
    weights: str | None,
    blocks: Sequence[int],
    prior_blocks: Sequence[int],
    size: int,
    tile: int | None,
    device: torch.device = CPU,
) -> VitTeacher | CnnTeacher | Tiled:
    """`load_teacher` for views that are seen in tiles of this side; whole without one, or one as large as the view."""
    if tile is None or tile == size:
        return load_teacher(name, weights, blocks, prior_blocks, size, device)
    return Tiled(load_teacher(name, weights, blocks, prior_blocks, tile, device), size, tile)


def looking_at(teacher: Teacher, region: Region) -> VitTeacher | CnnTeacher | Tiled:
    """The same network for photos of which only a region counts."""
    if not isinstance(teacher, (VitTeacher, CnnTeacher, Tiled)):
        raise NfadError(f"a mask needs a teacher of its own, not {type(teacher).__name__}")
    other = copy.copy(teacher)
    other.region = region
    return other
