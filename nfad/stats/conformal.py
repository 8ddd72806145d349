"""Statements about the next normal image from normals held out of the fit, whatever the scores' distribution.

They hold if the next normal is exchangeable with the held-out ones. A shift the filter does not absorb breaks
exchangeability, and with it the promise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nfad.errors import NfadError


def conformal_threshold(normal_scores: Sequence[float] | np.ndarray, rate: float) -> float:
    """The ⌈(n+1)(1−rate)⌉-th smallest of n held-out scores: P(next score > threshold) ≤ rate."""
    n = len(normal_scores)
    position = math.ceil((n + 1) * (1 - rate) - 1e-9)
    if position > n:
        raise NfadError(
            f"{n} held-out normals support a false-alarm rate of {smallest_rate(n):.3g} at the least; got {rate:g}; "
            "fit on more images or accept a higher rate"
        )
    return float(np.sort(np.asarray(normal_scores, dtype=np.float64))[max(position, 1) - 1])


def smallest_rate(count: int) -> float:
    """The lowest false-alarm rate that this many held-out normals can support."""
    return 1 / (count + 1)


def p_value(normal_scores: Sequence[float] | np.ndarray, score: float) -> float:
    """The conformal p-value: how often a normal image would score at least this high; NaN has none."""
    if math.isnan(score):
        return math.nan
    held = np.asarray(normal_scores, dtype=np.float64)
    return float((1 + (held >= score).sum()) / (len(held) + 1))
