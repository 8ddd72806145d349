"""A model's monitors of drift and of its camera, updated by one thread and read by others; at a start they are replayed
from the store."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from nfad.drift import DriftMonitor, DriftState, SameFrames, numbers_of, words
from nfad.drift.state import FROZEN
from nfad.errors import NfadError
from nfad.model import Model
from nfad.service.record import Inspection

REPLAYED = 2000  # inspections replayed at a start or after a change of rate, in about a second


class Monitor:
    """A DriftMonitor behind a lock, and whether the camera's frame stands still, which is told before all of parts."""

    def __init__(self, model: Model, past: Iterable[Inspection] = ()) -> None:
        self._lock = threading.Lock()
        self._monitor = DriftMonitor(model.normals, flag_rate=model.false_alarm_rate)
        self._frames = SameFrames()
        for inspection in past:
            self.update(inspection)

    def update(self, inspection: Inspection, frame: int | None = None) -> None:
        """Take in the next inspection; a judged one that lacks a number says nothing about drift. `frame` is a hash of
        its pixels, which the store does not keep."""
        with self._lock:
            self._frames.update(inspection.time, inspection.sha256, frame)
            try:
                self._monitor.update(numbers_of(inspection))
            except NfadError:
                return

    def state(self) -> DriftState:
        with self._lock:
            state, frames = self._monitor.state(), self._frames
            if not frames.frozen:
                return state
            told = words.frozen(frames.count)
            if state.not_judged.alarm:  # a covered camera may show nothing but black; no part passes by it
                return replace(state, sentence=f"{state.sentence} {told}")
            return replace(state, verdict=FROZEN, sentence=told)

    def same_frames(self) -> tuple[int, str]:
        """How many photos in a row show the newest one's frame, and the time of the first of them."""
        with self._lock:
            return self._frames.count, self._frames.since

    @property
    def frozen(self) -> bool:
        with self._lock:
            return self._frames.frozen
