"""The time for what cannot be undone: a clock that jumps ahead makes nothing older than it is."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

log = logging.getLogger("nfad.service")
STEP = timedelta(hours=1)  # more than a clock is corrected by in passing
BELIEVED_AFTER = 86_400.0  # seconds for which a later time has been told, and nobody has set it right


class CautiousClock:
    """The time, or the earlier one that follows from `since` and the seconds that have passed, for a day after a jump.

    `since` is when the service was last known to run: what was not seen to pass may be a clock that was set wrong.
    """

    def __init__(
        self,
        since: datetime | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._seen = (since or wall(), monotonic())
        self._jumped: float | None = None

    def now(self) -> datetime:
        seen, at = self._seen
        wall, passed = self._wall(), self._monotonic()
        expected = seen + timedelta(seconds=passed - at)
        if wall <= expected + STEP:
            self._jumped, self._seen = None, (wall, passed)
            return min(wall, expected)
        if self._jumped is None:
            self._jumped = passed
            log.warning("the clock is %s ahead of what was seen to pass; that is believed in a day", wall - expected)
        if passed - self._jumped < BELIEVED_AFTER:
            return expected
        self._jumped, self._seen = None, (wall, passed)
        return wall
