"""Databases of earlier versions are brought up to date when they are opened, with all that is in them."""

import json
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config as AlembicConfig
from alembic.migration import MigrationContext

from nfad.records import RECORD_FIELDS
from nfad.service.record import Inspection, new_id
from nfad.service.store import Filters, Store
from nfad.service.tables import INSPECTIONS, SCHEMA

# Every row of databases that the services of these versions have written: three inspections, one of them reviewed.
OLD, V0003 = (
    json.loads((Path(__file__).parent / f"database-v{version}.json").read_text(encoding="utf-8"))
    for version in ("0002", "0003")
)
INDEXES = {"by_name", "by_model", "by_review", "by_pictures", "by_verdict", "by_score", "by_changed", "by_reviewed"}
RENAMED = {
    "file_name": "image", "sentence": "explanation", "control_verdict": "unfiltered_verdict",
    "control_score": "unfiltered_score", "control_threshold": "unfiltered_threshold",
}  # fmt: skip


@contextmanager
def connected(url):
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def migrate(connection, how, revision):
    config = AlembicConfig()
    config.set_main_option("script_location", str(files("nfad.service") / "migrations"))
    config.attributes["connection"] = connection
    how(config, revision)


def columns(connection):
    return {each["name"] for each in sa.inspect(connection).get_columns("inspections")}


def written(url, version, tables):
    with connected(url) as connection:
        migrate(connection, command.upgrade, version)
        for name, rows in tables.items():
            connection.execute(sa.Table(name, sa.MetaData(), autoload_with=connection).insert(), rows)
    return url


@pytest.fixture
def old(url):
    """A database of version 0002 with its rows."""
    return written(url, "0002", OLD)


@pytest.fixture
def third(url):
    """A database of version 0003 with its rows."""
    return written(url, "0003", V0003)


def indexes(connection):
    return {each["name"] for each in sa.inspect(connection).get_indexes("inspections")}


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


def test_a_column_may_be_null_where_the_field_may_be_none():
    for name, kind in get_type_hints(Inspection).items():
        assert INSPECTIONS.columns[name].nullable == (type(None) in get_args(kind)), name


def test_version_2_is_read_as_it_was_written(old):
    found, rate, identity = read(old)
    wanted = [{RENAMED.get(name, name): value for name, value in row.items()} for row in OLD["inspections"]]
    assert [each.as_dict() for each in found[::-1]] == [row | {"strangeness": None, "moved": None} for row in wanted]
    assert [rate] == [each["rate"] for each in OLD["rates"]] and [identity] == [each["value"] for each in OLD["facts"]]
    with connected(old) as connection:
        assert not columns(connection) & RENAMED.keys()
        assert indexes(connection) == INDEXES


def test_version_3_is_read_as_it_was_written(third):
    found, rate, identity = read(third)
    wanted = [row | {"strangeness": None, "moved": None} for row in V0003["inspections"]]
    assert [each.as_dict() for each in found[::-1]] == wanted
    assert [rate] == [each["rate"] for each in V0003["rates"]]
    assert [identity] == [each["value"] for each in V0003["metadata"]]
    with connected(third) as connection:
        assert indexes(connection) == INDEXES
        assert sa.inspect(connection).get_pk_constraint("inspections")["constrained_columns"] == ["id"]


def test_what_has_no_score_is_kept_beside_them_and_then_there_is_no_way_back(third):
    store = Store(third)
    one = store.find(Filters(), 1)[0]
    unjudged = replace(one, id=new_id(), verdict="not judged", score=None, unfiltered_score=None, strangeness=1.5)
    store.add([unjudged])
    assert store.get(unjudged.id) == unjudged and len(store.find(Filters(), 9)) == 4
    store.close()
    with pytest.raises(sa.exc.IntegrityError), connected(third) as connection:
        migrate(connection, command.downgrade, "0003")
    assert len(read(third)[0]) == 4  # nothing was lost in trying


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
