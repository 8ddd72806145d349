"""How sure an AUROC is: bootstrap over images, paired between detectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nfad.errors import NfadError
from nfad.evaluation.metrics import checked_scores, image_metrics
from nfad.stats.intervals import Interval, percentiles

CHUNK = 2**19  # drawn images held at once, about 30 MB


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
