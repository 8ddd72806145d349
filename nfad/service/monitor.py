"""A model's monitors of drift and of its camera, updated by one thread and read by others; at a start they are replayed
from the store."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from nfad.drift import Camera, DriftMonitor, DriftState, numbers_of, words
from nfad.drift.camera import FAULT_FROM, FROZEN_FROM, STOPPED
from nfad.drift.monitor import BLOCK
from nfad.drift.state import ABSORBED, FROZEN, SHIFTED, SILENT, STEADY
from nfad.errors import NfadError
from nfad.model import Model
from nfad.service.record import Inspection

REPLAYED = 2000  # inspections replayed at a start or after a change of rate
REPLAYED_AT_ONCE = BLOCK  # of the drift monitor, so that a part it refuses takes no others with it


class Monitor:
    """A DriftMonitor behind a lock, and what is wrong with the camera, which is told before all of parts."""

    def __init__(self, model: Model, past: Iterable[Inspection] = (), silent_after: float | None = None) -> None:
        self._lock = threading.Lock()
        self._monitor = DriftMonitor(model.normals, flag_rate=model.false_alarm_rate)
        self._camera = Camera(silent_after, off_at_fit=model.normals.get(words.MOVED, ()))
        inspections = list(past)
        for first in range(0, len(inspections), REPLAYED_AT_ONCE):
            self._replay(inspections[first : first + REPLAYED_AT_ONCE])

    def update(self, inspection: Inspection, frame: int | None = None) -> None:
        """Take in the next inspection; a judged one that lacks a number says nothing about drift. `frame` is a hash of
        its pixels, which the store does not keep."""
        with self._lock:
            self._see(inspection, frame)
            if shows_a_part(inspection):
                with suppress(NfadError):
                    self._monitor.update(numbers_of(inspection))

    def stopped_at(self, photos: Iterable[tuple[str, int]]) -> list[bool]:
        """For each of the photos that come next (the hashes of its file and of its pixels) whether it shows that the
        camera has stopped. Nothing is taken in: what cannot be kept is sent again, and counts once."""
        with self._lock:
            frames, stopped = copy.copy(self._camera.frames), []
        for sha256, frame in photos:
            frames.update("", sha256, frame)
            stopped.append(frames.frozen)
        return stopped

    def _see(self, inspection: Inspection, frame: int | None = None) -> None:
        moved = inspection.moved if inspection.is_judged else None
        self._camera.update(inspection.time, inspection.sha256, inspection.explanation, frame, moved)
        if not shows_a_part(inspection):  # perhaps by its pixels, which the store does not keep
            self._camera.frames.count = max(self._camera.frames.count, FROZEN_FROM)

    def _replay(self, inspections: Sequence[Inspection]) -> None:
        """The same as one by one, and quicker by far; it is what a start waits for."""
        for each in inspections:
            self._see(each)
        parts = [each for each in inspections if shows_a_part(each)]
        try:
            self._monitor.extend([numbers_of(each) for each in parts])  # all of a block or nothing
        except NfadError:
            for each in parts:
                with suppress(NfadError):
                    self._monitor.update(numbers_of(each))

    def state(self) -> DriftState:
        with self._lock:
            state, camera = self._monitor.state(), self._camera_state()
            if camera is None or state.verdict == camera:
                return state
            told = words.camera(camera, FAULT_FROM, self._camera.silence) if camera != FROZEN else ""
            told = told or words.frozen(self._camera.frames.count)
            beside = camera == SHIFTED and state.verdict not in (STEADY, ABSORBED)  # parts are judged, and may be bad
            if beside or (state.not_judged.alarm and camera != SILENT):  # which is told first; no part passes by it
                return replace(state, sentence=f"{state.sentence} {told}")
            return replace(state, verdict=camera, sentence=told)

    def camera(self) -> tuple[str | None, str, int]:
        """Its state, None while all is well; the time of the first photo of it, "" where that is not known; photos in a
        row with one frame."""
        with self._lock:
            return self._camera_state(), self._camera.since, self._camera.frames.count

    def _camera_state(self) -> str | None:
        """A camera that creeps is told by evidence over many photos, one that was pushed by a few in a row."""
        return self._camera.state or (SHIFTED if self._monitor.camera_moved else None)


def shows_a_part(inspection: Inspection) -> bool:
    """A photo of a camera that has stopped says nothing of the parts, not even that they cannot be judged."""
    return STOPPED not in inspection.explanation
