"""Bets on p-values: each turns a stake into its return, which is 1 on average, or less, while nothing has changed.

Several are kept side by side because nobody knows beforehand how things will change; their mean is a bet as well.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from nfad.errors import NfadError

SLOPES = np.array([0.6, -0.6])  # small shifts of the whole, up and down
POWERS = np.array([0.6, 0.25])  # larger ones: κ p^(κ−1) of Vovk, Nouretdinov and Gammerman (2003), from either end
SPREAD = 0.4  # the same from both ends at once: more scattered than before
SHIFTS = len(SLOPES) + 2 * len(POWERS) + 1
EXCESS = (0.05, 0.15)  # parts added to a tail; more would be won as well, but taken for over after a lucky stretch
FLAGGED = (*EXCESS, 0.5)  # parts added above the threshold
MOST = (0.5, 0.9)  # parts added to one half: a minority of defects cannot win this
LEAST = 1e-12  # a p-value of 0 would win everything at once


def shift(p: np.ndarray) -> np.ndarray:
    """Bets that values have moved or scattered, whichever way; their returns are a new last axis."""
    p = np.clip(p, LEAST, 1 - LEAST)[..., None]
    low, high = (ends ** (np.array([*POWERS, SPREAD]) - 1) for ends in (p, 1 - p))
    spread = SPREAD * (low[..., -1:] + high[..., -1:]) / 2
    return np.concatenate([1 + SLOPES * (1 - 2 * p), POWERS * low[..., :-1], POWERS * high[..., :-1], spread], axis=-1)


class Tail:
    """Bets that more parts than before lie in the upper tail, at several depths of it."""

    def __init__(self, depths: tuple[float, ...]) -> None:
        if not all(0 < depth < 1 for depth in depths):
            raise NfadError(f"a tail's depth is a share between 0 and 1; got {depths}")
        self._depths = np.repeat(sorted(set(depths)), len(EXCESS))
        believed = self._depths + (1 - self._depths) * np.tile(EXCESS, len(set(depths)))
        self._inside, self._outside = believed / self._depths, (1 - believed) / (1 - self._depths)

    def __len__(self) -> int:
        return len(self._depths)

    def __call__(self, p: np.ndarray) -> np.ndarray:
        return np.where(p[..., None] <= self._depths, self._inside, self._outside)


class Above:
    """Bets that more parts lie above a fixed line than the bound allows; what came before plays no part in it."""

    def __init__(self, bound: float, excess: tuple[float, ...]) -> None:
        believed = bound + (1 - bound) * np.array(excess)
        self._inside, self._outside = believed / bound, (1 - believed) / (1 - bound)

    def __len__(self) -> int:
        return len(self._inside)

    def __call__(self, above: np.ndarray) -> np.ndarray:
        return np.where(above[..., None], self._inside, self._outside)


def most_above(normals: int, rate: float, chance: float) -> float:
    """The share of parts above the line of that rate which `chance` allows while nothing changes.

    Above the k-th smallest of n lies a share that is Beta(n − k + 1, k), or less where scores are equal.
    """
    position = math.ceil((normals + 1) * (1 - rate) - 1e-9)
    return float(stats.beta.isf(chance, normals - position + 1, position))
