"""A model's drift monitor, updated by one thread and read by others; at a start it is replayed from the store."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from nfad.drift import DriftMonitor, DriftState, numbers_of
from nfad.errors import NfadError
from nfad.model import Model
from nfad.service.record import Inspection

REPLAYED = 2000  # inspections replayed at a start or after a change of rate, in about a second


class Monitor:
    """A DriftMonitor behind a lock."""

    def __init__(self, model: Model, past: Iterable[Inspection] = ()) -> None:
        self._lock = threading.Lock()
        self._monitor = DriftMonitor(model.normals, flag_rate=model.false_alarm_rate)
        for inspection in past:
            self.update(inspection)

    def update(self, inspection: Inspection) -> None:
        """Take in the next inspection; a judged one that lacks a number says nothing about drift."""
        with self._lock:
            try:
                self._monitor.update(numbers_of(inspection))
            except NfadError:
                return

    def state(self) -> DriftState:
        with self._lock:
            return self._monitor.state()
