"""What nfad wrote before its records knew how strange a photo is: ledgers of format 2, and their lines."""

from __future__ import annotations

import sqlite3

from nfad.system.files import strict_json
from nfad.watch.record import WatchRecord

FIELDS = (
    "id", "time", "image", "sha256", "model", "model_sha256", "verdict", "explanation", "milliseconds", "score",
    "threshold", "false_alarm_rate", "p_value", "unfiltered_verdict", "unfiltered_score", "unfiltered_threshold",
    "excess_filtered", "nuisance_fraction", "nuisance_by_family", "participation", "gate", "arrived", "size",
    "mtime_ns",
)  # fmt: skip


def is_line_of(line: bytes, record: WatchRecord) -> bool:
    """Whether a line of format 2 says what the record says, byte by byte."""
    values = {name: getattr(record, name) for name in FIELDS}
    return record.strangeness is None and (strict_json(values) + "\n").encode() == line


def migrate(sql: sqlite3.Connection, create: str) -> None:
    """Turn a ledger of format 2 into one of today's, inside the caller's transaction: all of it or nothing.

    `create` makes the table of records. The new column stands where the record has its field, hence a new table.
    """
    names = ", ".join((*FIELDS, "position"))
    sql.execute("ALTER TABLE inspections RENAME TO before")
    sql.execute(create)
    sql.execute(f"INSERT INTO inspections ({names}) SELECT {names} FROM before ORDER BY position")
    sql.execute("DROP TABLE before")
