"""One process a folder."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nfad.errors import NfadError


@contextmanager
def only_one(file: Path, place: Path) -> Iterator[None]:
    """Refuse a second process; the lock is SQLite's, so that every system has it and a killed process leaves none."""
    lock = None
    try:
        lock = sqlite3.connect(file, timeout=0, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
        yield
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise NfadError(f"another `nfad watch` writes to {place}; stop it or choose another folder") from None
        raise NfadError(f"cannot lock {file} ({error}); it needs a local folder with permission to write") from None
    finally:
        if lock is not None:
            lock.close()
