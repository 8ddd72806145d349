"""The foreground prior M(x): which tokens belong to the part (supplement, "Backbones and features")."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

FOREGROUND = 0.5
SHARPNESS = 0.01  # of the prior's variance: a cut that explains so much less than the best counts for 1/e of it
FLAT = 0.05  # of a prior in 0..1: with less between its tokens there is less and less of a background


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


def foreground_weights(prior: Float[Tensor, "image token"]) -> Float[Tensor, "image token"]:
    """How much of each token lies on the part, 0 to 1, at inference: the share of cuts that it is above, when every
    cut of the smoothed prior counts by how well it splits.

    A fixed 0.5 is enough to refill a background for an intervention; a busy one (a cutting mat, a fabric) puts many of
    its tokens above it. Otsu's threshold is the one cut that explains most of the variance, and a step: tokens beside
    it, and all between two cuts that are nearly as good, change sides in the last bit, and no export could be proved
    equal. Weighing all cuts t by exp(η(t) / SHARPNESS), η the share of the variance that lies between the classes, is
    continuous in the prior; where part and background are apart, the best cuts are the whole gap, and so is the ramp.
    """
    ordered, places = smoothed(prior).sort(dim=1)
    count = ordered.shape[1]
    below = torch.arange(1, count, dtype=ordered.dtype)
    centred = ordered - ordered.mean(dim=1, keepdim=True)  # so that long sums stay small
    between = centred.cumsum(dim=1)[:, :-1].square() / (below * (count - below)) * count
    tiny = torch.finfo(ordered.dtype).tiny  # all the same: no cut explains anything
    explained = between / centred.square().sum(dim=1, keepdim=True).clamp(min=tiny)
    counts = ((explained - explained.amax(dim=1, keepdim=True)) / SHARPNESS).exp()
    gaps = ordered[:, 1:] - ordered[:, :-1]  # cuts are points of a line: equal tokens have none between them
    cleared = F.pad((gaps * counts).cumsum(dim=1), (1, 0))
    above = cleared / cleared[:, -1:].clamp(min=tiny)
    contrast = ((ordered[:, -1:] - ordered[:, :1]) / FLAT).clamp(max=1)
    weights = 1 - contrast * (1 - above)
    return torch.zeros_like(weights).scatter(1, places, weights)


def foreground_tokens(prior: Float[Tensor, "image token"]) -> Bool[Tensor, "image token"]:
    """The smoothed prior above Otsu's threshold: how models before format 13 told the part."""
    smooth = smoothed(prior)
    ordered = smooth.sort(dim=1).values
    count = ordered.shape[1]
    below = torch.arange(1, count, dtype=ordered.dtype)
    sums = ordered.cumsum(dim=1)
    low = sums[:, :-1] / below
    high = (sums[:, -1:] - sums[:, :-1]) / (count - below)
    cut = (below * (count - below) * (high - low).square()).argmax(dim=1, keepdim=True)  # Otsu: between-class variance
    return smooth > ordered.gather(1, cut)


def smoothed(prior: Float[Tensor, "image token"]) -> Float[Tensor, "image token"]:
    """Averaged over 3×3 tokens."""
    grid = round(prior.shape[1] ** 0.5)
    square = prior.reshape(-1, 1, grid, grid)
    return F.avg_pool2d(F.pad(square, (1, 1, 1, 1), mode="replicate"), 3, stride=1).flatten(1)
