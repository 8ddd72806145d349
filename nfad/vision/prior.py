"""The foreground prior M(x): which tokens belong to the part (supplement, "Backbones and features")."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

FOREGROUND = 0.5


def foreground_prior(
    patches: list[Float[Tensor, "image token _"]], summaries: list[Float[Tensor, "image _"]]
) -> Float[Tensor, "image token"]:
    """Cosine of every patch with its image's summary token, clamped, min–max per image, mean over blocks.

    The summary is the CLS token of a ViT; a CNN has none and gives its globally pooled last stage.
    """
    maps = []
    for tokens, summary in zip(patches, summaries, strict=True):
        cosine = F.cosine_similarity(tokens, summary[:, None], dim=-1).clamp(min=0)
        low, high = cosine.amin(dim=1, keepdim=True), cosine.amax(dim=1, keepdim=True)
        maps.append((cosine - low) / (high - low).clamp(min=1e-12))
    return torch.stack(maps).mean(dim=0)


def foreground_tokens(prior: Float[Tensor, "image token"]) -> Bool[Tensor, "image token"]:
    """Which tokens lie on the part, at inference: the prior averaged over 3×3 tokens, split by Otsu's threshold.

    A fixed 0.5 is enough to refill a background for an intervention; a busy one (a cutting mat, a fabric) puts many of
    its tokens above it.
    """
    grid = round(prior.shape[1] ** 0.5)
    square = prior.reshape(-1, 1, grid, grid)
    smooth = F.avg_pool2d(F.pad(square, (1, 1, 1, 1), mode="replicate"), 3, stride=1).flatten(1)
    ordered = smooth.sort(dim=1).values
    count = ordered.shape[1]
    below = torch.arange(1, count, dtype=ordered.dtype)
    sums = ordered.cumsum(dim=1)
    low = sums[:, :-1] / below
    high = (sums[:, -1:] - sums[:, :-1]) / (count - below)
    cut = (below * (count - below) * (high - low).square()).argmax(dim=1, keepdim=True)  # Otsu: between-class variance
    return smooth > ordered.gather(1, cut)
