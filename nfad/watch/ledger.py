"""What was judged, in one SQLite file that survives a pulled plug.

The ledger is the only truth. A part is judged when its row is committed (write-ahead log, synced at each commit), and
everything else only reads along: the JSON lines are a copy of the rows, and every receiver (a webhook, a broker, a
folder by verdict) has a position in them. So there is nothing to reconcile between two truths, no outbox beside the
rows, and after a crash each reader goes on behind the last row it is known to have had.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from nfad.errors import NfadError
from nfad.watch.record import COLUMNS, Judgement, Seen, as_values, from_values

FORMAT = "1"
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS judged ({", ".join(COLUMNS[:-1])}, id INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS latest (path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, sha256 TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS delivered (receiver TEXT PRIMARY KEY, id INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS refused (receiver TEXT, id INTEGER, reason TEXT NOT NULL, PRIMARY KEY (receiver, id));
"""


class Ledger:
    """A connection, for one thread. `durable=False` is for readers whose position may fall back in a power cut."""

    def __init__(self, file: Path, *, durable: bool = True) -> None:
        self.file = file
        with self._told():
            self._sql = sqlite3.connect(file, timeout=30, isolation_level=None)
            self._sql.execute("PRAGMA journal_mode = WAL")
            self._sql.execute("PRAGMA fullfsync = ON")  # macOS takes fsync lightly
            self._sql.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._sql.executescript(SCHEMA)
            with self._writing():
                known = {row[1] for row in self._sql.execute("PRAGMA table_info(judged)")}
                for name in (each for each in COLUMNS if each not in known):  # of an earlier version
                    self._sql.execute(f"ALTER TABLE judged ADD COLUMN {name}")
                self._sql.execute("INSERT OR IGNORE INTO facts VALUES ('format', ?)", (FORMAT,))
                self._sql.execute("INSERT OR IGNORE INTO facts VALUES ('ledger', ?)", (secrets.token_hex(6),))
        if self._fact("format") != FORMAT:
            raise NfadError(f"{file} was written by another version of nfad; choose another folder for the results")
        self.name: str = self._fact("ledger")

    def close(self) -> None:
        self._sql.close()

    def belong_to(self, folder: Path) -> None:
        """Tie the ledger to one watched folder: paths are relative, so another folder's would be taken for known."""
        with self._told():
            self._sql.execute("INSERT OR IGNORE INTO facts VALUES ('folder', ?)", (str(folder),))
        if self._fact("folder") != str(folder):
            raise NfadError(
                f"{self.file.parent} holds the results of {self._fact('folder')}, not of {folder}; "
                "choose another folder for the results"
            )

    def append(self, judgement: Judgement) -> Judgement:
        """Commit a part; it is judged when this returns. Gives it back with its id."""
        marks = ", ".join("?" * len(COLUMNS))
        with self._told(), self._writing():
            judgement = replace(judgement, id=self._last() + 1)
            self._sql.execute(f"INSERT INTO judged ({', '.join(COLUMNS)}) VALUES ({marks})", as_values(judgement))
            self._remember(judgement)
        return judgement

    def touch(self, seen: Seen) -> None:
        """Note that a known part stands there with another date, so that its content need not be read again."""
        with self._told(), self._writing():
            self._remember(seen)

    def latest(self, path: str) -> Seen | None:
        """How the file of that name stood when it was last judged."""
        with self._told():
            row = self._sql.execute("SELECT * FROM latest WHERE path = ?", (path,)).fetchone()
        return Seen(*row) if row else None

    def last(self) -> int:
        """The id of the newest part, 0 before the first."""
        with self._told():
            return self._last()

    def after(self, id: int, count: int = 100) -> list[Judgement]:
        """The next parts behind one, in order."""
        chosen = f"SELECT {', '.join(COLUMNS)} FROM judged WHERE id > ? ORDER BY id LIMIT ?"
        with self._told():
            return [from_values(row) for row in self._sql.execute(chosen, (id, count))]

    def position(self, receiver: str) -> int:
        """The last part a receiver has had. One that is new here starts with the next part, not with the past."""
        with self._told():
            self._sql.execute("INSERT OR IGNORE INTO delivered VALUES (?, ?)", (receiver, self._last()))
            return self._sql.execute("SELECT id FROM delivered WHERE receiver = ?", (receiver,)).fetchone()[0]

    def deliver(self, receiver: str, id: int, refused: str | None = None) -> None:
        """Move a receiver on to this part; with `refused`, keep why it will never have it."""
        with self._told(), self._writing():
            self._sql.execute("UPDATE delivered SET id = ? WHERE receiver = ?", (id, receiver))
            if refused is not None:
                self._sql.execute("INSERT OR REPLACE INTO refused VALUES (?, ?, ?)", (receiver, id, refused))

    def refusals(self, receiver: str) -> dict[int, str]:
        """The parts a receiver would not take, and why."""
        with self._told():
            return dict(self._sql.execute("SELECT id, reason FROM refused WHERE receiver = ?", (receiver,)))

    def _remember(self, seen: Seen | Judgement) -> None:
        row = (seen.path, seen.size, seen.mtime_ns, seen.sha256)
        self._sql.execute("INSERT OR REPLACE INTO latest VALUES (?, ?, ?, ?)", row)

    def _last(self) -> int:
        return self._sql.execute("SELECT coalesce(max(id), 0) FROM judged").fetchone()[0]

    def _fact(self, name: str) -> str:
        with self._told():
            return self._sql.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._sql.execute("ROLLBACK")
            raise
        self._sql.execute("COMMIT")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise NfadError(
                f"the ledger {self.file} failed ({error}); is its disk full, read-only or shared?"
            ) from error


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
