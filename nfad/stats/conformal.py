"""Statements about the next normal image from normals held out of the fit, whatever the scores' distribution.

They hold if the next normal is exchangeable with the held-out ones. A shift the filter does not absorb breaks
exchangeability, and with it the promise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nfad.errors import NfadError

DRAWS, FEWER = 840, 120  # of one view a part: multiples of 1 to 6 and 8, so that each view is drawn as often
MANY = 4000  # parts, of which fewer draws tell as much
STEPS = 8  # from one rank to the next
Values = Sequence[float] | np.ndarray
Groups = Sequence[int] | np.ndarray


@dataclass(frozen=True)
class Ranks:
    """Held-out scores by rank: the next normal's exceeds a line of rank j with probability j/(n+1) at most."""

    lines: np.ndarray  # the largest first
    ranks: np.ndarray  # of each
    count: int  # n, normals
    between: bool = False  # whether a threshold may lie between two lines

    @classmethod
    def of(cls, scores: Values, groups: Groups | None = None) -> Ranks:
        """In `groups` (views of one part) the next score is that of any view of the next part.

        One view drawn of each part makes n scores and the next one exchangeable (Dunn, Wasserman & Ramdas,
        "Distribution-free prediction sets for two-layer hierarchical models", 2023), and a mean over many draws takes
        the chance out of it. So does a mean between two ranks, which leaves no part of a rate unused. Either keeps the
        rate wherever high scores are the rarer the higher they are.
        """
        values = np.asarray(scores, dtype=np.float64)
        if groups is None:
            return cls(np.sort(values)[::-1], np.arange(1.0, len(values) + 1), len(values))
        _, part, counts = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
        order = np.lexsort((values, part))
        draws = DRAWS if len(counts) < MANY else FEWER
        turns = np.tile(np.arange(draws)[:, None], (1, len(counts)))
        drawn = np.random.default_rng(0).permuted(turns, axis=0) * counts // draws + np.cumsum(counts) - counts
        return cls.kept(np.sort(values[order][drawn], axis=1).mean(axis=0)[::-1])

    @classmethod
    def kept(cls, lines: Values) -> Ranks:
        """By the lines of groups, as a model keeps them."""
        return cls(np.asarray(lines, dtype=np.float64), np.arange(1.0, len(lines) + 1), len(lines), between=True)

    @classmethod
    def pooled(cls, scores: Values, groups: Groups) -> Ranks:
        """All views of a part at once, sharing its weight, as models before format 10 have it (Lee, Barber & Willett,
        "Distribution-free inference with hierarchical data", 2023): up to one part in n+1 is flagged less than might
        be."""
        values = np.asarray(scores, dtype=np.float64)
        _, part, counts = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
        order = np.argsort(-values, kind="stable")
        shares = (1 / counts[part])[order]
        return cls(values[order], 1 + np.cumsum(shares) - shares, len(counts))

    def threshold(self, rate: float) -> float:
        """The score that the next normal's exceeds with at most this probability."""
        least = smallest_rate(self.count)
        if rate < least - 1e-9:
            raise NfadError(
                f"{self.count} held-out normals support a false-alarm rate of {least:.3g} at the least; got {rate:g}; "
                "fit on more images or accept a higher rate"
            )
        rank = rate * (self.count + 1)
        if self.between:
            return float(np.interp(rank, self.ranks, self.lines))
        return float(self.lines[max(np.searchsorted(self.ranks, rank + 1e-7, side="right") - 1, 0)])

    def p_value(self, score: float) -> float:
        """How often a normal image would score at least this high; NaN has none."""
        if math.isnan(score):
            return math.nan
        above = int((self.lines >= score).sum())
        rank = self.ranks[above] if above < len(self.ranks) else self.count + 1.0
        if self.between and 0 < above < len(self.lines):
            line, below = self.lines[above - 1], self.lines[above]
            rank -= (score - below) / (line - below)
        return float(rank / (self.count + 1))

    def rates(self) -> tuple[np.ndarray, np.ndarray]:
        """Thresholds, the lowest first, and the rate that each stands for: of every line, and of some between."""
        ranks, lines = self.ranks[::-1], self.lines[::-1]
        if self.between:
            ranks = np.linspace(self.count, 1, (self.count - 1) * STEPS + 1)
            lines = np.interp(ranks, self.ranks, self.lines)
        return lines, ranks / (self.count + 1)


def conformal_threshold(scores: Values, rate: float, groups: Groups | None = None) -> float:
    """The score q with P(next score > q) ≤ rate; n normals support no rate below 1/(n+1)."""
    return Ranks.of(scores, groups).threshold(rate)


def smallest_rate(count: int) -> float:
    """The lowest false-alarm rate that this many held-out normals can support."""
    return 1 / (count + 1)
