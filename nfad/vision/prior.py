"""The foreground prior M(x): which tokens belong to the part (supplement, "Backbones and features")."""

from __future__ import annotations

import torch
from jaxtyping import Float
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
