"""From the scores of held-out normals to a threshold with a stated false-alarm rate (split-conformal)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nfad.errors import NfadError
from nfad.stats.conformal import conformal_threshold, p_value, rates_of, smallest_rate


@dataclass(frozen=True)
class Threshold:
    """The held-out normals' scores: any supported rate can be had without refitting.

    Filtered scores may be of several views of a part, as taken and under random acquisitions: `images` then says which
    view is of which, and the rate holds under those acquisitions. Unfiltered ones are of the parts as taken, which is
    all that a detector knows that was told of no acquisition.
    """

    filtered: tuple[float, ...]
    unfiltered: tuple[float, ...]
    images: tuple[int, ...] = ()  # of each filtered score; () where every score is an image's own

    @property
    def count(self) -> int:
        """Held-out normals, each once."""
        return len(set(self.images)) if self.images else len(self.filtered)

    @property
    def highest(self) -> float:
        """The largest filtered score of any held-out view."""
        return max(self.filtered)

    @property
    def smallest_rate(self) -> float:
        return smallest_rate(self.count)

    def excess_filtered(self, score: float, unfiltered_score: float) -> float:
        """How much of an unfiltered score's excess over the normals' median the filter took away; NaN without any."""
        excess = unfiltered_score - float(np.median(self.unfiltered))
        if not excess > 0:
            return math.nan
        left = max(score - float(np.median(self.filtered)), 0.0)
        return max(1 - left / excess, 0.0)

    def supported(self, rate: float) -> float:
        """The rate that will hold: the one asked for, or the smallest there is data for."""
        if not 0 < rate < 1:
            raise NfadError(f"the false-alarm rate must lie between 0 and 1; got {rate:g}")
        return max(rate, self.smallest_rate)

    def told(self, rate: float) -> str:
        """What is promised where this rate is asked for, in the words of every command and page."""
        supported = self.supported(rate)
        where = "under the acquisitions it was fitted for" if self.images else "without shift"
        told = f"at most {supported:.2%} of good parts flagged, {where}"
        if supported > rate:
            told += f"; {rate:.2%} was asked for, but {self.count} held-out normals support no less"
        return told

    def at(self, rate: float) -> tuple[float, float]:
        """Thresholds of the filtered and the unfiltered score at a supported rate."""
        rate = self.supported(rate)
        return conformal_threshold(self.filtered, rate, self.images or None), conformal_threshold(self.unfiltered, rate)

    def every(self) -> tuple[np.ndarray, np.ndarray]:
        """All thresholds of the filtered score that there are, the lowest first, and the rate of each."""
        return rates_of(self.filtered, self.images or None)

    def p_value(self, score: float) -> float:
        """Share of normal images expected to score at least this high."""
        return p_value(self.filtered, score, self.images or None)
