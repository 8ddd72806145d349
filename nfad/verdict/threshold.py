"""From the scores of held-out normals to a threshold with a stated false-alarm rate (split-conformal)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nfad.errors import NfadError
from nfad.stats.conformal import Ranks, smallest_rate


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
    lines: tuple[float, ...] = ()  # of the images' ranks, the highest first; () of models that count all views at once

    @classmethod
    def of_views(cls, scores: np.ndarray, images: np.ndarray, unfiltered: np.ndarray, judged: np.ndarray) -> Threshold:
        """Of several views of each image; one that is not judged is never flagged."""
        order = scores.argsort(kind="stable")
        lines = Ranks.of(np.where(judged, scores, scores.min()), images).lines
        filtered, own = scores[order].tolist(), images[order].tolist()
        return cls(tuple(filtered), tuple(np.sort(unfiltered).tolist()), tuple(own), tuple(lines.tolist()))

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
        return self._ranks.threshold(rate), Ranks.of(self.unfiltered).threshold(rate)

    def every(self) -> tuple[np.ndarray, np.ndarray]:
        """All thresholds of the filtered score that there are, the lowest first, and the rate of each."""
        return self._ranks.rates()

    def p_value(self, score: float) -> float:
        """Share of normal images expected to score at least this high."""
        return self._ranks.p_value(score)

    @cached_property
    def _ranks(self) -> Ranks:
        if self.lines:
            return Ranks.kept(self.lines)
        return Ranks.pooled(self.filtered, self.images) if self.images else Ranks.of(self.filtered)
