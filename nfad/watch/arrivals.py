"""Which files of a folder are new and complete. Looks again and again: that works on every share and every system."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from nfad.vision.pixels import SUFFIXES
from nfad.watch.record import Seen, as_path, as_text

HIDDEN = ".~"  # first letters
TEMPORARY = frozenset({".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload"})
CHECKED = 2000  # known files looked at again in one poll: to stat 100 000 takes longer than to list them ten times


class Stamp(NamedTuple):
    """What changes when a file does. The inode only counts while we run: some file systems number anew at a mount."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class Arrival:
    """A file that is not known yet, and since when it stands still."""

    path: str
    stamp: Stamp
    arrived: str
    still_since: float
    placed: bool  # its name or rights changed after its last byte, so that whoever wrote it was done


class Arrivals:
    """Remembers what stands in the folder, and only that: what is gone is forgotten here, not in the ledger."""

    def __init__(
        self,
        folder: Path,
        latest: Callable[[str], Seen | None],
        *,
        settle: float,
        leave_out: Collection[Path] = (),
        clock: Callable[[], float] = time.monotonic,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.folder = folder
        self.waiting: dict[str, Arrival] = {}
        self._latest = latest
        self._settle = settle
        self._leave_out = {str(place) for place in leave_out}
        self._clock, self._warn = clock, warn
        self._closed: set[str] = set()  # subfolders that may not be entered, each told of once
        self._known: dict[str, Stamp] = {}  # by the name as the system gives it
        self._turn = 0

    def poll(self) -> list[Arrival]:
        """Look once. Those that stand still, by date and then by name; the same again until `settled` is told.

        A known file is looked at in its turn, `CHECKED` of them a poll: that is each time in a folder of that size,
        and every fiftieth time among 100 000. A new name is seen at once.
        """
        turns = max(1, len(self._known) // CHECKED)
        self._turn += 1
        now, known, waiting = self._clock(), {}, {}
        for name, entry in self._files():
            before = self._known.get(name)
            if before is not None and (hash(name) + self._turn) % turns:
                known[name] = before
                continue
            path = as_text(name)
            try:
                if not entry.is_file():
                    continue
                status = entry.stat()
            except OSError:  # gone between the listing and the look
                continue
            stamp = Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
            if before == stamp or (before is None and self._is_in_ledger(path, stamp)):
                known[name] = stamp
                continue
            arrival = self.waiting.get(path)
            if arrival is None or arrival.stamp != stamp:
                arrived = arrival.arrived if arrival else datetime.now(UTC).isoformat(timespec="milliseconds")
                arrival = Arrival(path, stamp, arrived, now, status.st_ctime_ns > status.st_mtime_ns)
            waiting[path] = arrival
        self._known, self.waiting = known, waiting
        still = [each for each in waiting.values() if each.placed or now - each.still_since >= self._settle]
        return sorted(still, key=lambda each: (each.stamp.mtime_ns, each.path))

    def settled(self, arrival: Arrival) -> None:
        """It is in the ledger now."""
        self.waiting.pop(arrival.path, None)
        self._known[str(as_path(arrival.path))] = arrival.stamp

    def _is_in_ledger(self, path: str, stamp: Stamp) -> bool:
        seen = self._latest(path)
        return seen is not None and (seen.size, seen.mtime_ns) == stamp[:2]

    def _files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """The image files at any depth. The folder itself must be there; a subfolder may vanish while it is read, or be
        closed to us, as a disk's lost+found is."""
        places = [(str(self.folder), "")]
        while places:
            place, prefix = places.pop()
            try:
                with os.scandir(place) as entries:
                    for entry in entries:
                        name = prefix + entry.name
                        if name in self._known or _is_image_name(entry.name):
                            yield name, entry
                        elif self._is_ours_to_enter(entry):
                            places.append((entry.path, name + os.sep))
                self._closed.discard(place)
            except PermissionError as error:
                if not prefix:
                    raise
                if place not in self._closed:
                    self._warn(f"{as_text(place)} may not be entered ({error.strerror}); nothing in it is judged")
                self._closed.add(place)
            except (FileNotFoundError, NotADirectoryError):
                if not prefix:
                    raise

    def _is_ours_to_enter(self, entry: os.DirEntry[str]) -> bool:
        hidden = entry.name[0] in HIDDEN or entry.name == "__MACOSX"
        return not hidden and entry.is_dir(follow_symlinks=False) and entry.path not in self._leave_out


def _is_image_name(name: str) -> bool:
    stem, suffix = os.path.splitext(name)
    temporary = name[0] in HIDDEN or os.path.splitext(stem)[1].lower() in TEMPORARY
    return suffix.lower() in SUFFIXES and not temporary


def stamp_of(path: Path) -> Stamp | None:
    """How the file stands now; None if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
