"""A camera that has stopped: photo after photo shows the very same frame, which no sensor's noise ever does."""

from __future__ import annotations

FROZEN_FROM = 3  # photos in a row with the same frame; two are a request that was sent again


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
