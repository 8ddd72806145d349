"""Ledgers and lines as nfad wrote them before its records had one format, made here as it made them then."""

import json
import sqlite3

import pytest

from nfad.errors import NfadError
from nfad.watch.format_1 import LINE, RENAMED
from nfad.watch.ledger import Ledger
from nfad.watch.lines import Lines
from nfad.watch.record import Fingerprint, WatchRecord, as_line
from nfad.watch.senders import Webhook
from nfad.watch.sorting import Sorter

NAME = "0123456789ab"
COLUMNS = (
    "path", "size", "mtime_ns", "sha256", "arrived", "verdict", "model", "milliseconds", "score", "threshold",
    "p_value", "control_verdict", "control_score", "control_threshold", "excess_filtered", "nuisance_fraction",
    "nuisance_by_family", "gate", "participation", "explanation", "error",
)  # fmt: skip
OTHERS = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE latest (path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, sha256 TEXT) WITHOUT ROWID;
CREATE TABLE delivered (receiver TEXT PRIMARY KEY, id INTEGER NOT NULL);
CREATE TABLE refused (receiver TEXT, id INTEGER, reason TEXT NOT NULL, PRIMARY KEY (receiver, id));
"""
KINDS = {
    "with excess_filtered": COLUMNS,
    "without it": [name for name in COLUMNS if name != "excess_filtered"],
    "which got it later": [name for name in COLUMNS if name != "excess_filtered"],
}


def old_row(i):
    """Of the fifth file no image could be made; the fourth has numbers that are none."""
    row = {
        "path": f"{i}.png", "size": i, "mtime_ns": 10 * i, "sha256": f"{i}" * 64,
        "arrived": f"2024-05-01T00:00:0{i}.000+00:00", "verdict": "normal", "model": "f" * 64, "milliseconds": 1.5,
        "score": i + 0.1, "threshold": 2.0, "p_value": 0.25, "control_verdict": "anomalous", "control_score": i + 3.3,
        "control_threshold": 3.0, "excess_filtered": 0.5, "nuisance_fraction": 0.75,
        "nuisance_by_family": {"photometric": 0.5, "sensor": 0.25}, "gate": 1.0, "participation": 0.5,
        "explanation": "Normal.", "error": None,
    }  # fmt: skip
    if i == 4:
        row |= {"p_value": None, "control_threshold": float("inf"), "nuisance_by_family": {"sensor": float("nan")}}
    if i == 5:
        given = {name: row[name] for name in COLUMNS[:8]} | {"verdict": "unreadable", "error": "torn"}
        row = dict.fromkeys(COLUMNS) | given | {"nuisance_by_family": {}, "explanation": ""}
    return row


def old_line(i, columns):
    row = old_row(i)
    if i == 4:
        row |= {"control_threshold": None, "nuisance_by_family": {"sensor": None}}
    line = {"id": i, "key": f"{NAME}-{i}", "image": row["path"]} | {name: row[name] for name in columns[1:]}
    return (json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n").encode()


def new_record(i, columns):
    row = old_row(i)
    at = f"2024-05-01T00:00:0{i}.000Z"
    changed = {"id": f"{NAME}-{i}", "time": at, "arrived": at, "model": ""}
    if i == 4:
        changed |= {"unfiltered_threshold": None, "nuisance_by_family": {}}
    if i == 5:
        changed |= {"explanation": "torn"}
    if "excess_filtered" not in columns:
        changed |= {"excess_filtered": None}
    del row["error"]
    return WatchRecord(**{RENAMED.get(name, name): value for name, value in row.items()} | changed)


def old_ledger(file, kind, folder, receivers, count=5):
    columns = KINDS[kind]
    file.parent.mkdir(exist_ok=True)
    sql = sqlite3.connect(file, isolation_level=None)
    sql.execute("PRAGMA journal_mode = WAL")
    sql.executescript(OTHERS)
    sql.execute(f"CREATE TABLE judged ({', '.join(columns)}, id INTEGER PRIMARY KEY)")
    facts = {"format": "1", "ledger": NAME, "folder": str(folder)}
    sql.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
    for i in range(1, count + 1):
        row = old_row(i)
        values = [json.dumps(row[name]) if name == "nuisance_by_family" else row[name] for name in columns]
        marks = ", ".join("?" * (len(columns) + 1))
        sql.execute(f"INSERT INTO judged ({', '.join(columns)}, id) VALUES ({marks})", (*values, i))
        latest = [row[name] for name in ("path", "size", "mtime_ns", "sha256")]
        sql.execute("INSERT INTO latest VALUES (?, ?, ?, ?)", latest)
    if kind == "which got it later":
        sql.execute("ALTER TABLE judged ADD COLUMN excess_filtered")
    sql.executemany("INSERT INTO delivered VALUES (?, ?)", receivers.items())
    sql.execute("INSERT INTO refused VALUES ('https://mes/', 2, 'too long')")
    sql.close()
    return columns


@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_of_format_1_is_read_and_goes_on(kind, tmp_path, folder, record):
    file = tmp_path / "results" / "ledger.sqlite"
    columns = old_ledger(file, kind, folder, {"https://mes/": 3, "copy:/sorted": 5})
    for _ in range(2):  # the second time it is one of today's
        ledger = Ledger(file)
        ledger.belong_to(folder)
        assert ledger.name == NAME and ledger.last() == 5
        assert ledger.after(0) == [new_record(i, columns) for i in range(1, 6)]
        assert ledger.latest("3.png") == Fingerprint("3.png", 3, 30, "3" * 64)
        assert ledger.position("https://mes/") == 3 and ledger.refusals("https://mes/") == {2: "too long"}
        assert ledger.position("copy:/sorted") == 5 and ledger.position("new") == 5
        ledger.close()
    ledger = Ledger(file)
    added = ledger.append(record("6.png"))
    assert added.id == f"{NAME}-6" and ledger.after(5) == [added]
    ledger.deliver("https://mes/", 6)
    tables = {name for [name] in ledger._sql.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert tables == {"metadata", "inspections", "latest", "delivered", "refused"}
    ledger.close()


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(tmp_path, folder):
    file = tmp_path / "ledger.sqlite"
    old_ledger(file, "with excess_filtered", folder, {})
    sql = sqlite3.connect(file, isolation_level=None)
    sql.execute("UPDATE judged SET sha256 = NULL WHERE id = 4")  # which no record may have
    before = list(sql.iterdump())
    with pytest.raises(NfadError, match="NOT NULL"):
        Ledger(file)
    assert list(sql.iterdump()) == before
    sql.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("litter", [b"", b'{"id": 4, "key": "0123', b"\0" * 100])
def test_lines_of_format_1_are_not_rewritten_but_continued(kind, litter, tmp_path, folder, record):
    file = tmp_path / "results.jsonl"
    columns = old_ledger(tmp_path / "ledger.sqlite", kind, folder, {})
    assert json.loads(old_line(1, columns)).keys() | {"excess_filtered"} == LINE
    old = b"".join(old_line(i, columns) for i in range(1, 5))  # a crash or a full disk kept the fifth from it
    file.write_bytes(old + litter)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    added = ledger.append(record("6.png"))
    for _ in range(2):
        lines = Lines(file, ledger)
        lines.catch_up()
        lines.close()
        new = [new_record(5, columns), added]
        assert file.read_bytes() == old + "".join(as_line(each) + "\n" for each in new).encode()
    assert not list(tmp_path.glob("results.*.jsonl"))
    file.unlink()  # and if it is deleted, all of it is written anew
    lines = Lines(file, ledger)
    lines.catch_up()
    lines.close()
    assert [tuple(json.loads(line)) for line in file.read_text().splitlines()] == [tuple(added.as_dict())] * 6
    ledger.close()


def test_a_line_of_format_1_that_says_something_else_is_cut_off(tmp_path, folder):
    file = tmp_path / "results.jsonl"
    columns = old_ledger(tmp_path / "ledger.sqlite", "with excess_filtered", folder, {}, count=3)
    wrong = old_line(3, columns).replace(b'"score": 3.1', b'"score": 3.2')
    file.write_bytes(old_line(1, columns) + old_line(2, columns) + wrong)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    lines = Lines(file, ledger)
    lines.catch_up()
    lines.close()
    wanted = old_line(1, columns) + old_line(2, columns) + (as_line(new_record(3, columns)) + "\n").encode()
    assert file.read_bytes() == wanted
    ledger.close()


def test_a_watch_goes_on_with_results_of_format_1(watch, folder, tmp_path, png, receiver, lines):
    """What was judged then is not judged again, and a receiver that was behind gets the rest in the one format."""
    webhook, sorter = Webhook(f"http://{receiver.address}/"), Sorter(tmp_path / "sorted", "copy", folder)
    positions = {webhook.name: 2, sorter.name: 5}
    columns = old_ledger(tmp_path / "results/ledger.sqlite", "with excess_filtered", folder.resolve(), positions)
    (tmp_path / "results/results.jsonl").write_bytes(b"".join(old_line(i, columns) for i in range(1, 6)))
    (folder / "new.png").write_bytes(png(1))
    [record], warnings, _ = watch(senders=[webhook], sorters=[sorter])
    assert not warnings and record.id == f"{NAME}-6"
    assert receiver.ids == [f"{NAME}-{i}" for i in range(3, 7)]
    assert receiver.accepted[0] == new_record(3, columns).as_dict()
    assert [line["id"] for line in lines()] == [1, 2, 3, 4, 5, f"{NAME}-6"]
    assert {path.name.partition(".")[0] for path in (tmp_path / "sorted").rglob("*.png")} == {"new-000006"}
