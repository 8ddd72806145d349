import os

import pytest
from watch.running import QUICK, names

from nfad.watch.lines import Lines
from nfad.watch.senders import Webhook
from nfad.watch.sorting import Sorter
from nfad.watch.watch import Watch


def test_a_webhook_that_was_down_gets_all_in_order_after_a_restart(watch, folder, receiver, png, lines):
    address = f"http://{receiver.address}/"
    receiver.status = 503
    for i in range(3):
        (folder / f"{i}.png").write_bytes(png(i))
        os.utime(folder / f"{i}.png", (i, i))
    records, warnings, _ = watch(senders=[Webhook(address)])
    assert len(records) == 3 and receiver.accepted == []
    assert "503" in warnings[0] and warnings[-1].endswith("has yet to get 3 parts; the next start sends them")
    receiver.status = 200
    (folder / "3.png").write_bytes(png(3))
    _, warnings, _ = watch(senders=[Webhook(address)])
    assert receiver.accepted == lines() and len(receiver.accepted) == 4 and not warnings
    assert receiver.ids == [line["id"] for line in lines()] and len(set(receiver.ids)) == 4
    watch(senders=[Webhook(address)])
    assert len(receiver.accepted) == 4


def test_sorting_that_failed_is_caught_up_with_its_pictures(watch, folder, tmp_path, png):
    (folder / "a.png").write_bytes(png(1, defect=True))
    place = tmp_path / "sorted"
    sorter = Sorter(place, "move", folder)
    (place / "bad").write_text("a file where a folder should be")
    (place / "good").write_text("a file where a folder should be")
    records, warnings, _ = watch(sorters=[sorter])
    assert len(records) == 1 and "tried again" in warnings[0] and (folder / "a.png").exists()
    (place / "bad").unlink()
    (place / "good").unlink()
    watch(sorters=[sorter])
    assert (place / "bad/a-000001.png").is_file() and (place / "bad/a-000001.overlay.png").is_file()
    assert not (folder / "a.png").exists()


def test_who_asks_it_to_stop_does_not_wait_for_all_that_is_yet_to_be_sorted(watch, folder, tmp_path, png, monkeypatch):
    for i in range(3):
        (folder / f"{i}.png").write_bytes(png(i))
    place = tmp_path / "sorted"
    sorter = Sorter(place, "copy", folder)
    for verdict in ("good", "bad", "not-judged"):
        (place / verdict).write_text("a file where a folder should be")
    assert len(watch(sorters=[sorter])[0]) == 3
    for verdict in ("good", "bad", "not-judged"):
        (place / verdict).unlink()

    def filed():
        return sum(1 for path in place.glob("*/?-*.png") if ".overlay" not in path.name)

    monkeypatch.setattr("nfad.watch.watch.DRAIN_SECONDS", 0)
    _, warnings, _ = watch(sorters=[sorter], stop=lambda: filed() >= 1)
    assert filed() == 1 and warnings[-1].endswith("has yet to get 2 parts; the next start sends them")
    watch(sorters=[sorter])
    assert filed() == 3


def test_lines_that_cannot_be_written_do_not_stop_the_inspection(watch, folder, png, lines, monkeypatch):
    real, calls = Lines.catch_up, []

    def failing(self):
        calls.append(1)
        if len(calls) < 5:
            raise OSError(28, "No space left on device")
        real(self)

    monkeypatch.setattr(Lines, "catch_up", failing)
    for i in range(2):
        (folder / f"{i}.png").write_bytes(png(i))
    records, warnings, _ = watch()
    assert len(records) == 2 and sum("No space left" in each for each in warnings) == 1
    monkeypatch.undo()
    watch()
    assert len(lines()) == 2


def test_results_and_sorted_parts_inside_the_folder_are_not_judged(detector, folder, png):
    (folder / "a.png").write_bytes(png(1, defect=True))
    for _ in range(2):
        sorters = [Sorter(folder / "sorted", "copy", folder)]
        tally = Watch(detector, "", folder, folder / "results", sorters=sorters, pace=QUICK).run(once=True)
    assert not tally and len(list((folder / "sorted").rglob("a-000001*"))) == 2


def test_names_that_are_no_text_are_judged_and_sorted(watch, folder, tmp_path, png, lines):
    name = os.fsdecode(b"Pr\xfcfung.png")
    try:
        (folder / name).write_bytes(png(1))
    except OSError:
        pytest.skip("this file system takes text only")
    records, warnings, _ = watch(sorters=[Sorter(tmp_path / "sorted", "copy", folder)])
    assert names(records) == ["Pr\\udcfcfung.png"] == [line["image"] for line in lines()] and not warnings
    assert watch()[0] == []
