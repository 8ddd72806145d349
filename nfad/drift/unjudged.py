"""Photos that are not judged: they say nothing about parts, so their share of all photos is watched by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from nfad.drift import words
from nfad.drift.betting import Above
from nfad.drift.evidence import Evidence, alarm_level
from nfad.drift.state import Answer

TOLERATED = 0.05  # share of photos without a verdict that is nothing to report: an empty place, a hand
EXCESS = (0.1, 0.5)  # added to it, as bets on what is
RECENT = 1000  # photos that an effect speaks of


class Unjudged:
    """While at most TOLERATED of the photos are not judged, P(alarm within m photos) ≤ rate + m / (2 run_length)."""

    def __init__(self, rate: float, run_length: float) -> None:
        self._bets = Above(TOLERATED, EXCESS)
        self._evidence = Evidence([len(self._bets)], [1.0], alarm_level(rate, run_length), rate)
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self.photos = 0

    def extend(self, unjudged: Sequence[bool]) -> None:
        """Take in the next photos, whether judged or not."""
        self._recent.extend(unjudged)
        returns = self._bets(np.asarray(unjudged, dtype=bool))
        while len(returns):
            played = np.ones((len(returns), 1), dtype=bool)
            taken, _ = self._evidence.update(returns, played, self.photos + 1)
            self.photos += taken
            returns = returns[taken:]

    def answer(self) -> Answer:
        """Are too many photos not judged? Its `since` is a number among all photos."""
        alarm, level = bool(self._evidence.alarmed[0]), float(self._evidence.levels[0])
        since = int(self._evidence.since[0]) if alarm else None
        first = since or int(self._evidence.ended[0]) + 1
        seen = list(self._recent)[-(self.photos + 1 - first) :] if self.photos >= first else []
        effect = words.unjudged_effect(sum(seen), len(seen), TOLERATED, alarm) if seen else ""
        return Answer("not_judged", alarm, max(level, 1.0) if alarm else level, since, (), effect)
