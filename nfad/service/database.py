"""A connection to SQLite or PostgreSQL, whose commits survive a power cut, and its tables brought up to date."""

from __future__ import annotations

import sqlite3
from importlib.resources import files

import sqlalchemy as sa
from alembic import command
from alembic.config import Config as AlembicConfig
from sqlalchemy import event

from nfad.errors import NfadError


def open_engine(url: str) -> sa.Engine:
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "postgresql":
        # Ping: a connection that a restart of the server has broken is replaced, not handed out.
        return sa.create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True, pool_size=10)
    if parsed.get_backend_name() != "sqlite":
        raise NfadError(f"--db takes sqlite:///FILE or postgresql://…; got {parsed.get_backend_name()}")
    engine = sa.create_engine(parsed, connect_args={"timeout": 30})

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # transactions begin where we say, see below
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a commit is on the disk

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def migrate(engine: sa.Engine) -> None:
    config = AlembicConfig()
    config.set_main_option("script_location", str(files("nfad.service") / "migrations").replace("%", "%%"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def first_line(error: Exception) -> str:
    """Of what the database itself says."""
    return str(getattr(error, "orig", None) or error).splitlines()[0]
