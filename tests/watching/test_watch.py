import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from contextlib import closing

import pytest

from nfad.errors import NfadError
from nfad.watching.ledger import Ledger
from nfad.watching.senders import Webhook
from nfad.watching.sorting import Sorter
from nfad.watching.watch import Pace, Watch, hash_of

QUICK = Pace(poll=0.02, settle=0.05, patience=0.3)


def names(rows):
    return [row.path for row in rows]


def until(happens, seconds=20):
    end = time.monotonic() + seconds
    while not happens() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(happens())


class Running:
    """A watch in a thread, until it is told to stop."""

    def __init__(self, model, folder, results, **options):
        self.rows, self.warnings, self.error, self._stop = [], [], None, False
        self.watch = Watch(
            model, "f" * 64, folder, results, pace=QUICK, on_part=lambda row, line: self.rows.append(row),
            warn=self.warnings.append, **options,
        )  # fmt: skip
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            self.watch.run(lambda: self._stop)
        except Exception as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self._stop = True
        self.thread.join(20)
        assert not self.thread.is_alive() and self.error is None, self.error


def test_what_is_there_is_judged_once_in_order_as_predict_would(watch, lines, detector, folder, png):
    for i in (2, 0, 1):
        (folder / f"{i}.png").write_bytes(png(i, defect=i == 1))
        os.utime(folder / f"{i}.png", (1000 - i, 1000 - i))
    rows, warnings, tally = watch()
    assert names(rows) == ["2.png", "1.png", "0.png"] and not warnings and tally.judged == 3
    for row in rows:
        prediction = detector.predict(folder / row.path)
        assert (row.score, row.threshold, row.gate) == (prediction.score, prediction.threshold, prediction.gate)
        assert row.verdict == ("anomalous" if prediction.is_anomalous else "normal")
    assert [line["image"] for line in lines()] == names(rows) and [line["id"] for line in lines()] == [1, 2, 3]
    assert watch()[0] == [] and len(lines()) == 3  # and not again


def test_the_same_name_is_a_new_part_when_its_content_is_new_and_only_then(watch, folder, png):
    path = folder / "a.png"
    path.write_bytes(png(1))
    assert len(watch()[0]) == 1
    os.utime(path, (5, 5))
    assert watch()[0] == []  # touched
    path.write_bytes(png(2))
    assert len(watch()[0]) == 1
    path.write_bytes(png(1))
    assert len(watch()[0]) == 1  # the first again, after another


def test_a_half_written_file_is_waited_for_and_judged_whole(detector, folder, tmp_path, png):
    whole = png(1)
    with Running(detector, folder, tmp_path / "results") as running, (folder / "a.png").open("wb") as file:
        for start in range(0, len(whole), len(whole) // 5 + 1):
            file.write(whole[start : start + len(whole) // 5 + 1])
            file.flush()
            time.sleep(0.1)  # longer than it takes to settle, shorter than patience
        file.close()
        assert until(lambda: running.rows)
    [row] = running.rows
    assert row.verdict != "unreadable" and row.size == len(whole)
    assert row.score == detector.predict(folder / "a.png").score


def test_what_stays_unreadable_is_recorded_once_and_tried_again_when_it_changes(watch, folder, png):
    (folder / "a.png").write_bytes(png(1)[:-200])
    (folder / "b.png").write_bytes(png(2))
    started = time.monotonic()
    rows, _, tally = watch()
    assert names(rows) == ["b.png", "a.png"]  # it holds up nobody
    assert time.monotonic() - started >= QUICK.patience
    assert rows[1].verdict == "unreadable" and "is the file complete?" in rows[1].error and tally.unreadable == 1
    assert watch()[0] == []
    (folder / "a.png").write_bytes(png(1))
    [row] = watch()[0]
    assert row.path == "a.png" and row.error is None


def test_a_file_that_changes_while_it_is_judged_is_judged_as_it_ends_up(watch, detector, folder, png):
    path = folder / "a.png"
    path.write_bytes(png(1))

    class Interrupted:
        def predict(self, given):
            prediction = detector.predict(given)
            if path.read_bytes() == png(1):
                path.write_bytes(png(2, defect=True))
            return prediction

    [row] = watch(Interrupted())[0]
    assert row.score == detector.predict(path).score and row.size == len(png(2, defect=True))


def test_a_file_that_vanishes_while_it_is_judged_is_dropped(watch, detector, folder, png):
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(png(1))

    class Thief:
        def predict(self, given):
            (folder / "a.png").unlink(missing_ok=True)
            return detector.predict(given)

    rows, warnings, _ = watch(Thief())
    assert names(rows) == ["b.png"] and not warnings


def test_names_that_are_no_text_are_judged_and_sorted(watch, folder, tmp_path, png, lines):
    name = os.fsdecode(b"Pr\xfcfung.png")
    try:
        (folder / name).write_bytes(png(1))
    except OSError:
        pytest.skip("this file system takes text only")
    rows, warnings, _ = watch(sorters=[Sorter(tmp_path / "sorted", "copy", folder)])
    assert names(rows) == ["Pr\\udcfcfung.png"] == [line["image"] for line in lines()] and not warnings
    assert watch()[0] == []


def test_a_folder_that_goes_away_is_waited_for(detector, folder, tmp_path, png):
    (folder / "a.png").write_bytes(png(1))
    with Running(detector, folder, tmp_path / "results") as running:
        assert until(lambda: len(running.rows) == 1)
        folder.rename(tmp_path / "away")
        assert until(lambda: running.warnings)
        (tmp_path / "away/b.png").write_bytes(png(2))
        (tmp_path / "away").rename(folder)
        assert until(lambda: len(running.rows) == 2)
        time.sleep(0.2)
    assert names(running.rows) == ["a.png", "b.png"]
    assert len(running.warnings) == 1 and "cannot be listed" in running.warnings[0]


def test_stop_finishes_the_part_in_hand_and_leaves_the_rest_for_the_next_start(watch, detector, folder, png, lines):
    for i in range(4):
        (folder / f"{i}.png").write_bytes(png(i))
    asked = []

    class Slow:
        def predict(self, given):
            asked.append(given.name)
            return detector.predict(given)

    rows, _, _ = watch(Slow(), stop=lambda: len(asked) >= 2)
    assert len(rows) == 2 == len(lines())
    assert len(watch()[0]) == 2 and len(lines()) == 4


def test_a_second_watch_on_the_same_results_is_refused(detector, folder, tmp_path, watch):
    with Running(detector, folder, tmp_path / "results"):
        assert until((tmp_path / "results/ledger.sqlite").exists)
        with pytest.raises(NfadError, match="another `nfad watch` writes to"):
            watch()
    watch()


def test_results_of_another_folder_and_senseless_places_are_refused(watch, detector, folder, tmp_path):
    watch()
    (tmp_path / "other").mkdir()
    with pytest.raises(NfadError, match="choose another folder for the results"):
        Watch(detector, "", tmp_path / "other", tmp_path / "results").run(once=True)
    with pytest.raises(NfadError, match="cannot go into it"):
        Watch(detector, "", folder, folder)
    with pytest.raises(NfadError, match="is not a folder"):
        Watch(detector, "", tmp_path / "absent", tmp_path / "results")
    with pytest.raises(NfadError, match="settle is a number of seconds"):
        Pace(settle=-1)


def test_results_and_sorted_parts_inside_the_folder_are_not_judged(detector, folder, png):
    (folder / "a.png").write_bytes(png(1, defect=True))
    for _ in range(2):
        sorters = [Sorter(folder / "sorted", "copy", folder)]
        tally = Watch(detector, "", folder, folder / "results", sorters=sorters, pace=QUICK).run(once=True)
    assert tally.judged == 0 and len(list((folder / "sorted").rglob("a-000001*"))) == 2


def test_a_webhook_that_was_down_gets_all_in_order_after_a_restart(watch, folder, receiver, png, lines):
    address = f"http://{receiver.address}/"
    receiver.status = 503
    for i in range(3):
        (folder / f"{i}.png").write_bytes(png(i))
        os.utime(folder / f"{i}.png", (i, i))
    rows, warnings, _ = watch(senders=[Webhook(address)])
    assert len(rows) == 3 and receiver.accepted == []
    assert "503" in warnings[0] and warnings[-1].endswith("has yet to get 3 parts; the next start sends them")
    receiver.status = 200
    (folder / "3.png").write_bytes(png(3))
    _, warnings, _ = watch(senders=[Webhook(address)])
    assert receiver.accepted == lines() and len(receiver.accepted) == 4 and not warnings
    assert receiver.keys == [line["key"] for line in lines()] and len(set(receiver.keys)) == 4
    watch(senders=[Webhook(address)])
    assert len(receiver.accepted) == 4


def test_sorting_that_failed_is_caught_up_with_its_pictures(watch, folder, tmp_path, png):
    (folder / "a.png").write_bytes(png(1, defect=True))
    place = tmp_path / "sorted"
    sorter = Sorter(place, "move", folder)
    (place / "bad").write_text("a file where a folder should be")
    (place / "good").write_text("a file where a folder should be")
    rows, warnings, _ = watch(sorters=[sorter])
    assert len(rows) == 1 and "tried again" in warnings[0] and (folder / "a.png").exists()
    (place / "bad").unlink()
    (place / "good").unlink()
    watch(sorters=[sorter])
    assert (place / "bad/a-000001.png").is_file() and (place / "bad/a-000001.overlay.png").is_file()
    assert not (folder / "a.png").exists()


def test_lines_that_cannot_be_written_do_not_stop_the_inspection(watch, folder, png, lines, monkeypatch):
    from nfad.watching.lines import Lines

    real, calls = Lines.catch_up, []

    def failing(self):
        calls.append(1)
        if len(calls) < 5:
            raise OSError(28, "No space left on device")
        real(self)

    monkeypatch.setattr(Lines, "catch_up", failing)
    for i in range(2):
        (folder / f"{i}.png").write_bytes(png(i))
    rows, warnings, _ = watch()
    assert len(rows) == 2 and sum("No space left" in each for each in warnings) == 1
    monkeypatch.undo()
    watch()
    assert len(lines()) == 2


def test_a_models_hash_is_of_its_content(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/model.onnx").write_text("x")
    (tmp_path / "a/model.json").write_text("y")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert hash_of(tmp_path / "a") == hash_of(tmp_path / "b") != hash_of(tmp_path / "a/model.onnx")
    (tmp_path / "b/model.json").write_text("z")
    assert hash_of(tmp_path / "a") != hash_of(tmp_path / "b")


def survive(detector, folder, tmp_path, png, receiver, kills, seed):
    """A camera writes while the watcher is killed again and again; then all is counted."""
    chance = random.Random(seed)
    results, place, written = tmp_path / "results", tmp_path / "sorted", []

    def start():
        child = os.fork()  # the model is loaded once, here; to load it in each would take all the time there is
        if child == 0:
            try:
                senders = [Webhook(f"http://{receiver.address}/")]
                sorters = [Sorter(place, "copy", folder)]
                Watch(detector, "f" * 64, folder, results, senders=senders, sorters=sorters, pace=QUICK).run()
            finally:
                os._exit(1)
        return child

    def judged():
        return (results / "results.jsonl").read_bytes().count(b"\n") if (results / "results.jsonl").exists() else 0

    for turn in range(kills):
        before, child = judged(), start()
        for i in range(3):
            # A name is used once: of two parts that share one, the first may rightly be gone before it is seen.
            name, content = f"{chance.randrange(100)}-{turn}-{i}.png", png(len(written), defect=chance.random() < 0.3)
            half = chance.randrange(1, len(content))
            with (folder / name).open("wb") as file:
                file.write(content[:half])
                file.flush()
                time.sleep(chance.random() * 0.02)
                file.write(content[half:])
            written.append(name)
        if chance.random() < 0.8:  # the others may die before they have begun
            assert until(lambda before=before: judged() > before)
        time.sleep(chance.random() * 0.2)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    senders, sorters = [Webhook(f"http://{receiver.address}/")], [Sorter(place, "copy", folder)]
    Watch(detector, "f" * 64, folder, results, senders=senders, sorters=sorters, pace=QUICK).run(once=True)

    with closing(Ledger(results / "ledger.sqlite")) as ledger:
        rows = ledger.after(0, 10**6)
        assert not ledger.refusals(sorters[0].name) and not ledger.refusals(senders[0].name)
    assert sorted(names(rows)) == sorted(written)  # none lost, none twice
    assert [row.id for row in rows] == list(range(1, len(rows) + 1))
    assert all(row.error is None and row.size == (folder / row.path).stat().st_size for row in rows)
    text = (results / "results.jsonl").read_text()
    assert [json.loads(line)["id"] for line in text.splitlines()] == [row.id for row in rows]
    filed = sorted(path.name for path in place.rglob("*.png"))
    wanted = [f"{row.path[:-4]}-{row.id:06}.png" for row in rows]
    wanted += [f"{row.path[:-4]}-{row.id:06}.overlay.png" for row in rows if row.verdict == "anomalous"]
    assert filed == sorted(wanted)
    # At least once and in order: a key may come again, but only as the one that was under way.
    keys = [int(key.rpartition("-")[2]) for key in receiver.keys]
    assert sorted(set(keys)) == [row.id for row in rows]
    assert keys == sorted(keys)
    return len(rows)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="forks a loaded model")


@needs_fork
def test_killed_at_random_moments_it_loses_and_repeats_nothing(detector, folder, tmp_path, png, receiver):
    assert survive(detector, folder, tmp_path, png, receiver, kills=8, seed=1) == 24


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_killed_a_hundred_times_it_loses_and_repeats_nothing(detector, folder, tmp_path, png, receiver, seed):
    assert survive(detector, folder, tmp_path, png, receiver, kills=100, seed=seed) == 300
