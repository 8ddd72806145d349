"""How often a client may try to log in."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from nfad.service.errors import ApiError

ATTEMPTS, SECONDS = 5, 60.0  # wrong tokens in so many seconds, by one client
CLIENTS = 1000  # remembered; beyond it the one that failed first is forgotten


class LoginThrottle:
    """Counts wrong tokens by address. Whoever has spent its attempts gets 429, with the right token too: else that
    would tell which one it is."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def check(self, client: str) -> None:
        """Refuse a client that has failed too often of late."""
        with self._lock:
            failures = self._recent(client)
            if len(failures) < ATTEMPTS:
                return
            seconds = max(1, math.ceil(failures[0] + SECONDS - self._clock()))
        raise ApiError(429, f"too many wrong tokens from this address; try again in {seconds} s", seconds)

    def failed(self, client: str) -> None:
        with self._lock:
            failures = self._recent(client)
            failures.append(self._clock())
            self._failures[client] = failures
            while len(self._failures) > CLIENTS:
                del self._failures[next(iter(self._failures))]

    def _recent(self, client: str) -> deque[float]:
        """Taken out, so that who comes back is the newest of those remembered; left out if there is nothing to keep."""
        failures = self._failures.pop(client, deque[float]())
        while failures and self._clock() - failures[0] >= SECONDS:
            failures.popleft()
        if failures:
            self._failures[client] = failures
        return failures
