"""What a fit measures of its own normals once the scorer stands: the split, and the maps' statistics."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from nfad.config import Config
from nfad.reference.scoring import Scorer
from nfad.vision.maps import pixel_maps

# What a scorer takes: tokens, a student's tokens, the places of the images to exclude from a bank, the prior
Inputs = tuple[list[Tensor], list[Tensor] | None, Tensor | None, Tensor | None]


def split(count: int, config: Config) -> tuple[Tensor, Tensor]:
    """Held-out and fitted images, at random by the seed."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(config.seed))
    held = min(max(1, round(config.holdout * count)), count - 4)
    return order[:held].sort().values, order[held:].sort().values


def map_statistics(config: Config, scorer: Scorer, batches: Iterable[Inputs]) -> dict[str, tuple[float, float]]:
    """Scalar mean and spread over all pixels of each read-out's training maps."""
    sums = {name: np.zeros(3) for name in scorer.maps}
    with torch.inference_mode():
        for inputs in batches:
            out = scorer(*inputs)
            for name, sum_ in sums.items():
                maps = pixel_maps(getattr(out, name), config.size, config.sigma).double()
                sum_ += np.array([maps.numel(), float(maps.sum()), float(maps.square().sum())])
    statistics = {}
    for name, (count, total, squares) in sums.items():
        mean = total / count
        statistics[name] = (float(mean), float(max(np.sqrt(max(squares / count - mean**2, 0)), 1e-12)))
    return statistics
