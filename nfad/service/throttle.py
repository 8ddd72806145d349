"""How often a client may try a token."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from nfad.service.errors import ApiError

ATTEMPTS, SECONDS = 5, 60.0  # wrong tokens in so many seconds, by one client
CLIENTS = 1000  # remembered; beyond it the one that failed first is forgotten


class TokenThrottle:
    """Counts wrong tokens by address. Whoever has spent its attempts gets 429, with the right token too: else that
    would tell which one it is."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}
        self._known: dict[str, None] = {}  # clients that have sent the right token
        self._lock = threading.Lock()

    def admit(self, client: str, right: bool) -> None:
        """Of a program that sends its token with every request. Where the right one came from once, it is never held
        up: another's wrong ones from behind the same proxy must not stop a line."""
        if right and client in self._known:
            return
        self.check(client)
        if not right:
            return self.failed(client)
        with self._lock:
            self._known[client] = None
            _forget_first(self._known)

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
            _forget_first(self._failures)

    def _recent(self, client: str) -> deque[float]:
        """Taken out, so that who comes back is the newest of those remembered; left out if there is nothing to keep."""
        failures = self._failures.pop(client, deque[float]())
        while failures and self._clock() - failures[0] >= SECONDS:
            failures.popleft()
        if failures:
            self._failures[client] = failures
        return failures


def _forget_first(clients: dict[str, Any]) -> None:
    while len(clients) > CLIENTS:
        del clients[next(iter(clients))]
