"""What nfad wrote before its records had all of today's fields: ledgers of formats 2 to 4, and their lines."""

from __future__ import annotations

import sqlite3

from nfad.system.files import strict_json
from nfad.watch.record import FIELDS, WatchRecord

# format → fields that it did not have
LACKING = {"2": ("strangeness", "camera", "moved"), "3": ("camera", "moved"), "4": ("moved",)}


def is_line_of(line: bytes, record: WatchRecord) -> bool:
    """Whether a line of an earlier format says what the record says, byte by byte."""
    for lacking in LACKING.values():
        values = {name: getattr(record, name) for name in FIELDS if name not in lacking}
        if all(getattr(record, name) is None for name in lacking) and (strict_json(values) + "\n").encode() == line:
            return True
    return False


def migrate(sql: sqlite3.Connection, create: str, format: str) -> None:
    """Turn a ledger of that format into one of today's, inside the caller's transaction: all of it or nothing.

    `create` makes the table of records. New columns stand where the record has its fields, hence a new table.
    """
    names = ", ".join((*(name for name in FIELDS if name not in LACKING[format]), "position"))
    sql.execute("ALTER TABLE inspections RENAME TO before")
    sql.execute(create)
    sql.execute(f"INSERT INTO inspections ({names}) SELECT {names} FROM before ORDER BY position")
    sql.execute("DROP TABLE before")
