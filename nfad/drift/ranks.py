"""Online conformal p-values in memory that does not grow: where each part ranks among all that came before it.

Values are counted in 65,536 cells fixed beforehand, 1,024 to each doubling. Cells that know nothing of the data keep
what is exchangeable exchangeable, and equal cells are ordered by chance, so the p-values are as exact as over the
values themselves (Vovk, Nouretdinov and Gammerman 2003: independent and uniform while nothing changes).
"""

from __future__ import annotations

import numpy as np

SIDE = 256  # cells are counted in SIDE groups of SIDE, so that a rank is two look-ups
_STEPS = 10  # bits of the mantissa that count
_SMALLEST, _DOUBLINGS = 127 - 16, 32  # magnitudes from 2^-16 to 2^16, as float32 writes its exponent; others share


def cells(values: np.ndarray) -> np.ndarray:
    """The cell of each value, never decreasing with it."""
    half = _DOUBLINGS << _STEPS
    bits = np.minimum(np.abs(values), 2.0**_DOUBLINGS).astype(np.float32).view(np.int32) >> (23 - _STEPS)
    size = np.clip(bits - (_SMALLEST << _STEPS), 0, half - 1)
    return np.where(values < 0, half - 1 - size, half + size)


class Ranks:
    """How often each cell has been seen, for several streams side by side. Arrays are (part, stream)."""

    def __init__(self, streams: int) -> None:
        self._streams = np.arange(streams)
        self._groups = np.zeros((streams, SIDE), dtype=np.int64)
        self._within = np.zeros((streams, SIDE, SIDE), dtype=np.int64)

    def count(self, at: np.ndarray, chosen: np.ndarray, times: int = 1) -> None:
        """Remember the chosen values, or with −1 forget them."""
        parts, streams = np.nonzero(chosen)
        groups, places = np.divmod(at[parts, streams], SIDE)
        np.add.at(self._groups, (streams, groups), times)
        np.add.at(self._within, (streams, groups, places), times)

    def p_values(self, at: np.ndarray, chosen: np.ndarray, chance: np.ndarray) -> np.ndarray:
        """The share of those before it, and of itself, above each value; equal ones by chance in (0, 1].

        Before it are the remembered and, of the parts given along with it, the chosen ones that come earlier.
        """
        groups, places = np.divmod(at, SIDE)
        beyond = self._groups.sum(axis=1, keepdims=True) - np.cumsum(self._groups, axis=1)
        row = self._within[self._streams, groups]
        above = beyond[self._streams, groups] + (row * (np.arange(SIDE) > places[..., None])).sum(axis=-1)
        equal = np.take_along_axis(row, places[..., None], axis=-1)[..., 0]
        seen = np.broadcast_to(self._groups.sum(axis=1), at.shape)
        if len(at) > 1:
            earlier = np.tri(len(at), k=-1, dtype=bool)[..., None] & chosen
            above = above + (earlier & (at > at[:, None])).sum(axis=1)
            equal = equal + (earlier & (at == at[:, None])).sum(axis=1)
            seen = seen + earlier.sum(axis=1)
        return (above + chance * (equal + 1)) / (seen + 1)


def rank_errors(before: np.ndarray, after: np.ndarray) -> float:
    """By how many standard errors later values rank above earlier ones (Mann and Whitney); 0 without either."""
    if not len(before) or not len(after):
        return 0.0
    ordered = np.sort(before)
    below = (np.searchsorted(ordered, after, "left") + np.searchsorted(ordered, after, "right")).sum() / 2
    pairs = len(before) * len(after)
    return float((below - pairs / 2) / np.sqrt(pairs * (len(before) + len(after) + 1) / 12))
