"""The audit log: who changed a rate, a model, a review or a token, when, and what it was before. Nothing leaves it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from nfad.service.record import iso
from nfad.service.tables import CHANGES

RATE, MODEL, REVIEW, TOKEN = KINDS = ("rate", "model", "review", "token")
SERVICE, OPERATOR = "nfad serve", "nfad station"  # who, where it is no caller


@dataclass(frozen=True)
class Change:
    number: int
    time: str
    who: str  # the name of the caller's token
    what: str
    subject: str  # the name of the model or the token, or an inspection's id
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def note(
    connection: sa.Connection,
    who: str,
    what: str,
    subject: str,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    """In the transaction of the change itself, so that there is none without the other."""
    values = {"who": who, "what": what, "subject": subject, "before": before, "after": after}
    connection.execute(CHANGES.insert(), {"time": iso(datetime.now(UTC)), **values})


def changes(
    engine: sa.Engine, limit: int, *, before: int | None = None, what: str | None = None, subject: str | None = None
) -> list[Change]:
    """The newest first; `before` is the number of one that is left out with all newer ones."""
    chosen = sa.select(CHANGES).order_by(CHANGES.c.number.desc()).limit(limit)
    if before is not None:
        chosen = chosen.where(CHANGES.c.number < before)
    for column, wanted in ((CHANGES.c.what, what), (CHANGES.c.subject, subject)):
        chosen = chosen if wanted is None else chosen.where(column == wanted)
    with engine.connect() as connection:
        return [Change(**row) for row in connection.execute(chosen).mappings()]
