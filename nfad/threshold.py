"""From normals held out of the fit to a threshold with a stated false-alarm rate (split-conformal).

If the next normal image is exchangeable with the held-out ones, P(score > threshold) ≤ rate, whatever the scores'
distribution. A shift the filter does not absorb breaks exchangeability, and with it the promise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nfad.errors import NfadError


def conformal_threshold(normal_scores: Sequence[float], rate: float) -> float:
    """The ⌈(n+1)(1−rate)⌉-th smallest of n held-out scores."""
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


def p_value(normal_scores: Sequence[float], score: float) -> float:
    """The conformal p-value: how often a normal image would score at least this high."""
    held = np.asarray(normal_scores, dtype=np.float64)
    return float((1 + (held >= score).sum()) / (len(held) + 1))


@dataclass(frozen=True)
class Threshold:
    """The held-out scores, with and without the filter: any supported rate can be had without refitting."""

    detection: tuple[float, ...]
    control: tuple[float, ...]

    @property
    def smallest_rate(self) -> float:
        return smallest_rate(len(self.detection))

    def excess_filtered(self, score: float, control_score: float) -> float:
        """How much of what lifts the control score above normals' median the filter took away; NaN if nothing does."""
        excess = control_score - float(np.median(self.control))
        if not excess > 0:
            return math.nan
        left = max(score - float(np.median(self.detection)), 0.0)
        return max(1 - left / excess, 0.0)

    def supported(self, rate: float) -> float:
        """The rate that will hold: the one asked for, or the smallest there is data for."""
        if not 0 < rate < 1:
            raise NfadError(f"the false-alarm rate must lie between 0 and 1; got {rate:g}")
        return max(rate, self.smallest_rate)

    def at(self, rate: float) -> tuple[float, float]:
        """Thresholds of the filtered and the control score at a supported rate."""
        rate = self.supported(rate)
        return conformal_threshold(self.detection, rate), conformal_threshold(self.control, rate)
