import dataclasses
import sqlite3
import subprocess
import sys

import pytest

from nfad.errors import NfadError
from nfad.watch.ledger import Ledger, only_one
from nfad.watch.record import Seen


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "ledger.sqlite")
    yield opened
    opened.close()


def test_parts_are_numbered_in_order_and_there_after_a_reopening(ledger, row):
    added = [ledger.append(row(f"{i}.png")) for i in range(5)]
    assert [each.id for each in added] == [1, 2, 3, 4, 5]
    again = Ledger(ledger.file)
    assert again.after(2) == added[2:] and again.after(1, 2) == added[1:3] and again.last() == 5
    assert again.name == ledger.name
    again.close()


def test_a_ledger_of_an_earlier_version_gets_the_columns_it_lacks(ledger, row):
    first = ledger.append(row("a.png", excess_filtered=0.5))
    ledger._sql.execute("ALTER TABLE judged DROP COLUMN excess_filtered")
    again = Ledger(ledger.file)
    second = again.append(row("b.png", excess_filtered=0.5))
    assert again.after(0) == [dataclasses.replace(first, excess_filtered=None), second]
    again.close()


def test_each_commit_is_synced(ledger):
    assert ledger._sql.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert ledger._sql.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_latest_of_a_name_is_what_counts(ledger, row):
    assert ledger.latest("a.png") is None
    ledger.append(row("a.png", sha256="1"))
    ledger.append(row("a.png", sha256="2", mtime_ns=9))
    assert ledger.latest("a.png") == Seen("a.png", 3, 9, "2")
    ledger.touch(Seen("a.png", 3, 11, "2"))
    assert ledger.latest("a.png").mtime_ns == 11 and ledger.last() == 2


def test_a_row_that_cannot_be_written_leaves_nothing(ledger, row):
    with pytest.raises(NfadError, match=r"ledger .* failed"):
        ledger.append(row(sha256=object()))
    assert ledger.last() == 0 and ledger.latest("a.png") is None
    assert ledger.append(row()).id == 1


def test_a_receiver_starts_with_the_next_part_and_keeps_its_place(ledger, row):
    ledger.append(row())
    assert ledger.position("x") == 1
    ledger.append(row("b.png"))
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
    ledger._sql.execute("UPDATE facts SET value = '99' WHERE name = 'format'")
    with pytest.raises(NfadError, match="another version"):
        Ledger(ledger.file)
    (tmp_path / "text").write_text("x" * 5000)
    with pytest.raises(NfadError, match="not a database"):
        Ledger(tmp_path / "text")


def test_a_second_holder_is_refused_in_this_process_and_in_another_until_the_first_is_gone(tmp_path):
    script = (
        "import sys; from pathlib import Path; from nfad.watch.ledger import only_one\n"
        "with only_one(Path(sys.argv[1]), Path(sys.argv[1])): print('mine', flush=True); sys.stdin.read()"
    )
    file = tmp_path / ".lock"
    command = [sys.executable, "-c", script, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"mine\n"
        with pytest.raises(NfadError, match=r"another `nfad watch` writes to"), only_one(file, tmp_path):
            pass
        other.kill()
    with only_one(file, tmp_path):
        with pytest.raises(NfadError, match="another"), only_one(file, tmp_path):
            pass
        assert subprocess.run(command, input=b"", capture_output=True).returncode == 1


def test_a_lock_that_cannot_be_made_is_told(tmp_path):
    with pytest.raises(NfadError, match="cannot lock"), only_one(tmp_path / "nowhere" / ".lock", tmp_path):
        pass


def test_others_can_read_while_it_is_written(ledger, row):
    ledger.append(row())
    reader = sqlite3.connect(ledger.file)
    assert reader.execute("SELECT path, verdict FROM judged").fetchall() == [("a.png", "normal")]
    ledger.append(row("b.png"))
    assert reader.execute("SELECT count(*) FROM judged").fetchone() == (2,)
    reader.close()
