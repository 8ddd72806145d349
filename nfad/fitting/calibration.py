"""What a fit measures of its own normals once the scorer stands: the split, and the maps' statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nfad.config import HOLDOUT, Config
from nfad.fitting.seen import Seen
from nfad.fitting.tokens import TokenCache
from nfad.reference.judgeable import Judgeable
from nfad.reference.scoring import MapStatistics, Scorer, Sighting, calibrate, z_scored
from nfad.system.progress import Progress
from nfad.verdict.choice import Choice
from nfad.verdict.threshold import Threshold
from nfad.vision.maps import pixel_maps
from nfad.vision.teacher import Teacher

# What a scorer takes: tokens, a student's tokens, the places of the images to exclude from a bank, the prior, nothing
# of the photo, and how much each token counts
Inputs = tuple[list[Tensor], list[Tensor] | None, Tensor | None, Tensor | None, None, Tensor | None]


def split(count: int, config: Config) -> tuple[Tensor, Tensor]:
    """Held-out and fitted images, at random by the seed."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(config.seed))
    share = HOLDOUT if config.holdout is None else config.holdout
    held = min(max(1, round(share * count)), count - 4)
    return order[:held].sort().values, order[held:].sort().values


@dataclass(frozen=True)
class Calibrated:
    """What a fit leaves behind beside its teacher and settings."""

    scorer: Scorer
    normal_maps: MapStatistics
    held_out: Threshold
    normals: Mapping[str, tuple[float, ...]]
    judgeable: Judgeable | None = None
    choice: Choice | None = None
    doubts: tuple[tuple[int, str], ...] = ()  # images that stand out, and why
    joined: str = "maps"  # of two looks: see `z_scored`
    seen: Seen | None = None  # what thresholds were made of, where normals were seen under acquisitions

    @property
    def kept(self) -> dict[str, Any]:
        """What a model keeps of it, by name."""
        return {name: value for name, value in vars(self).items() if name not in ("doubts", "seen")}


def as_taken(
    config: Config,
    scorer: Scorer,
    cache: TokenCache,
    _: Teacher,
    held: Tensor,
    fit: Tensor,
    __: Path,
    progress: Progress | None = None,
) -> Calibrated:
    """Maps in units of the fitted normals, the threshold from those held out, all in the light they were taken in."""
    count = len(held) + len(fit)

    def batches(indices: Tensor, in_fit: bool) -> Iterator[Inputs]:
        for chosen in indices.split(config.at_once):
            tokens, prior = cache.read(chosen)
            predicted = scorer.predicted(cache.views(chosen)) if config.reference == "student" else None
            own, where = chosen if in_fit else None, prior if config.foreground else None
            yield tokens, predicted, own, where, None, cache.shown(chosen)

    if progress:
        progress("calibrating", 0, count)
    scorer = calibrate(scorer, lambda: batches(fit, True))
    normal_maps = map_statistics(config, scorer, batches(fit, True))
    with torch.inference_mode():
        settings = (config.size, config.sigma, config.scored_fraction)
        scores = [
            z_scored([Sighting(scorer(*inputs), normal_maps)], *settings).numbers() for inputs in batches(held, False)
        ]
    if progress:
        progress("calibrating", count, count)
    normals = {name: tuple(torch.cat([batch[name] for batch in scores]).tolist()) for name in scores[0]}
    held_out = Threshold(tuple(sorted(normals["score"])), tuple(sorted(normals["unfiltered_score"])))
    return Calibrated(scorer, normal_maps, held_out, normals)


def map_statistics(config: Config, scorer: Scorer, batches: Iterable[Inputs]) -> dict[str, tuple[float, float]]:
    """Scalar mean and spread over all pixels of each read-out's training maps."""
    sums = {name: np.zeros(3) for name in scorer.maps}
    with torch.inference_mode():
        for inputs in batches:
            out = scorer(*inputs)
            for name, sum_ in sums.items():
                maps = pixel_maps(getattr(out, name), config.size, config.sigma).double()
                sum_ += np.array([maps.numel(), float(maps.sum()), float(maps.square().sum())])
    return {name: _mean_and_spread(sum_) for name, sum_ in sums.items()}


def statistics_of(numbers: Float[Tensor, "image 3"]) -> tuple[float, float]:
    """The same of maps whose means and mean squares are there already."""
    _, mean, square = numbers.double().sum(dim=0).tolist()
    return _mean_and_spread(np.array([len(numbers), mean, square]))


def _mean_and_spread(sums: np.ndarray) -> tuple[float, float]:
    count, total, squares = sums
    mean = total / count
    return float(mean), float(max(np.sqrt(max(squares / count - mean**2, 0)), 1e-12))
