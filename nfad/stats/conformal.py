"""Statements about the next normal image from normals held out of the fit, whatever the scores' distribution.

They hold if the next normal is exchangeable with the held-out ones. A shift the filter does not absorb breaks
exchangeability, and with it the promise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nfad.errors import NfadError


def conformal_threshold(
    normal_scores: Sequence[float] | np.ndarray, rate: float, groups: Sequence[int] | np.ndarray | None = None
) -> float:
    """The smallest held-out score q with P(next score > q) ≤ rate.

    Alone, n scores weigh 1/(n+1) each: q is the ⌈(n+1)(1−rate)⌉-th smallest. In `groups` (views of one part) each of n
    groups weighs as much, shared by its own, and the next score is that of any view of the next part (Lee, Barber &
    Willett, "Distribution-free inference with hierarchical data", 2023). n groups support no rate below 1/(n+1).
    """
    scores, shares, n = _weighed(normal_scores, groups)
    if rate < smallest_rate(n) - 1e-9:
        raise NfadError(
            f"{n} held-out normals support a false-alarm rate of {smallest_rate(n):.3g} at the least; got {rate:g}; "
            "fit on more images or accept a higher rate"
        )
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(shares[order]) / (n + 1)
    at = int(np.searchsorted(reached, 1 - rate - 1e-9))
    return float(scores[order[min(at, len(order) - 1)]])


def rates_of(
    normal_scores: Sequence[float] | np.ndarray, groups: Sequence[int] | np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Every held-out score, the lowest first, and the rate that it stands for as a threshold."""
    scores, shares, n = _weighed(normal_scores, groups)
    order = np.argsort(scores, kind="stable")
    return scores[order], np.maximum(1 - np.cumsum(shares[order]) / (n + 1), smallest_rate(n))


def smallest_rate(count: int) -> float:
    """The lowest false-alarm rate that this many held-out normals can support."""
    return 1 / (count + 1)


def p_value(
    normal_scores: Sequence[float] | np.ndarray, score: float, groups: Sequence[int] | np.ndarray | None = None
) -> float:
    """The conformal p-value: how often a normal image would score at least this high; NaN has none."""
    if math.isnan(score):
        return math.nan
    scores, shares, n = _weighed(normal_scores, groups)
    return float((1 + shares[scores >= score].sum()) / (n + 1))


def _weighed(
    scores: Sequence[float] | np.ndarray, groups: Sequence[int] | np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, int]:
    """Scores, the share of its group that each has, and how many groups there are."""
    scores = np.asarray(scores, dtype=np.float64)
    if groups is None:
        return scores, np.ones(len(scores)), len(scores)
    _, index, counts = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    return scores, 1 / counts[index], len(counts)
