"""Every inspection record in one table of SQLite or PostgreSQL; when `add` returns, it survives a power cut.

A transaction that writes begins with its write, never with a read: SQLite then waits for its turn instead of failing.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from itertools import islice

import sqlalchemy as sa
from alembic.util import CommandError
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from nfad.errors import NfadError
from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED
from nfad.service import changes
from nfad.service.database import first_line, migrate, open_engine
from nfad.service.record import REVIEWS, Inspection, first_id, id_at, iso, lead_of
from nfad.service.tables import CHANGED, INSPECTIONS, METADATA, RATES

ROWS = INSPECTIONS.c
JUDGED = ROWS.verdict != NOT_JUDGED
LEAD, USUAL_LEAD = "lead", 60_000  # milliseconds that ids may be ahead of their time
SEARCHED = 100_000  # names that one search reads at most; the next page goes on behind them
CHUNK = 500  # rows read at once where there may be millions


@dataclass(frozen=True)
class Filters:
    """Which inspections; None is no condition."""

    model: str | None = None
    verdict: str | None = None
    changed: bool | None = None
    review: str | None = None  # good, bad, unsure, none, any
    since: datetime | None = None
    until: datetime | None = None
    search: str | None = None
    before: str | None = None
    least: str | None = None  # no id below it

    def conditions(self, lead: int) -> Iterator[sa.ColumnElement[bool]]:
        """`lead` is by how many milliseconds an id may be ahead of its time; it is never behind."""
        for name in ("model", "verdict"):
            if (value := getattr(self, name)) is not None:
                yield ROWS[name] == value
        if self.changed:  # a photo that is not judged has no verdict to change or to leave as it is
            yield sa.and_(CHANGED)
        elif self.changed is not None:
            yield sa.and_(JUDGED, ROWS.verdict == ROWS.unfiltered_verdict)
        if self.review in ("none", "any"):
            yield ROWS.review_verdict.is_(None) if self.review == "none" else ROWS.review_verdict.is_not(None)
        elif self.review is not None:
            yield ROWS.review_verdict == self.review
        if self.since is not None:
            yield sa.and_(ROWS.id >= id_at(self.since), ROWS.time >= iso(self.since))
        if self.until is not None:
            yield _before(self.until, lead)
        if self.search:
            yield ROWS.image.icontains(self.search, autoescape=True)
        if self.before is not None:
            yield ROWS.id < self.before
        if self.least is not None:
            yield ROWS.id >= self.least


class Store:
    """For any number of threads. Tables are made or brought up to date on opening."""

    def __init__(self, url: str) -> None:
        self._changing = threading.Lock()  # what is changed is read before; one process at a time serves
        self._counting = threading.Lock()
        self._totals: dict[tuple[str, str], Counter[str]] = {}  # verdicts of a model file: rows are only ever added
        try:
            self.engine = open_engine(url)
            migrate(self.engine)
            self.identity = self._metadata("store", secrets.token_hex(8))
            self._lead = int(self._metadata(LEAD, str(USUAL_LEAD)))
        except (SQLAlchemyError, CommandError, ArgumentError) as error:
            raise NfadError(f"the database cannot be used ({first_line(error)}); check --db and permissions") from None

    def close(self) -> None:
        self.engine.dispose()

    def ping(self) -> None:
        with self.engine.connect() as connection:
            connection.execute(sa.select(1))

    def answers(self) -> bool:
        try:
            self.ping()
        except SQLAlchemyError:
            return False
        return True

    def add(self, inspections: Sequence[Inspection]) -> None:
        """All of them or none; they are kept when this returns."""
        if not inspections:
            return
        lead = max(map(lead_of, inspections))
        with self._counting:
            with self.engine.begin() as connection:
                connection.execute(INSPECTIONS.insert(), [each.as_dict() for each in inspections])
                if lead > self._lead:
                    doubled = METADATA.update().where(METADATA.c.name == LEAD).values(value=str(2 * lead))
                    connection.execute(doubled)  # so that it is not told at every step
            for each in inspections:
                if (total := self._totals.get((each.model, each.model_sha256))) is not None:
                    total[each.verdict] += 1
        if lead > self._lead:
            self._lead = 2 * lead

    def get(self, id: str) -> Inspection | None:
        found = self._read(sa.select(INSPECTIONS).where(ROWS.id == id))
        return found[0] if found else None

    def find(self, filters: Filters, limit: int) -> list[Inspection]:
        """The newest first."""
        newest = ROWS.id.desc()
        chosen = sa.select(INSPECTIONS).where(*filters.conditions(self._lead)).order_by(newest).limit(limit)
        if filters.search:  # names are read from an index, and whole rows only where they match
            ids = chosen.with_only_columns(ROWS.id).subquery()
            chosen = sa.select(INSPECTIONS).join(ids, ROWS.id == ids.c.id).order_by(newest)
        return self._read(chosen)

    def searched_to(self, before: str | None) -> str | None:
        """The id of the last name that a search reads which begins there; None if it reads all that are left."""
        names = sa.select(ROWS.id).order_by(ROWS.id.desc()).offset(SEARCHED - 1).limit(1)
        with self.engine.connect() as connection:
            return connection.scalar(names if before is None else names.where(ROWS.id < before))

    def every(self, filters: Filters) -> Iterator[Inspection]:
        """The same without a limit, in memory that does not grow."""
        page = self.find(filters, CHUNK)
        while page:
            yield from page
            page = self.find(replace(filters, before=page[-1].id), CHUNK)

    def review(
        self, id: str, verdict: str | None, note: str | None, time: str | None, who: str = changes.SERVICE
    ) -> Inspection | None:
        """Set the operator's review, or take it back (None); returns None if there is no such inspection."""
        values = {"review_verdict": verdict, "review_note": note, "review_time": time}
        with self._changing:
            known = self.get(id)
            if known is None:
                return None
            before = {"verdict": known.review_verdict, "note": known.review_note}
            with self.engine.begin() as connection:
                connection.execute(INSPECTIONS.update().where(ROWS.id == id).values(values))
                changes.note(connection, who, changes.REVIEW, id, before, {"verdict": verdict, "note": note})
            return replace(known, **values)

    def rate(self, model: str) -> float | None:
        """The false-alarm rate a model was set to, if it was."""
        with self.engine.connect() as connection:
            return connection.scalar(sa.select(RATES.c.rate).where(RATES.c.model == model))

    def set_rate(self, model: str, rate: float, who: str = changes.SERVICE, used: float | None = None) -> None:
        """`used` is the one so far, of the model's own file if none was set."""
        with self._changing, self.engine.begin() as connection:
            connection.execute(RATES.delete().where(RATES.c.model == model))
            connection.execute(RATES.insert(), {"model": model, "rate": rate})
            changes.note(connection, who, changes.RATE, model, {"rate": used}, {"rate": rate})

    def note_model(self, model: str, sha256: str) -> None:
        """Another file than before is served under that name."""
        last = changes.changes(self.engine, 1, what=changes.MODEL, subject=model)
        before, after = (last[0].after if last else None), {"sha256": sha256}
        if before != after:
            with self.engine.begin() as connection:
                changes.note(connection, changes.SERVICE, changes.MODEL, model, before, after)

    def counts(self, model: str, sha256: str, threshold: float) -> dict[str, int]:
        """How the inspections of one model file were judged, and how they would be at another threshold.

        Photos that are not judged, which no threshold changes, are counted apart, as `not_judged` and so on.
        """
        mine, above = sa.and_(ROWS.model == model, ROWS.model_sha256 == sha256), ROWS.score > threshold
        by_verdict = sa.select(ROWS.verdict, sa.func.count()).where(mine).group_by(ROWS.verdict)
        seen = sa.select(ROWS.verdict, ROWS.review_verdict, sa.func.coalesce(above, sa.false()), sa.func.count())
        seen = seen.where(mine, ROWS.review_verdict.in_(REVIEWS)).group_by(*seen.selected_columns[:3])
        # Each by an index of its own: over all rows at once it takes seconds of a million.
        with self._counting:
            if (model, sha256) not in self._totals:
                self._totals[model, sha256] = self._counted(by_verdict)
            total = self._totals[model, sha256].copy()
        then = self._counted(by_verdict.where(ROWS.verdict.in_((NORMAL, ANOMALOUS)), above))
        with self.engine.connect() as connection:
            reviews = [(verdict, said, bool(would), count) for verdict, said, would, count in connection.execute(seen)]

        def reviewed(said: str, *, was: bool | None = None, would: bool | None = None, judged: bool = True) -> int:
            return sum(
                count
                for verdict, each, above, count in reviews
                if each == said
                and (verdict != NOT_JUDGED) == judged
                and was in (None, verdict == ANOMALOUS)
                and would in (None, above)
            )

        return {
            "inspections": total.total() - total[NOT_JUDGED],
            "anomalous": total[ANOMALOUS],
            "anomalous_then": then.total(),
            "newly_rejected": then[NORMAL],
            "newly_accepted": total[ANOMALOUS] - then[ANOMALOUS],
            "false_alarms": reviewed("good", was=True),
            "false_alarms_then": reviewed("good", would=True),
            "missed": reviewed("bad", was=False),
            "missed_then": reviewed("bad", would=False),
            **{said: reviewed(said) for said in REVIEWS},
            "not_judged": total[NOT_JUDGED],
            **{f"not_judged_{said}": reviewed(said, judged=False) for said in REVIEWS},
        }

    def changing(self, model: str, sha256: str, threshold: float, limit: int) -> dict[str, list[Inspection]]:
        """Which inspections of one model file would change sides at another threshold, the nearest to it first."""
        mine = sa.select(INSPECTIONS).where(ROWS.model == model, ROWS.model_sha256 == sha256).limit(limit)
        rejected = mine.where(ROWS.verdict == NORMAL, ROWS.score > threshold).order_by(ROWS.score, ROWS.id.desc())
        accepted = mine.where(ROWS.verdict == ANOMALOUS, ROWS.score <= threshold)
        accepted = accepted.order_by(ROWS.score.desc(), ROWS.id.desc())
        return {"rejected": self._read(rejected), "accepted": self._read(accepted)}

    def reviewed_scores(self, model: str, sha256: str, verdict: str) -> list[float]:
        """Of judged parts only."""
        chosen = sa.select(ROWS.score).where(
            ROWS.model == model, ROWS.model_sha256 == sha256, ROWS.review_verdict == verdict, JUDGED
        )
        with self.engine.connect() as connection:
            return list(connection.scalars(chosen))

    def latest(self, model: str, sha256: str, count: int) -> list[Inspection]:
        """The last inspections of one model file, in the order they were made."""
        mine = sa.and_(ROWS.model == model, ROWS.model_sha256 == sha256)
        return self._read(sa.select(INSPECTIONS).where(mine).order_by(ROWS.id.desc()).limit(count))[::-1]

    def time_of(self, model: str, sha256: str, newer: int, *, judged: bool) -> str | None:
        """The time of the inspection that this many newer ones have followed, of the judged ones or of all."""
        mine = sa.and_(ROWS.model == model, ROWS.model_sha256 == sha256, JUDGED if judged else sa.true())
        with self.engine.connect() as connection:
            return connection.scalar(sa.select(ROWS.time).where(mine).order_by(ROWS.id.desc()).offset(newer).limit(1))

    def with_pictures(self, *, beyond: int = 0, until: datetime | None = None, limit: int = CHUNK) -> list[str]:
        """Ids whose pictures are still there: from before `until`, and without the `beyond` newest of them."""
        chosen = sa.select(ROWS.id).where(ROWS.pictures)
        if until is not None:
            chosen = chosen.where(_before(until, self._lead))
        newest = chosen.order_by(ROWS.id.desc()).offset(beyond).limit(limit)
        with self.engine.connect() as connection:
            return list(connection.scalars(newest))

    def mark_pictures_removed(self, ids: Sequence[str]) -> None:
        # One by one: a list of each length is a statement of its own, and each connection remembers 128 of them.
        chosen = INSPECTIONS.update().where(ROWS.id == sa.bindparam("chosen")).values(pictures=False)
        with self.engine.begin() as connection:
            connection.execute(chosen, [{"chosen": id} for id in ids])

    def known(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids that are inspections; some at a time, because databases bound what one question names."""
        found: set[str] = set()
        with self.engine.connect() as connection:
            for some in batched(ids, CHUNK):
                found.update(connection.scalars(sa.select(ROWS.id).where(ROWS.id.in_(some))))
        return found

    def newest(self) -> Inspection | None:
        """Of all models."""
        found = self.find(Filters(), 1)
        return found[0] if found else None

    def _counted(self, by_verdict: sa.Select) -> Counter[str]:
        with self.engine.connect() as connection:
            return Counter({row.verdict: row[1] for row in connection.execute(by_verdict)})

    def _read(self, chosen: sa.Select) -> list[Inspection]:
        with self.engine.connect() as connection:
            return [_inspection(row) for row in connection.execute(chosen).mappings()]

    def _metadata(self, name: str, first: str) -> str:
        """What is kept under that name, which is `first` at first."""
        with self.engine.begin() as connection:
            known = connection.scalar(sa.select(METADATA.c.value).where(METADATA.c.name == name))
            if known is None:
                known = first
                connection.execute(METADATA.insert(), {"name": name, "value": known})
            return known


def _before(until: datetime, lead: int) -> sa.ColumnElement[bool]:
    latest = first_id(int(id_at(until)[:12], 16) + lead)
    return sa.and_(ROWS.id < latest, ROWS.time < iso(until))


def batched(values: Iterable[str], size: int) -> Iterator[list[str]]:
    """In lists of at most that size."""
    left = iter(values)
    while some := list(islice(left, size)):
        yield some


def _inspection(row: sa.RowMapping) -> Inspection:
    return Inspection(**{each.name: row[each.name] for each in fields(Inspection)})
