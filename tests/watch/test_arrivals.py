import os
import shutil
import time
from itertools import chain

import pytest

from nfad.watch import arrivals as module
from nfad.watch.arrivals import Arrivals, status_of
from nfad.watch.record import Fingerprint


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def arrivals(folder, clock):
    return Arrivals(folder, lambda path: None, settle=1.0, clock=clock)


def names(found):
    return [each.image for each in found]


def write(path, text="x", second=0):
    """A file with a date to come: nothing has happened to it since, so only the wait can tell that it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (4e9 + second, 4e9 + second))


def test_a_file_is_ready_when_it_was_unchanged_and_is_offered_until_it_is_done(arrivals, folder, clock):
    write(folder / "a.png")
    assert arrivals.poll() == []
    clock.now += 0.9
    assert arrivals.poll() == []
    clock.now += 0.1
    [found] = arrivals.poll()
    assert found.image == "a.png" and found.unchanged_since == 100.0
    assert names(arrivals.poll()) == ["a.png"]
    arrivals.done(found)
    assert arrivals.poll() == [] and not arrivals.waiting


def test_a_file_that_still_grows_starts_its_wait_again_but_arrived_when_it_did(arrivals, folder, clock):
    write(folder / "a.png", "x")
    arrivals.poll()
    first = arrivals.waiting["a.png"]
    clock.now += 0.9
    write(folder / "a.png", "xx")
    arrivals.poll()
    clock.now += 0.9
    assert arrivals.poll() == []
    clock.now += 0.2
    [found] = arrivals.poll()
    assert found.arrived == first.arrived and found.status.size == 2


def test_order_is_by_date_then_by_name(arrivals, folder, clock):
    for name, second in {"c.png": 3, "b.png": 1, "a.png": 3, "sub/d.png": 2}.items():
        write(folder / name, second=second)
    arrivals.poll()
    clock.now += 1
    assert names(arrivals.poll()) == ["b.png", "sub/d.png", "a.png", "c.png"]


def test_temporary_and_hidden_names_and_other_files_are_not_for_us(arrivals, folder, clock):
    for name in (
        ".a.png",
        "a.png.tmp",
        "a.png.part",
        "a.tmp.png",
        "~a.png",
        ".hidden/a.png",
        "notes.txt",
        "__MACOSX/a.png",
    ):
        write(folder / name)
    (folder / "folder.png").mkdir()
    write(folder / "A.JPG")
    arrivals.poll()
    clock.now += 1
    assert names(arrivals.poll()) == ["A.JPG"]


def test_our_own_folders_are_excluded(folder, clock):
    write(folder / "results/bad/a.png")
    write(folder / "other/a.png")
    arrivals = Arrivals(folder, lambda path: None, settle=0, exclude=[folder / "results"], clock=clock)
    assert names(arrivals.poll()) == ["other/a.png"]


def test_what_vanishes_while_it_waits_is_forgotten_quietly(arrivals, folder, clock):
    write(folder / "sub/a.png")
    arrivals.poll()
    shutil.rmtree(folder / "sub")
    clock.now += 5
    assert arrivals.poll() == [] and not arrivals.waiting


def test_the_folder_itself_must_be_there(arrivals, folder):
    folder.rmdir()
    with pytest.raises(FileNotFoundError):
        arrivals.poll()


def test_a_subfolder_that_may_not_be_entered_is_told_of_once_and_holds_up_nobody(folder, clock, monkeypatch):
    for name in ("a.png", "lost+found/b.png"):
        write(folder / name)
    told, scan, closed = [], os.scandir, True

    def refusing(place):  # the superuser, who may run these tests, is never refused
        if closed and place == str(folder / "lost+found"):
            raise PermissionError(13, "Permission denied", place)
        return scan(place)

    monkeypatch.setattr(module.os, "scandir", refusing)
    arrivals = Arrivals(folder, lambda path: None, settle=0, clock=clock, warn=told.append)
    assert names(arrivals.poll()) == ["a.png"] == names(arrivals.poll())
    assert told == [f"{folder / 'lost+found'} may not be entered (Permission denied); nothing in it is judged"]
    closed = False
    assert names(arrivals.poll()) == ["a.png", "lost+found/b.png"]
    closed = True
    arrivals.poll()
    assert len(told) == 2  # closed anew


def test_the_ledger_is_asked_what_it_knows_also_after_a_share_was_away(folder, clock):
    write(folder / "a.png")
    write(folder / "b.png")
    status = status_of(folder / "a.png")
    known = {
        "a.png": Fingerprint("a.png", status.size, status.mtime_ns, "s"),
        "b.png": Fingerprint("b.png", 99, 1, "s"),
    }
    arrivals = Arrivals(folder, known.get, settle=0, clock=clock)
    assert names(arrivals.poll()) == ["b.png"]
    folder.rename(folder.with_name("away"))
    folder.mkdir()
    assert arrivals.poll() == []
    folder.rmdir()
    folder.with_name("away").rename(folder)
    assert names(arrivals.poll()) == ["b.png"]


def test_a_name_written_again_is_new_even_with_the_same_size_and_date(arrivals, folder, clock):
    write(folder / "a.png", "x")
    arrivals.poll()
    clock.now += 1
    arrivals.done(arrivals.poll()[0])
    write(folder / "b.tmp", "y")  # a coarse clock: the same second
    (folder / "b.tmp").rename(folder / "a.png")
    arrivals.poll()
    clock.now += 1
    assert names(arrivals.poll()) == ["a.png"]


def test_among_many_known_files_a_new_one_is_seen_at_once_and_a_changed_one_in_its_turn(folder, clock, monkeypatch):
    monkeypatch.setattr(module, "CHECKED_PER_POLL", 10)
    arrivals = Arrivals(folder, lambda path: None, settle=0, clock=clock)
    for i in range(50):
        write(folder / f"{i}.png")
    for each in arrivals.poll():
        arrivals.done(each)
    write(folder / "new.png")
    assert names(arrivals.poll()) == ["new.png"]
    arrivals.done(arrivals.poll()[0])
    for i in range(50):
        write(folder / f"{i}.png", "changed")
    turns = []
    for _ in range(5):
        turns.append(arrivals.poll())
        for each in turns[-1]:
            arrivals.done(each)
    assert sorted(names(chain(*turns))) == sorted(f"{i}.png" for i in range(50))
    assert max(map(len, turns)) < 30


def test_old_files_cost_a_poll_little(folder, monkeypatch):
    """Listing is cheap, looking is not: 6000 known files must cost far less than when each was looked at."""
    for i in range(6000):
        (folder / f"{i:05}.png").touch()

    def fastest(checked):
        monkeypatch.setattr(module, "CHECKED_PER_POLL", checked)
        arrivals = Arrivals(folder, lambda path: None, settle=0)
        for each in arrivals.poll():
            arrivals.done(each)
        times = []
        for _ in range(5):
            started = time.process_time()
            assert arrivals.poll() == []
            times.append(time.process_time() - started)
        return min(times)

    assert fastest(600) < 0.6 * fastest(10**9)


@pytest.mark.parametrize("date", [0, 1e9, 4e9])
def test_a_date_that_its_writer_set_does_not_make_a_file_complete(arrivals, folder, clock, date):
    """As copying programs do that set size and date first."""
    path = folder / "a.png"
    for written in range(3):
        path.write_text("x" * written + "." * (3 - written))
        os.utime(path, (date, date))
        assert arrivals.poll() == []
        clock.now += 0.9
        time.sleep(0.02)  # the file system's clock ticks every few milliseconds
    clock.now += 0.1
    [found] = arrivals.poll()
    assert found.unchanged_since == clock.now - 1
    arrivals.done(found)
    path.write_text("xxx")
    os.utime(path, (date, date))
    assert arrivals.poll() == [] and list(arrivals.waiting) == ["a.png"]  # same size, same date, not the same
