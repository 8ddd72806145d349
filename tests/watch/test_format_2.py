"""A ledger and its lines as nfad wrote them before there was a third verdict; ledger-2.sql is a real one's dump."""

import json
import sqlite3
from pathlib import Path

import pytest

from nfad.errors import NfadError
from nfad.watch import format_2
from nfad.watch.ledger import COLUMNS, Ledger
from nfad.watch.lines import Lines
from nfad.watch.record import FIELDS, Fingerprint, as_line
from nfad.watch.senders import Webhook
from nfad.watch.sorting import Sorter

HERE = Path(__file__).parent
NAME, RECEIVER = "9d5ecd2d4faf", "https://mes/"
LINES = (HERE / "results-2.jsonl").read_bytes()


@pytest.fixture
def old(tmp_path, folder):
    """The file of a ledger of format 2, with its five records."""
    file = tmp_path / "results" / "ledger.sqlite"
    file.parent.mkdir()
    sql = sqlite3.connect(file, isolation_level=None)
    sql.execute("PRAGMA journal_mode = WAL")
    sql.executescript((HERE / "ledger-2.sql").read_text())
    sql.execute("UPDATE metadata SET value = ? WHERE name = 'folder'", (str(folder.resolve()),))
    sql.close()
    (file.parent / "results.jsonl").write_bytes(LINES)
    return file


def test_a_ledger_of_format_2_is_read_and_goes_on(old, folder, record):
    then = [json.loads(line) for line in LINES.splitlines()]
    for _ in range(2):  # the second time it is one of today's
        ledger = Ledger(old)
        ledger.belong_to(folder.resolve())
        assert ledger.name == NAME and ledger.last() == 5
        now = ledger.after(0)
        assert all(each.strangeness is None for each in now)
        assert [{name: each.as_dict()[name] for name in format_2.FIELDS} for each in now] == then
        assert ledger.latest("bad.png") == Fingerprint("bad.png", 1, now[4].mtime_ns, now[4].sha256)
        assert ledger.position(RECEIVER) == 3 and ledger.refusals(RECEIVER) == {2: "too long"}
        assert ledger.position("copy:/sorted") == 5
        ledger.close()
    ledger = Ledger(old)
    added = ledger.append(record("6.png", verdict="not judged", strangeness=1.5))
    assert added.id == f"{NAME}-6" and ledger.after(5) == [added] and added.strangeness == 1.5
    ledger.close()


def test_a_migrated_ledger_has_the_tables_of_a_new_one(old, tmp_path):
    schemas = []
    for file in (old, tmp_path / "new.sqlite"):
        Ledger(file).close()
        sql = sqlite3.connect(file)
        schemas.append(sorted(sql.execute("SELECT name, sql FROM sqlite_schema")))
        assert [row[1] for row in sql.execute("PRAGMA table_info(inspections)")] == [*FIELDS, "position"]
        assert sql.execute("SELECT value FROM metadata WHERE name = 'format'").fetchone() == ("3",)
        sql.close()
    assert schemas[0] == schemas[1]
    assert set(format_2.FIELDS) == set(FIELDS) - {"strangeness"} and "strangeness REAL" in COLUMNS


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(old):
    sql = sqlite3.connect(old, isolation_level=None)
    sql.execute("ALTER TABLE inspections DROP COLUMN gate")
    before = list(sql.iterdump())
    with pytest.raises(NfadError, match="gate"):
        Ledger(old)
    assert list(sql.iterdump()) == before
    sql.close()


@pytest.mark.parametrize("kept", [5, 3, 0])  # a crash or a full disk kept the rest from it
@pytest.mark.parametrize("litter", [b"", b'{"id": "9d5ecd2d4faf-4", "ti', b"\0" * 100])
def test_lines_of_format_2_are_not_rewritten_but_continued(old, kept, litter, tmp_path, record):
    file = tmp_path / "results.jsonl"
    sound = b"".join(LINES.splitlines(keepends=True)[:kept])
    file.write_bytes(sound + litter)
    ledger = Ledger(old)
    ledger.append(record("6.png", strangeness=0.5))
    for _ in range(2):
        lines = Lines(file, ledger)
        lines.catch_up()
        lines.close()
        assert file.read_bytes() == sound + "".join(as_line(each) + "\n" for each in ledger.after(kept)).encode()
    assert len(list(tmp_path.glob("results.*.jsonl"))) == (kept == 0)  # without a sound line it is another ledger's
    ledger.close()


def test_a_line_of_format_2_that_says_something_else_is_cut_off(old, tmp_path):
    file = tmp_path / "results.jsonl"
    *sound, last = LINES.splitlines(keepends=True)[:3]
    assert last.count(b'"position"') == 0 and b'"verdict": "anomalous"' in last
    file.write_bytes(b"".join(sound) + last.replace(b'"verdict": "anomalous"', b'"verdict": "normal"'))
    ledger = Ledger(old)
    lines = Lines(file, ledger)
    lines.catch_up()
    lines.close()
    assert file.read_bytes() == b"".join(sound) + "".join(as_line(each) + "\n" for each in ledger.after(2)).encode()
    ledger.close()


def test_a_watch_goes_on_with_results_of_format_2(watch, old, folder, tmp_path, png, receiver, lines):
    """What was judged then is not judged again, and a receiver that was behind gets the rest in today's format."""
    webhook, sorter = Webhook(f"http://{receiver.address}/"), Sorter(tmp_path / "sorted", "copy", folder)
    sql = sqlite3.connect(old, isolation_level=None)
    sql.executemany("INSERT INTO delivered VALUES (?, ?)", [(webhook.name, 2), (sorter.name, 5)])
    sql.close()
    (folder / "new.png").write_bytes(png(1))
    [record], warnings, _ = watch(senders=[webhook], sorters=[sorter])
    assert not warnings and record.id == f"{NAME}-6"
    assert receiver.ids == [f"{NAME}-{i}" for i in range(3, 7)]
    assert all(each.keys() == set(FIELDS) for each in receiver.accepted)
    assert (tmp_path / "results/results.jsonl").read_bytes() == LINES + (as_line(record) + "\n").encode()
