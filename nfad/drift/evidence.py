"""Winnings over time: Shiryaev–Roberts sums of bets, with alarms whose false rate is known beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CEILING = 10.0  # each bet counts up to so many times the alarm level, so that no sum outgrows its number


def alarm_level(rate: float, run_length: float) -> float:
    """The sum at which to raise an alarm, from what is to hold while nothing changes.

    P(alarm within m parts) ≤ rate + m / level (Ville's inequality and the union over streams), and adding that up over
    m, the mean number of parts before a false alarm is at least (1 − rate)² level / 2, which is run_length here.
    """
    return 2 * run_length / (1 - rate) ** 2


class Evidence:
    """One sum for each bet of each stream. Before any alarm a sum's mean is at most its head start plus the parts."""

    def __init__(self, bets: Sequence[int], weights: Sequence[float], level: float, head_start: float) -> None:
        self._stream = np.repeat(np.arange(len(bets)), bets)
        self._first = np.cumsum([0, *bets[:-1]])
        self._level = level
        share = np.asarray(weights) / np.asarray(bets) / level
        self._share = share[self._stream]
        self._ceiling = CEILING / self._share
        self._sums = np.full(len(self._stream), head_start * level)
        self._page = np.ones(len(self._stream))  # Page's CUSUM: the change began where it last was at 1
        self._began = np.ones(len(self._stream), dtype=np.int64)
        self.levels = np.add.reduceat(self._sums * self._share, self._first)
        self.alarmed = np.zeros(len(bets), dtype=bool)
        self.since = np.zeros(len(bets), dtype=np.int64)  # first part of the change, where alarmed …
        self.raised = np.zeros(len(bets), dtype=np.int64)  # … and the part that raised the alarm
        self.ended = np.zeros(len(bets), dtype=np.int64)  # the part that ended the latest alarm that has ended
        self._leading = self._first.copy()  # the bet that raised the alarm
        self._back = np.ones(len(bets))  # Page's CUSUM against that bet: an alarm ends at the level that raised it

    def update(self, returns: np.ndarray, played: np.ndarray, first: int) -> tuple[int, np.ndarray]:
        """Take in the returns (part, bet) of parts numbered from `first`, up to the first that raises or ends an alarm.

        A return is 1 where its stream (part, stream) was not played. Says how many parts were taken, and which alarms
        the last of them raised.
        """
        played = played[:, self._stream]
        sums, pages, backs = np.empty_like(returns), np.empty_like(returns), np.empty((len(returns), len(self._first)))
        total, page, back = self._sums, self._page, self._back
        inverse = 1 / returns[:, self._leading]
        floor = played.astype(np.float64)
        for part in range(len(returns)):
            total = np.minimum((total + floor[part]) * returns[part], self._ceiling, out=sums[part])
            page = np.minimum(np.maximum(page, floor[part]) * returns[part], self._ceiling, out=pages[part])
            back = np.minimum(np.maximum(back, 1) * inverse[part], self._level, out=backs[part])
        levels = np.add.reduceat(sums * self._share, self._first, axis=1)
        changes = np.where(self.alarmed, backs >= self._level, levels >= 1)
        taken = int(changes.any(axis=1).argmax()) + 1 if changes.any() else len(returns)
        numbers = np.arange(first, first + taken)[:, None]
        fresh = played[:taken] & (np.concatenate([self._page[None], pages[: taken - 1]]) <= 1)
        self._began = np.maximum(self._began, np.where(fresh, numbers, 0).max(axis=0))
        self._sums, self._page, self._back = sums[taken - 1], pages[taken - 1], backs[taken - 1]
        self.levels = levels[taken - 1]
        return taken, self._change(changes[taken - 1], first + taken - 1)

    def _change(self, changes: np.ndarray, part: int) -> np.ndarray:
        new = changes & ~self.alarmed
        for stream in np.flatnonzero(changes):
            mine = np.flatnonzero(self._stream == stream)
            if new[stream]:
                self._leading[stream] = mine[self._sums[mine].argmax()]
                self._back[stream] = 1
                self.since[stream], self.raised[stream] = self._began[self._leading[stream]], part
            else:
                self._sums[mine], self._page[mine], self.levels[stream] = 0, 1, 0
                self.ended[stream] = part
        self.alarmed ^= changes
        return new
