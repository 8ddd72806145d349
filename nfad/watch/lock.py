"""One process at a time. Stands in for nfad.system.files.locked, with its signature, until that is there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nfad.errors import NfadError


@contextmanager
def locked(file: Path, message: str) -> Iterator[None]:
    """Hold a lock that one process at a time can have; if another has it, fail at once with `message`.

    The lock is SQLite's exclusive one: every system has it, and a killed process leaves none.
    """
    lock = None
    try:
        lock = sqlite3.connect(file, timeout=0, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if lock is not None:
            lock.close()
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise NfadError(message) from None
        raise NfadError(f"cannot lock {file} ({error}); it needs a local folder with permission to write") from None
    try:
        yield
    finally:
        lock.close()
