"""Databases of earlier versions are brought up to date when they are opened, with all that is in them."""

import json
from contextlib import contextmanager
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config as AlembicConfig
from alembic.migration import MigrationContext

from nfad.records import RECORD_FIELDS
from nfad.service.record import Inspection
from nfad.service.store import Filters, Store
from nfad.service.tables import INSPECTIONS, SCHEMA

# Every row of a database that the service of version 0002 has written: three inspections, one of them reviewed.
OLD = json.loads((Path(__file__).parent / "database-v0002.json").read_text(encoding="utf-8"))
RENAMED = {
    "file_name": "image", "sentence": "explanation", "control_verdict": "unfiltered_verdict",
    "control_score": "unfiltered_score", "control_threshold": "unfiltered_threshold",
}  # fmt: skip


@contextmanager
def connected(url):
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def migrate(connection, how, revision):
    config = AlembicConfig()
    config.set_main_option("script_location", str(files("nfad.service") / "migrations"))
    config.attributes["connection"] = connection
    how(config, revision)


def columns(connection):
    return {each["name"] for each in sa.inspect(connection).get_columns("inspections")}


@pytest.fixture
def old(url):
    """A database of version 0002 with its rows."""
    with connected(url) as connection:
        migrate(connection, command.upgrade, "0002")
        for name, rows in OLD.items():
            connection.execute(sa.Table(name, sa.MetaData(), autoload_with=connection).insert(), rows)
    return url


def read(url):
    store = Store(url)
    try:
        return store.find(Filters(), 9), store.rate("part"), store.identity
    finally:
        store.close()


def test_the_tables_are_what_the_migrations_make(url):
    Store(url).close()
    with connected(url) as connection:
        assert compare_metadata(MigrationContext.configure(connection, {"compare_type": True}), SCHEMA) == []


def test_the_columns_are_the_records_fields_and_then_the_services_own():
    names = tuple(each.name for each in fields(Inspection))
    assert names[: len(RECORD_FIELDS)] == RECORD_FIELDS and set(INSPECTIONS.columns.keys()) == set(names)


def test_version_2_is_read_as_it_was_written(old):
    found, rate, identity = read(old)
    wanted = [{RENAMED.get(name, name): value for name, value in row.items()} for row in OLD["inspections"]]
    assert [each.as_dict() for each in found[::-1]] == wanted
    assert [rate] == [each["rate"] for each in OLD["rates"]] and [identity] == [each["value"] for each in OLD["facts"]]
    with connected(old) as connection:
        assert not columns(connection) & RENAMED.keys()
        indexes = {each["name"] for each in sa.inspect(connection).get_indexes("inspections")}
    assert indexes == {"by_model", "by_review", "by_pictures"}


def test_version_1_lacks_what_was_not_measured_then(old):
    with connected(old) as connection:
        migrate(connection, command.downgrade, "0001")
        assert "excess_filtered" not in columns(connection)
    found, _, _ = read(old)
    assert [each.excess_filtered for each in found] == 3 * [None] and found[-1].image == "cam0 é.png"


def test_there_is_a_way_back(old):
    before = read(old)
    with connected(old) as connection:
        migrate(connection, command.downgrade, "0002")
        assert columns(connection) == set(OLD["inspections"][0])
        migrate(connection, command.upgrade, "head")
    assert read(old) == before
