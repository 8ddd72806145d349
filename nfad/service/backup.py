"""A station in one file: its database, pictures and models, taken while it runs and put back whole or not at all.

Whatever database the service uses, the file holds SQLite: it is read back into either kind.
"""

from __future__ import annotations

import io
import json
import re
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from nfad import __version__
from nfad.errors import NfadError
from nfad.service.database import first_line, open_engine
from nfad.service.models import NAME, Noted, models_noted
from nfad.service.pictures import file_names, folder_of
from nfad.service.record import Inspection, iso
from nfad.service.settings import DATABASE
from nfad.service.store import Filters, Store, batched
from nfad.service.tables import SCHEMA
from nfad.system.archive import Add, archive, extract
from nfad.system.files import locked, replacing, sync_folder, sync_tree

FORMAT = 1
ABOUT = "backup.json"
MEMBERS = re.compile(
    rf"{ABOUT}|{DATABASE}|pictures/\d{{4}}-\d\d-\d\d/[0-9a-f]{{22}}/(thumbnail\.jpg|maps\.tif|original\.[a-z]{{2,5}})"
    rf"|models/{NAME.pattern}(\.nfad|/{NAME.pattern})"
)
VERSION = sa.text("SELECT version_num FROM alembic_version")
CHUNK = 500


@dataclass(frozen=True)
class Backup:
    """What a backup holds."""

    path: Path
    inspections: int
    pictures: int  # inspections that have theirs
    models: tuple[str, ...]  # files below the data folder


def backup(data: Path, target: Path, db: str | None = None, *, force: bool = False) -> Backup:
    """Write the station of a data folder to a file, or into a folder under a name with the time; the service may run.

    The database comes first, as it is at one moment. Pictures are there before their row is, so all that it names can
    be copied; those that retention removes meanwhile are marked as removed in the copy.
    """
    now = datetime.now(UTC)
    path = target / f"nfad-station-{now:%Y%m%dT%H%M%SZ}.tar" if target.is_dir() else target
    if path.exists() and not force:
        raise NfadError(f"{path} exists; choose another name, or overwrite it with --force")
    noted = models_noted(data)
    with ExitStack() as stack:
        file = stack.enter_context(replacing(path))
        copy = Path(stack.enter_context(TemporaryDirectory(dir=path.parent, prefix=".nfad-"))) / DATABASE
        _copy_database(db or f"sqlite:///{(data / DATABASE).resolve()}", copy)
        add = stack.enter_context(archive(file))
        models = tuple(name for each in noted for name in _add_model(add, each))
        with closing(Store(f"sqlite:///{copy}")) as store:
            inspections, pictures, gone = 0, 0, list[str]()
            for inspection in store.every(Filters()):
                inspections += 1
                if inspection.pictures and _add_pictures(add, data, inspection):
                    pictures += 1
                elif inspection.pictures:
                    gone.append(inspection.id)
            for some in batched(gone, CHUNK):
                store.mark_pictures_removed(some)
        with closing(sqlite3.connect(copy)) as whole:
            whole.execute("PRAGMA journal_mode = DELETE")  # all of it in one file
        about = {"format": FORMAT, "nfad": __version__, "time": iso(now), "inspections": inspections}
        about |= {"pictures": pictures, "models": models}
        for name, content in ((DATABASE, copy.open("rb")), (ABOUT, io.BytesIO(json.dumps(about).encode()))):
            with content:
                add(name, content)
    return Backup(path, inspections, pictures, models)


def restore(path: Path, data: Path, db: str | None = None, *, force: bool = False) -> Backup:
    """Put a station into a folder that is not there yet, or with `force` into the place of one, which is kept beside it
    under another name. Everything is checked before anything is changed."""
    if not path.is_file():
        raise NfadError(f"{path} does not exist; name a file written by `nfad station backup`")
    if data.exists() and not data.is_dir():
        raise NfadError(f"{data} is a file; name a folder")
    data = data.resolve()
    taken = data.exists() and any(data.iterdir())
    if taken and not force:
        raise NfadError(f"{data} is not empty; name a new folder, or pass --force: what is there is kept beside it")
    with ExitStack() as stack:
        if taken:
            stack.enter_context(locked(data / "lock", f"an `nfad serve` uses {data}; stop it first"))
        data.parent.mkdir(parents=True, exist_ok=True)
        new = data.with_name(f".nfad-{secrets.token_hex(6)}.tmp")
        new.mkdir()
        stack.callback(shutil.rmtree, new, ignore_errors=True)
        extract(path, new, MEMBERS)
        held = _checked(path, new)
        commit = stack.enter_context(_filled(db, new / DATABASE, force)) if db else None
        if db:
            (new / DATABASE).unlink()
        sync_tree(new)
        _take_place(new, data, commit)
    return held


def _take_place(new: Path, data: Path, commit: sa.Transaction | None) -> None:
    """Rename, and commit what belongs to it; undone if that fails."""
    aside = data.with_name(f"{data.name}-before-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}") if data.exists() else None
    if aside:
        data.rename(aside)
    try:
        new.rename(data)
        if commit:
            commit.commit()
    except BaseException:
        with suppress(FileNotFoundError):
            data.rename(new)
        if aside:
            aside.rename(data)
        raise
    sync_folder(data.parent)


def _copy_database(url: str, copy: Path) -> None:
    """As it is at one moment, while others write."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        place = Path(parsed.database or "")
        if not place.is_file():
            raise NfadError(f"there is no database {place}; name the folder of `nfad serve --data`, or its --db")
        try:
            with (
                closing(sqlite3.connect(f"{place.resolve().as_uri()}?mode=ro", uri=True, timeout=30)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)  # all pages in one step: later writes go to the log, and are not in it
        except sqlite3.Error as error:
            raise NfadError(f"{place} cannot be read ({error}); is it the database of `nfad serve`?") from None
        return
    engine = open_engine(url)
    with closing(Store(f"sqlite:///{copy}")) as target, target.engine.begin() as writing:
        try:
            with engine.connect().execution_options(isolation_level="REPEATABLE READ") as reading:
                if reading.scalar(VERSION) != writing.scalar(VERSION):
                    raise NfadError("the database of --db is of another version; start the service once with this one")
                _copy_rows(reading, writing)
        except SQLAlchemyError as error:
            raise NfadError(f"the database of --db cannot be read ({first_line(error)}); check its address") from None
        finally:
            engine.dispose()


def _copy_rows(source: sa.Connection, target: sa.Connection) -> None:
    """All rows of all tables, into tables that are emptied for it."""
    for table in SCHEMA.sorted_tables:
        target.execute(table.delete())
        for some in source.execution_options(yield_per=CHUNK).execute(sa.select(table)).mappings().partitions():
            target.execute(table.insert(), [dict(row) for row in some])


@contextmanager
def _filled(db: str, copy: Path, force: bool) -> Iterator[sa.Transaction]:
    """The rows of the copy in the database of that address, not yet committed."""
    with closing(Store(f"sqlite:///{copy}")) as source, closing(Store(db)) as target:
        if target.newest() is not None and not force:
            raise NfadError("the database of --db holds inspections; name an empty one, or replace them with --force")
        try:
            with source.engine.connect() as reading, target.engine.connect() as writing, writing.begin() as transaction:
                _copy_rows(reading, writing)
                yield transaction
        except SQLAlchemyError as error:
            raise NfadError(f"the database of --db is as it was ({first_line(error)}); mend that, try again") from None


def _add_pictures(add: Add, data: Path, inspection: Inspection) -> bool:
    """All of them, or none if retention has removed one. Files that are open can be read to their end."""
    folder = folder_of(data, inspection.id)
    with ExitStack() as stack:
        try:
            files = [stack.enter_context((folder / name).open("rb")) for name in file_names(inspection.suffix)]
        except FileNotFoundError:
            return False
        for name, file in zip(file_names(inspection.suffix), files, strict=True):
            add(f"{folder.relative_to(data)}/{name}", file)
    return True


def _add_model(add: Add, noted: Noted) -> Iterator[str]:
    """A model's file, or the files of its folder, under its name in the service; yields what to serve."""
    if noted.has_changed():
        raise NfadError(
            f"{noted.path} is not the file that {noted.name} was last served from; put that one back, or start the "
            "service once with the new one"
        )
    single = noted.path.is_file()
    yield f"models/{noted.name}.nfad" if single else f"models/{noted.name}"
    for place in [noted.path] if single else sorted(noted.path.iterdir()):
        with place.open("rb") as file:
            add(f"models/{noted.name}.nfad" if single else f"models/{noted.name}/{place.name}", file)


def _checked(path: Path, folder: Path) -> Backup:
    """What was extracted is a station: of this format, its database sound, with the pictures that it names."""
    try:
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if about["format"] > FORMAT:
            raise NfadError(f"{path} was written by nfad {about['nfad']}; restore it with that one or a newer one")
        with closing(sqlite3.connect(f"{(folder / DATABASE).as_uri()}?mode=ro", uri=True)) as database:
            [said], [rows] = (
                database.execute("PRAGMA integrity_check"),
                database.execute("SELECT count(*) FROM inspections"),
            )
        if (said, rows) != (("ok",), (about["inspections"],)):
            raise NfadError(f"the database in {path} is damaged ({said[0]}, {rows[0]} rows); restore an older backup")
        held = Backup(path, about["inspections"], about["pictures"], tuple(map(str, about["models"])))
    except (OSError, ValueError, KeyError, TypeError, sqlite3.Error) as error:
        raise NfadError(f"{path} is no backup of a station ({error}); name a file of `nfad station backup`") from None
    (folder / ABOUT).unlink()
    return held
