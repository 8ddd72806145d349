"""The camera itself: stopped, covered, out of focus, out of place, moved or silent.

All but the moved one say nothing of parts: photos that lie off their place are moved back before they are judged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from nfad.drift.state import COVERED, DEFOCUSED, FROZEN, MISPLACED, SHIFTED, SILENT
from nfad.records import ASIDE, Prediction
from nfad.verdict.strange import BELOW_OR_ABOVE, NOT_THE_PART

FROZEN_FROM = 3  # photos in a row with the same frame; two are a request that was sent again
FAULT_FROM = 3  # photos in a row that are not judged for a reason that lies with the camera
SHIFTED_FROM = 5  # in a row, further off than all n normals of the fit: by chance once in (n + 5 choose 5) photos
REASONS = {  # by the words of the explanation, which is all that every record of a photo has
    COVERED: (
        BELOW_OR_ABOVE["brightness"][0], BELOW_OR_ABOVE["dark"][1],
        BELOW_OR_ABOVE["flat"][1], BELOW_OR_ABOVE["uneven"][1],
    ),
    DEFOCUSED: (BELOW_OR_ABOVE["noise"][0],),
    MISPLACED: (NOT_THE_PART,),
}  # fmt: skip
STOPPED = (
    f"it shows the very same frame as the {FROZEN_FROM - 1} photos before it: the camera, or what fetches its photos, "
    "has stopped"
)


class SameFrames:
    """How many photos in a row show the frame of the newest one, by its file's bytes or by its pixels.

    A program may write another date into each file of a camera that has stopped; then only the pixels tell.
    """

    def __init__(self) -> None:
        self.count = 0
        self.since = ""  # the time of the first of them
        self._sha256, self._frame = "", None

    def update(self, time: str, sha256: str, frame: int | None = None) -> None:
        """Take in the next photo; what is not known of it is "" or None."""
        same = (bool(sha256) and sha256 == self._sha256) or (frame is not None and frame == self._frame)
        self.count = self.count + 1 if same else 1
        self.since = self.since if same else time
        self._sha256, self._frame = sha256, frame

    @property
    def frozen(self) -> bool:
        return self.count >= FROZEN_FROM


class Camera:
    """Fed photo by photo; its state is None while nothing speaks against the camera. For one thread at a time.

    `off_at_fit` is how far the fit's held-out photos lay off their place, where the model tells.
    """

    def __init__(
        self,
        silent_after: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        off_at_fit: Sequence[float] = (),
    ) -> None:
        self.frames = SameFrames()
        self._silent_after, self._clock = silent_after, clock
        self._last = clock()
        self._fault, self._count, self._fault_since = None, 0, ""
        self._reach, self._off, self._off_since = max((ASIDE, *off_at_fit)), 0, ""

    def update(
        self, time: str, sha256: str, explanation: str, frame: int | None = None, moved: float | None = None
    ) -> None:
        """Take in the next photo. `moved` is how far a judged one lay off its place; None leaves that question open."""
        self._last = self._clock()
        self.frames.update(time, sha256, frame)
        fault = fault_of(explanation)
        self._count = self._count + 1 if fault == self._fault else 1
        self._fault_since = self._fault_since if fault == self._fault else time
        self._fault = fault
        if moved is not None:
            off = moved > self._reach
            self._off_since = self._off_since if off and self._off else time
            self._off = self._off + 1 if off else 0

    @property
    def silence(self) -> float:
        """Seconds since the last photo, or since the start."""
        return self._clock() - self._last

    @property
    def state(self) -> str | None:
        if self._silent_after is not None and self.silence > self._silent_after:
            return SILENT
        if self.frames.frozen:
            return FROZEN
        if self._fault is not None and self._count >= FAULT_FROM:
            return self._fault
        return SHIFTED if self._off >= SHIFTED_FROM else None

    @property
    def since(self) -> str:
        """The time of the first photo of its state, "" if it is silent or well."""
        by_state = {SILENT: "", FROZEN: self.frames.since, SHIFTED: self._off_since, None: ""}
        return by_state.get(self.state, self._fault_since)


def of_a_stopped_camera(found: Prediction) -> Prediction:
    """Whatever lies before the camera now, this is not its photo: neither good nor bad."""
    return replace(found, is_anomalous=False, p_value=math.nan, why_not_judged=STOPPED) if found.is_judged else found


def fault_of(explanation: str) -> str | None:
    """What an explanation says against the camera, if it does; of several reasons the first.

    But for blur: out of focus no part looks like itself, and that would always be told first.
    """
    if any(word in explanation for word in REASONS[DEFOCUSED]):
        return DEFOCUSED
    said = [(word, fault) for fault, words in REASONS.items() for word in words if word in explanation]
    return min(said, key=lambda each: explanation.find(each[0]))[1] if said else None
