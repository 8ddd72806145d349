import sqlite3

import pytest
from creeping import heap_in_use

from nfad.errors import NfadError
from nfad.watch.ledger import Ledger
from nfad.watch.record import FIELDS, Fingerprint


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "ledger.sqlite")
    yield opened
    opened.close()


def test_parts_are_numbered_in_order_and_there_after_a_reopening(ledger, record):
    added = [ledger.append(record(f"{i}.png")) for i in range(5)]
    assert [each.position for each in added] == [1, 2, 3, 4, 5]
    assert [each.id for each in added] == [f"{ledger.name}-{i}" for i in range(1, 6)]
    again = Ledger(ledger.file)
    assert again.after(2) == added[2:] and again.after(1, 2) == added[1:3] and again.last() == 5
    assert again.name == ledger.name
    again.close()


def test_each_commit_is_synced(ledger):
    assert ledger._sql.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert ledger._sql.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_latest_of_a_name_is_what_counts(ledger, record):
    assert ledger.latest("a.png") is None
    ledger.append(record("a.png", sha256="1"))
    ledger.append(record("a.png", sha256="2", mtime_ns=9))
    assert ledger.latest("a.png") == Fingerprint("a.png", 3, 9, "2")
    ledger.touch(Fingerprint("a.png", 3, 11, "2"))
    assert ledger.latest("a.png").mtime_ns == 11 and ledger.last() == 2


def test_a_record_that_cannot_be_written_leaves_nothing(ledger, record):
    with pytest.raises(NfadError, match=r"ledger .* failed"):
        ledger.append(record(sha256=object()))
    assert ledger.last() == 0 and ledger.latest("a.png") is None
    assert ledger.append(record()).position == 1


def test_a_receiver_starts_with_the_next_part_and_keeps_its_place(ledger, record):
    ledger.append(record())
    assert ledger.position("x") == 1
    ledger.append(record("b.png"))
    assert ledger.position("x") == 1  # asked again, nothing is skipped
    ledger.deliver("x", 2, refused="no")
    assert ledger.position("x") == 2 and ledger.refusals("x") == {2: "no"}
    assert ledger.position("y") == 2 and ledger.refusals("y") == {}


def test_a_ledger_is_of_one_folder(ledger, tmp_path):
    ledger.belong_to(tmp_path / "a")
    ledger.belong_to(tmp_path / "a")
    with pytest.raises(NfadError, match=r"holds the results of .*a, not of .*b; choose another"):
        ledger.belong_to(tmp_path / "b")


def test_another_version_and_another_file_are_refused(ledger, tmp_path):
    ledger._sql.execute("UPDATE metadata SET value = '99' WHERE name = 'format'")
    with pytest.raises(NfadError, match="another version"):
        Ledger(ledger.file)
    (tmp_path / "text").write_text("x" * 5000)
    with pytest.raises(NfadError, match="not a database"):
        Ledger(tmp_path / "text")


def test_others_can_read_while_it_is_written(ledger, record):
    ledger.append(record())
    reader = sqlite3.connect(ledger.file)
    assert reader.execute("SELECT image, verdict FROM inspections").fetchall() == [("a.png", "normal")]
    ledger.append(record("b.png"))
    assert reader.execute("SELECT count(*) FROM inspections").fetchone() == (2,)
    reader.close()


def test_the_columns_are_the_records_fields_in_order_and_the_position(ledger, record):
    added = ledger.append(record(nuisance_by_family={"sensor": 0.5}))
    reader = sqlite3.connect(ledger.file)
    found = reader.execute("SELECT * FROM inspections")
    assert [column[0] for column in found.description] == [*FIELDS, "position"]
    wanted = added.as_dict() | {"nuisance_by_family": '{"sensor": 0.5}'}
    assert found.fetchone() == (*wanted.values(), 1)
    reader.close()


def test_what_a_connection_remembers_stops_growing(tmp_path, record):
    """Over months: SQLite keeps pages of the file, by default 2 MB of them, which fill up over 5,000 records."""
    if heap_in_use() is None:
        pytest.skip("this C library does not tell what it holds")
    ledger = Ledger(tmp_path / "ledger.sqlite", durable=False)
    for i in range(900):
        ledger.append(record(f"{i}.png"))
    before = heap_in_use()
    for i in range(900, 2400):
        ledger.append(record(f"{i}.png"))
    assert heap_in_use() - before < 150_000  # with the default: 650,000
    ledger.close()
