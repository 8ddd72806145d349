"""How sure a number is: bootstrap intervals over images for AUROC, exact binomial ones for rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from scipy import stats

from nfad.errors import NfadError
from nfad.evaluation.metrics import checked_scores, image_metrics

CHUNK = 2**19  # drawn images held at once, about 30 MB


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference is beyond what resampling the images explains."""
        return self.low > 0 or self.high < 0

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def auroc_resamples(scores: np.ndarray, labels: np.ndarray, seed: int = 0, samples: int = 1000) -> np.ndarray:
    """AUROC of each resample of the images; NaN if a class is missing.

    The draws depend on the seed and the labels alone: those of two detectors over the same images are paired.
    """
    if samples < 1:
        raise NfadError(f"samples must be at least 1; got {samples}")
    scores, labels = checked_scores(scores, labels)
    if labels.all() or not labels.any():
        return np.full(samples, np.nan)
    return np.concatenate([weighted_aurocs(scores, labels, counts) for counts in _resamples(labels, seed, samples)])


def percentiles(value: float, resamples: np.ndarray, level: float = 0.95) -> Interval:
    """The resamples' percentiles about an estimate; NaN throughout where it is not defined."""
    _check_level(level)
    resamples = resamples[~np.isnan(resamples)]
    if not len(resamples) or np.isnan(value):
        return Interval(float("nan"), float("nan"), float("nan"))
    low, high = np.quantile(resamples, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    # Percentiles of few or skewed resamples can miss the estimate itself; an interval without it would only confuse.
    return Interval(float(value), min(float(low), value), max(float(high), value))


def auroc_interval(
    scores: np.ndarray, labels: np.ndarray, seed: int = 0, samples: int = 2000, level: float = 0.95
) -> Interval:
    """Percentile bootstrap over images; NaN throughout if a class is missing.

    Where the classes do not overlap every resample gives 1, and so does the interval: it says nothing of other images.
    """
    return percentiles(image_metrics(scores, labels).auroc, auroc_resamples(scores, labels, seed, samples), level)


def paired_interval(
    scores_a: np.ndarray,
    scores_b: np.ndarray,
    labels: np.ndarray,
    seed: int = 0,
    samples: int = 2000,
    level: float = 0.95,
) -> Interval:
    """AUROC of a less that of b on the same images, resampled together; NaN throughout if a class is missing."""
    difference = image_metrics(scores_a, labels).auroc - image_metrics(scores_b, labels).auroc
    drawn_a, drawn_b = (auroc_resamples(scores, labels, seed, samples) for scores in (scores_a, scores_b))
    return percentiles(difference, drawn_a - drawn_b, level)


def rate_interval(hits: int, total: int, level: float = 0.95) -> Interval:
    """Clopper and Pearson's interval for hits of total: covers the true rate at least `level` of the time.

    Nothing of nothing is a NaN rate that may be anything from 0 to 1.
    """
    _check_level(level)
    if not 0 <= hits <= total:
        raise NfadError(f"hits must lie in 0..total; got {hits} of {total}")
    tail = (1.0 - level) / 2.0
    low = stats.beta.ppf(tail, hits, total - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1.0 - tail, hits + 1, total - hits) if hits < total else 1.0
    return Interval(hits / total if total else float("nan"), float(low), float(high))


def weighted_aurocs(scores: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """AUROC of each row of counts (resample, image), which says how often the image was drawn; one sort serves all."""
    order = np.argsort(scores, kind="stable")
    scores, labels, counts = scores[order], labels[order], counts[:, order]
    ties = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]]))
    anomalous = np.add.reduceat(np.where(labels, counts, 0), ties, axis=1)
    normal = np.add.reduceat(np.where(labels, 0, counts), ties, axis=1)
    wins = (anomalous * (2 * np.cumsum(normal, axis=1) - normal)).sum(axis=1)
    return wins / (2.0 * anomalous.sum(axis=1) * normal.sum(axis=1))


def _resamples(labels: np.ndarray, seed: int, samples: int) -> Iterator[np.ndarray]:
    """Counts (resample, image) in chunks; a resample without both classes is drawn again."""
    rng = np.random.default_rng(seed)
    images, left = len(labels), samples
    while left:
        rows = min(left, max(1, CHUNK // images))
        drawn = rng.integers(images, size=(rows, images)) + images * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * images).reshape(rows, images)
        anomalous = counts @ labels.astype(np.int64)
        counts = counts[(anomalous > 0) & (anomalous < images)]
        left -= len(counts)
        if len(counts):
            yield counts


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise NfadError(f"level must lie between 0 and 1, e.g. 0.95; got {level}")
