"""Ledgers and their lines as nfad wrote them before there was a third verdict (2) and before records told of the camera
(3); the files are dumps of real ones."""

import json
import sqlite3
from pathlib import Path

import pytest

from nfad.errors import NfadError
from nfad.watch.earlier import LACKING
from nfad.watch.ledger import COLUMNS, FORMAT, Ledger
from nfad.watch.lines import Lines
from nfad.watch.record import FIELDS, Fingerprint, as_line
from nfad.watch.senders import Webhook
from nfad.watch.sorting import Sorter

HERE = Path(__file__).parent
NAME, RECEIVER = "9d5ecd2d4faf", "https://mes/"
pytestmark = pytest.mark.parametrize("before", LACKING)


@pytest.fixture
def written(before):
    return (HERE / f"results-{before}.jsonl").read_bytes()


@pytest.fixture
def old(tmp_path, folder, before, written):
    """The file of a ledger of an earlier format, with its five records."""
    file = tmp_path / "results" / "ledger.sqlite"
    file.parent.mkdir()
    sql = sqlite3.connect(file, isolation_level=None)
    sql.execute("PRAGMA journal_mode = WAL")
    sql.executescript((HERE / f"ledger-{before}.sql").read_text())
    sql.execute("UPDATE metadata SET value = ? WHERE name = 'folder'", (str(folder.resolve()),))
    sql.close()
    (file.parent / "results.jsonl").write_bytes(written)
    return file


def test_an_earlier_ledger_is_read_and_goes_on(old, before, written, folder, record):
    then = [json.loads(line) for line in written.splitlines()]
    for _ in range(2):  # the second time it is one of today's
        ledger = Ledger(old)
        ledger.belong_to(folder.resolve())
        assert ledger.name == NAME and ledger.last() == 5
        now = ledger.after(0)
        assert all(getattr(each, name) is None for each in now for name in LACKING[before])
        assert [{name: each.as_dict()[name] for name in then[0]} for each in now] == then
        assert ledger.latest("bad.png") == Fingerprint("bad.png", 1, now[4].mtime_ns, now[4].sha256)
        assert ledger.position(RECEIVER) == 3 and ledger.refusals(RECEIVER) == {2: "too long"}
        assert ledger.position("copy:/sorted") == 5
        ledger.close()
    ledger = Ledger(old)
    added = ledger.append(record("6.png", verdict="not judged", strangeness=1.5, camera="covered"))
    assert added.id == f"{NAME}-6" and ledger.after(5) == [added]
    assert (added.strangeness, added.camera) == (1.5, "covered")
    ledger.close()


def test_a_migrated_ledger_has_the_tables_of_a_new_one(old, before, written, tmp_path):
    schemas = []
    for file in (old, tmp_path / "new.sqlite"):
        Ledger(file).close()
        sql = sqlite3.connect(file)
        schemas.append(sorted(sql.execute("SELECT name, sql FROM sqlite_schema")))
        assert [row[1] for row in sql.execute("PRAGMA table_info(inspections)")] == [*FIELDS, "position"]
        assert sql.execute("SELECT value FROM metadata WHERE name = 'format'").fetchone() == (FORMAT,)
        sql.close()
    assert schemas[0] == schemas[1]
    assert set(json.loads(written.splitlines()[0])) == set(FIELDS) - set(LACKING[before])
    assert "strangeness REAL" in COLUMNS and "camera TEXT" in COLUMNS


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
def test_earlier_lines_are_not_rewritten_but_continued(old, written, kept, litter, tmp_path, record):
    file = tmp_path / "results.jsonl"
    sound = b"".join(written.splitlines(keepends=True)[:kept])
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


def test_an_earlier_line_that_says_something_else_is_cut_off(old, written, tmp_path):
    file = tmp_path / "results.jsonl"
    *sound, last = written.splitlines(keepends=True)[:3]
    assert last.count(b'"position"') == 0 and b'"verdict": "anomalous"' in last
    file.write_bytes(b"".join(sound) + last.replace(b'"verdict": "anomalous"', b'"verdict": "normal"'))
    ledger = Ledger(old)
    lines = Lines(file, ledger)
    lines.catch_up()
    lines.close()
    assert file.read_bytes() == b"".join(sound) + "".join(as_line(each) + "\n" for each in ledger.after(2)).encode()
    ledger.close()


def test_a_watch_goes_on_with_earlier_results(watch, old, written, folder, tmp_path, png, receiver, lines):
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
    assert (tmp_path / "results/results.jsonl").read_bytes() == written + (as_line(record) + "\n").encode()
