"""Which files of a folder are new and complete. Looks again and again: that works on every share and every system."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nfad.records import utc_now
from nfad.vision.pixels import SUFFIXES
from nfad.watch.record import Fingerprint, as_path, as_text

HIDDEN = ".~"  # first letters
TEMPORARY = frozenset({".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload"})
CHECKED_PER_POLL = 2000  # known files; to stat 100 000 takes longer than to list them ten times


class FileStatus(NamedTuple):
    """What changes when a file does. Inode and ctime only count while we run: some file systems renumber at a mount.

    The ctime is the one date that a writer cannot set: a file may get its final size and date before its content.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileStatus:
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


@dataclass(frozen=True)
class Arrival:
    """A file that is not in the ledger yet."""

    image: str  # path below the folder
    status: FileStatus
    arrived: str  # when it was first seen, ISO 8601 in UTC
    unchanged_since: float  # by the clock


class Arrivals:
    """Remembers the files that are in the folder, and only those: what is gone is forgotten here, not in the ledger.

    `settle` is how many seconds a file must have been unchanged, by our clock: its own dates are its writer's word.
    """

    def __init__(
        self,
        folder: Path,
        latest: Callable[[str], Fingerprint | None],
        *,
        settle: float,
        exclude: Collection[Path] = (),
        clock: Callable[[], float] = time.monotonic,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.folder = folder
        self.waiting: dict[str, Arrival] = {}
        self._latest = latest
        self._settle = settle
        self._exclude = {str(place) for place in exclude}
        self._clock, self._warn = clock, warn
        self._forbidden: set[str] = set()  # subfolders that may not be entered, each told of once
        self._known: dict[str, int] = {}  # hashes of statuses, by the name as the system gives it
        self._turn = 0

    def poll(self) -> list[Arrival]:
        """Look once: the files that are ready, by date and then by name; again and again until they are `done`.

        Known files are checked in turns, `CHECKED_PER_POLL` of them a poll: that is each time in a folder of that size,
        and every fiftieth time among 100 000. A new name is seen at once.
        """
        turns = max(1, len(self._known) // CHECKED_PER_POLL)
        self._turn += 1
        now = self._clock()
        known: dict[str, int] = {}
        waiting: dict[str, Arrival] = {}
        for name, entry in self._files():
            before = self._known.get(name)
            if before is not None and (hash(name) + self._turn) % turns:
                known[name] = before
                continue
            image = as_text(name)
            try:
                if not entry.is_file():
                    continue
                found = entry.stat()
            except OSError:  # gone between the listing and the look
                continue
            status = FileStatus.of(found)
            if before == hash(status) or (before is None and self._is_in_ledger(image, status)):
                known[name] = hash(status)
                continue
            arrival = self.waiting.get(image)
            if arrival is None or arrival.status != status:
                arrived = arrival.arrived if arrival else utc_now()
                arrival = Arrival(image, status, arrived, now)
            waiting[image] = arrival
        self._known, self.waiting = known, waiting
        ready = [each for each in waiting.values() if now - each.unchanged_since >= self._settle]
        return sorted(ready, key=lambda each: (each.status.mtime_ns, each.image))

    def done(self, arrival: Arrival) -> None:
        """It is in the ledger now."""
        self.waiting.pop(arrival.image, None)
        self._known[str(as_path(arrival.image))] = hash(arrival.status)

    def _is_in_ledger(self, image: str, status: FileStatus) -> bool:
        latest = self._latest(image)
        return latest is not None and (latest.size, latest.mtime_ns) == (status.size, status.mtime_ns)

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
                        elif self._is_to_be_entered(entry):
                            places.append((entry.path, name + os.sep))
                self._forbidden.discard(place)
            except PermissionError as error:
                if not prefix:
                    raise
                if place not in self._forbidden:
                    self._warn(f"{as_text(place)} may not be entered ({error.strerror}); nothing in it is judged")
                self._forbidden.add(place)
            except (FileNotFoundError, NotADirectoryError):
                if not prefix:
                    raise

    def _is_to_be_entered(self, entry: os.DirEntry[str]) -> bool:
        hidden = entry.name[0] in HIDDEN or entry.name == "__MACOSX"
        return not hidden and entry.is_dir(follow_symlinks=False) and entry.path not in self._exclude


def _is_image_name(name: str) -> bool:
    stem, suffix = os.path.splitext(name)
    temporary = name[0] in HIDDEN or os.path.splitext(stem)[1].lower() in TEMPORARY
    return suffix.lower() in SUFFIXES and not temporary


def status_of(path: Path) -> FileStatus | None:
    """The file's status now; None if it is gone."""
    try:
        return FileStatus.of(path.stat())
    except OSError:
        return None
