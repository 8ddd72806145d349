"""Records of the ledger to whoever wants them: in order, at least once, and never at the inspection's expense."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from nfad.errors import NfadError
from nfad.watch.ledger import Ledger
from nfad.watch.record import WatchRecord, as_line

LONGEST_PAUSE = 60.0  # seconds between two attempts at a receiver that is down


def pause_after(failures: int) -> float:
    """Seconds until the next attempt: 1, 2, 4 … up to the longest pause, after however many failures."""
    return min(LONGEST_PAUSE, 0.5 * 2 ** min(failures, 10))


class Refused(Exception):
    """The receiver answered and will never take this record; to try again would hold up all that follow."""


class Sender(Protocol):
    """A receiver across a network."""

    name: str  # what the ledger keeps its position under; holds no password

    def send(self, text: str, id: str) -> None:
        """Return when the receiver has it; raise `Refused` for never, anything else for not now."""

    def close(self) -> None: ...


class Delivery:
    """One receiver's progress along the ledger: retries with exponential backoff, one warning an outage."""

    def __init__(
        self,
        name: str,
        deliver: Callable[[WatchRecord], None],
        ledger: Ledger,
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self._deliver, self._ledger, self._warn, self._clock = name, deliver, ledger, warn, clock
        self._position = ledger.position(name)
        self._failures = 0
        self.due = clock()

    def catch_up(self, until: Callable[[], bool] = lambda: False) -> bool:
        """Deliver all that is waiting, or nothing before it is `due`; says whether nothing is left."""
        if self._clock() < self.due:
            return False
        while records := self._ledger.after(self._position):
            for record in records:
                if until() or not self._one(record):
                    return False
        return True

    def _one(self, record: WatchRecord) -> bool:
        refused = None
        try:
            self._deliver(record)
        except Refused as reason:
            refused = str(reason)
            self._warn(f"{self.name} will not take {record.image} (part {record.position}): {refused}")
        except Exception as error:  # whatever a receiver does wrong, the inspection goes on
            self._failures += 1
            self.due = self._clock() + pause_after(self._failures)
            if self._failures == 1:
                reason = str(error) if isinstance(error, NfadError) else f"{type(error).__name__}: {error}"
                self._warn(f"{self.name} cannot be reached ({reason}); its parts are kept and tried again")
            return False
        if self._failures:
            self._warn(f"{self.name} takes parts again")
        self._failures = 0
        self._ledger.deliver(self.name, record.position, refused)
        self._position = record.position
        return True


class SenderThread(threading.Thread):
    """A sender in a thread of its own: a receiver may take as long as it likes, the next image may not wait."""

    def __init__(self, sender: Sender, ledger_file: Path, warn: Callable[[str], None]) -> None:
        super().__init__(name=f"sender to {sender.name}", daemon=True)
        self.sender, self._file, self._warn = sender, ledger_file, warn
        self._wake = threading.Event()
        self._deadline: float | None = None

    def notify(self) -> None:
        """There is a new record."""
        self._wake.set()

    def finish_by(self, deadline: float) -> None:
        """Send what is left until then, as long as the receiver takes it; the rest waits for the next start."""
        self._deadline = deadline
        self._wake.set()

    def run(self) -> None:
        # A position that falls back in a power cut only repeats, which the record's id lets a receiver notice.
        ledger = Ledger(self._file, durable=False)
        delivery = Delivery(
            self.sender.name, lambda record: self.sender.send(as_line(record), record.id), ledger, self._warn
        )
        try:
            while True:
                self._wake.clear()
                closing = self._deadline is not None
                if closing:
                    delivery.due = 0.0
                try:
                    done = delivery.catch_up(self._is_late)
                except NfadError as error:  # the ledger's own trouble; the inspection will meet it too
                    self._warn(str(error))
                    done, delivery.due = False, time.monotonic() + 5
                if closing:
                    return
                self._wake.wait(None if done else max(0.0, delivery.due - time.monotonic()))
        finally:
            self.sender.close()
            ledger.close()

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline
