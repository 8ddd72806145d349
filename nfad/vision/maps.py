"""From token maps to pixel maps and an image score (supplement, "Scoring and read-out")."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

PIECE = 32  # pixels, of which the highest alone is looked at first: see `image_score`


def smoothing_kernel(sigma: float) -> Float[Tensor, " tap"]:
    """A Gaussian cut at four sigmas, summing to one."""
    radius = int(4 * sigma + 0.5)
    taps = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, dtype=torch.float64) / sigma) ** 2)
    return taps / taps.sum()


@lru_cache(maxsize=8)
def _expansion(grid: int, size: int, sigma: float) -> Float[Tensor, "size grid"]:
    """Bilinear upsampling (half-pixel centres), then the Gaussian: both linear and separable, so one matrix an axis."""
    steps = torch.eye(grid, dtype=torch.float64)[None, None]
    rows = F.interpolate(steps, (size, grid), mode="bilinear", align_corners=False)[0, 0]
    if sigma > 0:
        taps = smoothing_kernel(sigma)
        radius = len(taps) // 2
        padded = F.pad(rows.T[:, None], (radius, radius), mode="reflect")
        rows = F.conv1d(padded, taps[None, None])[:, 0].T
    return rows.float().contiguous()


def pixel_maps(tokens: Float[Tensor, "image token"], size: int, sigma: float) -> Float[Tensor, "image size size"]:
    """Token map → smoothed pixel map of the model's view."""
    grid = math.isqrt(int(tokens.shape[1]))  # int(): the older ONNX exporter hands out shapes as tensors
    expand = _expansion(grid, size, float(sigma)).to(tokens.device)
    return expand @ tokens.reshape(-1, grid, grid).to(expand.dtype) @ expand.T


@lru_cache(maxsize=8)
def _cells(grid: int, side: int) -> Float[Tensor, "cell token"]:
    cells, step = min(side, grid), max(grid // side, 1)
    along = torch.zeros(cells, grid)
    for cell in range(cells):
        along[cell, cell * step : (cell + 1) * step] = 1 / step
    return torch.kron(along, along)


def cell_means(tokens: Float[Tensor, "image token channel"], side: int) -> Float[Tensor, "image cell channel"]:
    """The mean token of each of so many cells a side; what is left over at the end counts in none. As a product, for a
    graph's mean over two of five dimensions is slow."""
    return _cells(math.isqrt(int(tokens.shape[1])), side).to(tokens.device) @ tokens


def image_score(maps: Float[Tensor, "image size size"], top_fraction: float = 0.01) -> Float[Tensor, " image"]:
    """Mean of the top fraction of pixels.

    So many pixels lie in at most as many pieces, those with the highest maxima: nothing else need be sorted.
    """
    flat = maps.flatten(1)
    pixels = int(flat.shape[1])
    count = max(1, int(top_fraction * pixels))
    if pixels % PIECE == 0 and 2 * PIECE * count <= pixels:
        pieces = flat.unflatten(1, (pixels // PIECE, PIECE))
        highest = pieces.amax(dim=2).topk(count, dim=1).indices
        # Counted by sums of what varies: the older ONNX exporter takes a number of images for a constant.
        first = ((highest[:, :1] * 0 + 1).cumsum(dim=0) - 1) * (pixels // PIECE)
        # Whole rows are picked, which graphs do quicker than values one by one.
        flat = pieces.flatten(0, 1).index_select(0, (highest + first).flatten()).reshape(-1, count * PIECE)
    return flat.topk(count, dim=1).values.mean(dim=1)
