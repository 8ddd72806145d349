"""What nfad wrote before all its records had the same fields: ledgers of format 1, and their lines."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from nfad.system.files import finite
from nfad.watch.record import WatchRecord, as_values

RENAMED = {
    "path": "image",
    "model": "model_sha256",  # the name was not kept
    "control_verdict": "unfiltered_verdict",
    "control_score": "unfiltered_score",
    "control_threshold": "unfiltered_threshold",
}
LINE = {
    "id", "key", "image", "size", "mtime_ns", "sha256", "arrived", "verdict", "model", "milliseconds", "score",
    "threshold", "p_value", "control_verdict", "control_score", "control_threshold", "excess_filtered",
    "nuisance_fraction", "nuisance_by_family", "gate", "participation", "explanation", "error",
}  # fmt: skip
NOT_IN_ALL = {"excess_filtered"}  # came while the format was 1


def record_from(row: Mapping[str, Any], ledger: str) -> WatchRecord:
    """A row of format 1 as a record. When it was judged was not kept; when the file arrived comes closest."""
    values: dict[str, Any] = finite(row)
    given = {RENAMED.get(name, name): value for name, value in values.items()}
    error = given.pop("error")
    if error is not None:
        given["explanation"] = error
    arrived = given["arrived"].replace("+00:00", "Z")
    families = {family: share for family, share in given["nuisance_by_family"].items() if share is not None}
    changed: dict[str, Any] = {"id": f"{ledger}-{row['id']}", "arrived": arrived, "nuisance_by_family": families}
    return WatchRecord(**given | changed, time=arrived, model="")


def is_line_of(line: Mapping[str, Any], record: WatchRecord, ledger: str) -> bool:
    """Whether a line of format 1 says what the record says."""
    if line.keys() | NOT_IN_ALL != LINE:
        return False
    row = {"path" if name == "image" else name: value for name, value in line.items() if name != "key"}
    return record_from(row, ledger) == record


def migrate(sql: sqlite3.Connection, create: str, insert: str) -> None:
    """Turn a ledger of format 1 into one of today's, inside the caller's transaction: all of it or nothing.

    `create` makes the table of records, `insert` puts one into it. Receivers keep their positions,
    so none gets a record twice or misses one.
    """
    for statement in (
        create,
        "ALTER TABLE facts RENAME TO metadata",
        "ALTER TABLE latest RENAME COLUMN path TO image",
        "ALTER TABLE delivered RENAME COLUMN id TO position",
        "ALTER TABLE refused RENAME COLUMN id TO position",
    ):
        sql.execute(statement)
    [ledger] = sql.execute("SELECT value FROM metadata WHERE name = 'ledger'").fetchone()
    rows = sql.execute("SELECT * FROM judged ORDER BY id")
    names = [column[0] for column in rows.description]
    for values in rows:
        row = dict(zip(names, values, strict=True))
        record = record_from(row | {"nuisance_by_family": json.loads(row["nuisance_by_family"])}, ledger)
        sql.execute(insert, (*as_values(record), record.position))
    sql.execute("DROP TABLE judged")
