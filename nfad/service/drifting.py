"""A model's drift monitor, fed by one thread and asked by others; after a restart it knows what the store knows."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from nfad.drift import DriftMonitor, DriftState, numbers_of
from nfad.errors import NfadError
from nfad.model import Model
from nfad.service.record import Inspection

REMEMBERED = 2000  # inspections replayed at a start or after a change of rate, in about a second


class Drift:
    def __init__(self, model: Model, past: Iterable[Inspection] = ()) -> None:
        self._lock = threading.Lock()
        self._monitor = DriftMonitor(model.normals, flag_rate=model.false_alarm_rate)
        for inspection in past:
            self.update(inspection)

    def update(self, inspection: Inspection) -> None:
        """Take in the next inspection; one without finite numbers says nothing about drift."""
        with self._lock:
            try:
                self._monitor.update(numbers_of(inspection))
            except NfadError:
                return

    def state(self) -> DriftState:
        with self._lock:
            return self._monitor.state()
