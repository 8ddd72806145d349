"""The ledger as JSON lines, for whoever tails a file."""

from __future__ import annotations

import errno
import json
import os
from itertools import count
from pathlib import Path

from nfad.watch import earlier, format_1
from nfad.watch.ledger import Ledger
from nfad.watch.record import WatchRecord, as_line

TAIL = 1 << 20  # what is read back of a file on start: a crash hurts its end only


class Lines:
    """A copy of the ledger's records, each line synced. It may be deleted: the next start writes it again.

    The ledger is ahead by what a crash or a full disk kept from being appended, never behind. On start the file is cut
    behind the last line that says what the ledger says. One without any such line is another ledger's and kept aside.
    Lines of an earlier format stay as they were written. It may be rotated while we write.
    """

    def __init__(self, file: Path, ledger: Ledger) -> None:
        self._ledger, self._place = ledger, file
        self._last, self._end = _sound_end(file, ledger) if file.exists() else (0, 0)
        if self._end == 0 and file.exists():
            names = (file.with_name(f"{file.stem}.{number}{file.suffix}") for number in count(1))
            file.rename(next(name for name in names if not name.exists()))
        # Unbuffered: what a full disk did not take must not turn up later.
        self._file = open(file, "r+b" if self._end else "xb", buffering=0)  # noqa: SIM115 (kept open; see close)
        self._file.truncate(self._end)

    def catch_up(self) -> None:
        """Append what the ledger has and the file has not. After an OSError it can simply be called again."""
        while records := self._ledger.after(self._last):
            self._follow()
            text = "".join(as_line(record) + "\n" for record in records).encode()
            self._file.seek(self._end)
            self._file.truncate()  # the torn line of a full disk
            if self._file.write(text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
            self._last, self._end = records[-1].position, self._end + len(text)

    def _follow(self) -> None:
        """Whoever rotates the file renames it, or copies and truncates it: go on in what has its name now."""
        mine = os.fstat(self._file.fileno())
        try:
            named = os.stat(self._place)
        except FileNotFoundError:
            named = None
        if named is None or not os.path.samestat(mine, named):
            opened = open(self._place, "xb" if named is None else "r+b", buffering=0)  # noqa: SIM115 (see close)
            self._file.close()
            self._file, self._end = opened, 0 if named is None else named.st_size
        else:
            self._end = min(self._end, mine.st_size)

    def close(self) -> None:
        self._file.close()


def _sound_end(file: Path, ledger: Ledger) -> tuple[int, int]:
    """The position of the last line that says what the ledger says, and where in the file that line ends."""
    with file.open("rb") as opened:
        start = max(0, opened.seek(0, os.SEEK_END) - TAIL)
        opened.seek(start)
        tail = opened.read()
    while (length := tail.rfind(b"\n") + 1) > 0:
        line = tail[tail.rfind(b"\n", 0, length - 1) + 1 : length]
        if record := _record_behind(line, ledger):
            return record.position, start + length
        tail = tail[: length - len(line)]
    return 0, 0


def _record_behind(line: bytes, ledger: Ledger) -> WatchRecord | None:
    """The record that a line is a true copy of, in this format or in an earlier one."""
    try:
        value = json.loads(line)
    except ValueError:  # torn, or the zeros some file systems leave after a power cut
        return None
    if not isinstance(value, dict):
        return None
    name, _, position = str(value.get("key", value.get("id"))).rpartition("-")  # format 1 had this id as its key
    if name != ledger.name or not (position.isascii() and position.isdigit() and len(position) < 19):
        return None
    for record in ledger.after(int(position) - 1, 1):
        today = (as_line(record) + "\n").encode() == line
        if today or earlier.is_line_of(line, record) or format_1.is_line_of(value, record, ledger.name):
            return record
    return None
