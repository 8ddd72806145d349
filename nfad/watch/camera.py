"""What a watch makes of the camera behind its folder: its state over a restart, and photos that are none of a part."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from nfad.drift.camera import FAULT_FROM, FROZEN_FROM, SHIFTED_FROM, Camera
from nfad.drift.state import FROZEN, SHIFTED
from nfad.drift.words import MOVED
from nfad.drift.words import camera as camera_told
from nfad.model import Model
from nfad.records import Prediction
from nfad.watch.record import WatchRecord

NOTED = max(FAULT_FROM, FROZEN_FROM, SHIFTED_FROM)  # records that tell its state


def camera_after(records: Sequence[WatchRecord], model: Model, silent_after: float | None) -> Camera:
    """The camera as the last records left it: a start of ours does not mend it."""
    camera = Camera(silent_after, off_at_fit=model.normals.get(MOVED, ()))
    for record in records:
        if record.is_part:
            see(camera, record)
        if record.camera == FROZEN:  # by pixels, which are not kept
            camera.frames.count = max(camera.frames.count, FROZEN_FROM)
    return camera


def see(camera: Camera, record: WatchRecord, frame: int | None = None) -> None:
    moved = record.moved if record.is_judged else None
    camera.update(record.time, record.sha256, record.explanation, frame, moved)


def frame_of(found: Prediction) -> int:
    """The same pixels give the same maps to the last bit; a program may write another date into every file."""
    return zlib.crc32(found.map.tobytes(), zlib.crc32(found.unfiltered_map.tobytes()))


def warning_of(state: str, image: str) -> str:
    """What is told when a state begins with an image."""
    if state == FROZEN:
        before = f"the same frame as the {FROZEN_FROM - 1} photos before it"
        return f"{image} shows {before}; has the camera stopped? Such photos are not judged"
    if state == SHIFTED:
        return f"{image}: {camera_told(SHIFTED, 0, 0)}"
    return f"{state}: {image} and the {FAULT_FROM - 1} photos before it are not judged for one reason"
