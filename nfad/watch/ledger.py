"""The inspection records of a watched folder, in one SQLite file that survives a pulled plug.

The ledger is the only truth. An image is judged when its record is committed (write-ahead log, synced at each commit),
and everything else only reads along: the JSON lines are a copy, and every receiver (a webhook, a broker, a folder by
verdict) has a position in the ledger. So there is nothing to reconcile between two truths, no outbox beside the
records, and after a crash each reader goes on behind the last record it is known to have had.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

from nfad.errors import NfadError
from nfad.watch import earlier, format_1
from nfad.watch.record import FIELDS, Fingerprint, WatchRecord, as_values, from_values

FORMAT = "5"
PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY)
SQL_TYPES = {
    "str": "TEXT NOT NULL",
    "int": "INTEGER NOT NULL",
    "float": "REAL NOT NULL",
    "str | None": "TEXT",
    "float | None": "REAL",
    "Mapping[str, float]": "TEXT NOT NULL",  # JSON
}
COLUMNS = ", ".join(f"{each.name} {SQL_TYPES[str(each.type)]}" for each in fields(WatchRecord))
METADATA = "CREATE TABLE IF NOT EXISTS metadata (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
INSPECTIONS = f"CREATE TABLE IF NOT EXISTS inspections ({COLUMNS}, position INTEGER PRIMARY KEY)"
INSERT = f"INSERT INTO inspections ({', '.join(FIELDS)}, position) VALUES ({', '.join('?' * (len(FIELDS) + 1))})"
IS_MIGRATED = "UPDATE metadata SET value = ? WHERE name = 'format'"
OTHERS = (
    "CREATE TABLE IF NOT EXISTS latest "
    "(image TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, sha256 TEXT) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS delivered (receiver TEXT PRIMARY KEY, position INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS refused "
    "(receiver TEXT, position INTEGER, reason TEXT NOT NULL, PRIMARY KEY (receiver, position))",
)


class NoRoom(NfadError):
    """The disk is full or does not answer, or another program holds the ledger: it may be well again later."""


class Ledger:
    """A connection, for one thread. `durable=False` is for readers whose position may fall back in a power cut."""

    def __init__(self, file: Path, *, durable: bool = True) -> None:
        self.file = file
        with self._explained():
            self._sql = sqlite3.connect(file, timeout=30, isolation_level=None)
            self._sql.execute("PRAGMA journal_mode = WAL")
            self._sql.execute("PRAGMA fullfsync = ON")  # macOS takes fsync lightly
            # Of the default, 2 MB, a connection fills what it can over thousands of records, which looks like a leak.
            self._sql.execute("PRAGMA cache_size = -256")
            self._sql.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with self._transaction():
                self._prepare()
        self.name = self._metadata("ledger")

    def close(self) -> None:
        self._sql.close()

    def belong_to(self, folder: Path) -> None:
        """Tie the ledger to one watched folder: paths are relative, so another folder's would be taken for known."""
        with self._explained():
            self._sql.execute("INSERT OR IGNORE INTO metadata VALUES ('folder', ?)", (str(folder),))
        if self._metadata("folder") != str(folder):
            raise NfadError(
                f"{self.file.parent} holds the results of {self._metadata('folder')}, not of {folder}; "
                "choose another folder for the results"
            )

    def append(self, record: WatchRecord) -> WatchRecord:
        """Commit a record; its image is judged when this returns. Gives the record back with its id."""
        with self._explained(), self._transaction():
            record = replace(record, id=f"{self.name}-{self._last() + 1}")
            self._sql.execute(INSERT, (*as_values(record), record.position))
            if record.is_part:
                self._remember(record)
        return record

    def touch(self, file: Fingerprint) -> None:
        """Note that a known image has another date now, so that its content need not be read again."""
        with self._explained(), self._transaction():
            self._remember(file)

    def latest(self, image: str) -> Fingerprint | None:
        """The file of that name as it was when it was last judged."""
        with self._explained():
            row = self._sql.execute("SELECT * FROM latest WHERE image = ?", (image,)).fetchone()
        return Fingerprint(*row) if row else None

    def last(self) -> int:
        """The position of the newest record, 0 before the first."""
        with self._explained():
            return self._last()

    def after(self, position: int, count: int = 100) -> list[WatchRecord]:
        """The next records behind a position, in order."""
        chosen = f"SELECT {', '.join(FIELDS)} FROM inspections WHERE position > ? ORDER BY position LIMIT ?"
        with self._explained():
            return [from_values(row) for row in self._sql.execute(chosen, (position, count))]

    def newest(self) -> WatchRecord | None:
        found = self.after(self.last() - 1, 1)
        return found[0] if found else None

    def position(self, receiver: str) -> int:
        """The last record a receiver has had. One that is new here starts with the next record, not with the past."""
        with self._explained():
            self._sql.execute("INSERT OR IGNORE INTO delivered VALUES (?, ?)", (receiver, self._last()))
            return self._sql.execute("SELECT position FROM delivered WHERE receiver = ?", (receiver,)).fetchone()[0]

    def deliver(self, receiver: str, position: int, refused: str | None = None) -> None:
        """Move a receiver on to this position; with `refused`, keep why it will never have that record."""
        with self._explained(), self._transaction():
            self._sql.execute("UPDATE delivered SET position = ? WHERE receiver = ?", (position, receiver))
            if refused is not None:
                self._sql.execute("INSERT OR REPLACE INTO refused VALUES (?, ?, ?)", (receiver, position, refused))

    def refusals(self, receiver: str) -> dict[int, str]:
        """The positions of the records a receiver would not take, and why."""
        with self._explained():
            return dict(self._sql.execute("SELECT position, reason FROM refused WHERE receiver = ?", (receiver,)))

    def _prepare(self) -> None:
        """Make the tables of a new ledger, migrate those of an earlier one, and leave those of a later one alone."""
        tables = {name for [name] in self._sql.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if "judged" in tables and "metadata" not in tables:
            format_1.migrate(self._sql, INSPECTIONS, INSERT)
            self._sql.execute(IS_MIGRATED, (FORMAT,))
        self._sql.execute(METADATA)
        self._sql.execute("INSERT OR IGNORE INTO metadata VALUES ('format', ?)", (FORMAT,))
        if (before := self._metadata("format")) in earlier.LACKING:
            earlier.migrate(self._sql, INSPECTIONS, before)
            self._sql.execute(IS_MIGRATED, (FORMAT,))
        if self._metadata("format") != FORMAT:
            raise NfadError(
                f"{self.file} was written by another version of nfad; choose another folder for the results"
            )
        for statement in (INSPECTIONS, *OTHERS):
            self._sql.execute(statement)
        self._sql.execute("INSERT OR IGNORE INTO metadata VALUES ('ledger', ?)", (secrets.token_hex(6),))

    def _remember(self, file: Fingerprint | WatchRecord) -> None:
        row = (file.image, file.size, file.mtime_ns, file.sha256)
        self._sql.execute("INSERT OR REPLACE INTO latest VALUES (?, ?, ?, ?)", row)

    def _last(self) -> int:
        return self._sql.execute("SELECT coalesce(max(position), 0) FROM inspections").fetchone()[0]

    def _metadata(self, name: str) -> str:
        with self._explained():
            return self._sql.execute("SELECT value FROM metadata WHERE name = ?", (name,)).fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._sql.execute("COMMIT")
        except BaseException:
            if self._sql.in_transaction:  # SQLite has ended it by itself where the disk was full
                self._sql.execute("ROLLBACK")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors as ours."""
        try:
            yield
        except sqlite3.Error as error:
            passing = getattr(error, "sqlite_errorcode", 0) & 0xFF in PASSING
            raise (NoRoom if passing else NfadError)(
                f"the ledger {self.file} failed ({error}); is its disk full, read-only or shared?"
            ) from error
        except UnicodeDecodeError as error:  # what SQLite says of a damaged file quotes it, and may be no text
            raise NfadError(f"the ledger {self.file} is damaged; move it away, and a new one begins") from error
