import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watch.running import made_record

from nfad.watch.ledger import Ledger
from nfad.watch.lines import Lines
from nfad.watch.record import as_line

COUNT = 6


def filled(folder, count=COUNT):
    ledger = Ledger(folder / "ledger.sqlite")
    for i in range(count):
        ledger.append(made_record(f"{i}.png"))
    return ledger


def expected(ledger):
    return "".join(as_line(record) + "\n" for record in ledger.after(0)).encode()


def caught_up(file, ledger):
    lines = Lines(file, ledger)
    lines.catch_up()
    lines.close()
    return file.read_bytes()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    opened = filled(tmp_path_factory.mktemp("ledger"))
    yield opened
    opened.close()


@given(
    st.floats(0, 1), st.binary(max_size=40) | st.just(b"\0" * 4096) | st.just(b'{"id": 3}\n') | st.just(b"3\nnull\n")
)
def test_whatever_a_crash_left_the_file_is_again_what_the_ledger_says(ledger, kept, litter):
    whole = expected(ledger)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.jsonl"
        file.write_bytes(whole[: round(kept * len(whole))] + litter)
        assert caught_up(file, ledger) == whole
        assert caught_up(file, ledger) == whole  # and stays so


def test_it_is_written_anew_when_it_was_deleted(ledger, tmp_path):
    assert caught_up(tmp_path / "results.jsonl", ledger) == expected(ledger)
    (tmp_path / "results.jsonl").unlink()
    assert caught_up(tmp_path / "results.jsonl", ledger) == expected(ledger)
    assert [path.name for path in tmp_path.iterdir()] == ["results.jsonl"]


def test_another_ledgers_lines_are_kept_aside(ledger, tmp_path):
    file = tmp_path / "results.jsonl"
    (tmp_path / "results.1.jsonl").write_text("even older")
    file.write_bytes(old := expected(ledger).replace(ledger.name.encode(), b"an older one"))
    assert caught_up(file, ledger) == expected(ledger)
    assert (tmp_path / "results.2.jsonl").read_bytes() == old
    assert (tmp_path / "results.1.jsonl").read_text() == "even older"


def test_only_the_end_of_a_long_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("nfad.watch.lines.TAIL", 2000)
    ledger = filled(tmp_path, 40)
    file = tmp_path / "results.jsonl"
    whole = caught_up(file, ledger)
    assert whole == expected(ledger) and len(whole) > 8000
    file.write_bytes(whole[:-5])
    assert caught_up(file, ledger) == whole
    ledger.close()


def test_a_full_disk_is_waited_out(ledger, tmp_path, monkeypatch):
    class Full:
        """The real file, on a disk with room for some bytes more."""

        def __init__(self, file, room):
            self._file, self.room = file, room

        def __getattr__(self, name):
            return getattr(self._file, name)

        def write(self, text):
            return self._file.write(text[: self.room])

    lines = Lines(tmp_path / "results.jsonl", ledger)
    lines._file = disk = Full(lines._file, 700)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            lines.catch_up()
    disk.room = None
    lines.catch_up()
    lines.close()
    assert (tmp_path / "results.jsonl").read_bytes() == expected(ledger)
    ids = [json.loads(line)["id"] for line in expected(ledger).splitlines()]
    assert ids == [f"{ledger.name}-{i}" for i in range(1, COUNT + 1)]


@pytest.mark.parametrize("way", ["rename", "rename and make anew", "copy and truncate", "remove"])
def test_a_file_that_is_rotated_is_gone_on_with_without_a_hole(tmp_path, way):
    ledger, file, aside = filled(tmp_path), tmp_path / "results.jsonl", tmp_path / "results.jsonl.1"
    lines = Lines(file, ledger)
    lines.catch_up()
    before = file.read_bytes()
    if way == "copy and truncate":
        aside.write_bytes(before)
        file.write_bytes(b"")
    else:
        file.rename(aside)
        if way == "rename and make anew":
            file.touch()
        elif way == "remove":
            aside.unlink()
    for i in range(2):
        ledger.append(made_record(f"later-{i}.png"))
        lines.catch_up()
    lines.close()
    assert before + file.read_bytes() == expected(ledger)
    assert way == "remove" or aside.read_bytes() == before
    now = file.read_bytes()
    assert caught_up(file, ledger) == now  # the next start goes on there, too
    ledger.close()
