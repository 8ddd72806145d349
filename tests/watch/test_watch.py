import os
import time
from collections import Counter

import pytest
from creeping import LEAST_OF_A_RECORD, growth
from parts import part
from PIL import Image
from watch.running import QUICK, Running, Strange, Wrapped, names, until

from nfad.errors import NfadError
from nfad.watch.senders import Webhook
from nfad.watch.sorting import Sorter
from nfad.watch.watch import Pace, Watch


def test_what_is_there_is_judged_once_in_order_as_predict_would(watch, lines, detector, folder, png):
    for i in (2, 0, 1):
        (folder / f"{i}.png").write_bytes(png(i, defect=i == 1))
        os.utime(folder / f"{i}.png", (1000 - i, 1000 - i))
    records, warnings, tally = watch()
    assert names(records) == ["2.png", "1.png", "0.png"] and not warnings
    assert tally == Counter(record.verdict for record in records) and tally.total() == 3
    for record in records:
        prediction = detector.predict(folder / record.image)
        assert (record.score, record.threshold, record.gate) == (
            prediction.score,
            prediction.threshold,
            prediction.gate,
        )
        assert record.verdict == ("anomalous" if prediction.is_anomalous else "normal")
    assert [line["image"] for line in lines()] == names(records) and [line["id"][-2:] for line in lines()] == [
        "-1",
        "-2",
        "-3",
    ]
    assert watch()[0] == [] and len(lines()) == 3  # and not again


def test_the_same_name_is_a_new_part_when_its_content_is_new_and_only_then(watch, folder, png):
    path = folder / "a.png"
    path.write_bytes(png(1))
    assert len(watch()[0]) == 1
    os.utime(path, (5, 5))
    records, warnings, _ = watch()  # touched
    assert records == [] and warnings == ["a.png has been written again with the same content; it is not judged again"]
    assert watch()[1] == []
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
        assert until(lambda: running.records)
    [record] = running.records
    assert record.verdict != "unreadable" and record.size == len(whole)
    assert record.score == detector.predict(folder / "a.png").score


def test_what_stays_unreadable_is_recorded_once_and_tried_again_when_it_changes(watch, folder, png):
    (folder / "a.png").write_bytes(png(1)[:-200])
    (folder / "b.png").write_bytes(png(2))
    started = time.monotonic()
    records, _, tally = watch()
    assert names(records) == ["b.png", "a.png"]  # it holds up nobody
    assert time.monotonic() - started >= QUICK.patience
    assert (
        records[1].verdict == "unreadable"
        and "is the file complete?" in records[1].explanation
        and tally["unreadable"] == 1
    )
    assert watch()[0] == []
    (folder / "a.png").write_bytes(png(1))
    [record] = watch()[0]
    assert record.image == "a.png" and record.is_readable


def test_what_is_not_judged_goes_its_own_way_to_every_receiver(watch, detector, folder, tmp_path, png, receiver, lines):
    """Neither into good/ nor told as good, whether its score is low, high or none."""
    scores = {"low.png": -5.0, "high.png": 99.0, "none.png": float("nan")}
    for i, name in enumerate(scores):
        (folder / name).write_bytes(png(i))
    sorter, webhook = Sorter(tmp_path / "sorted", "move", folder), Webhook(f"http://{receiver.address}/")
    records, warnings, tally = watch(Strange(detector, scores), sorters=[sorter], senders=[webhook])
    assert not warnings and tally == {"not judged": 3}
    assert {each["verdict"] for each in receiver.accepted} == {"not judged"} and len(receiver.accepted) == 3
    assert [line["verdict"] for line in lines()] == ["not judged"] * 3
    assert all(line["explanation"].startswith("Not judged: ") for line in lines())
    assert {line["image"]: line["strangeness"] for line in lines()} == dict.fromkeys(scores, 2.5)
    assert [path.name for path in (tmp_path / "sorted").iterdir() if path.is_dir()] == ["not-judged"]
    filed = {path.name for path in (tmp_path / "sorted/not-judged").iterdir()}
    assert filed == {
        f"{record.image[:-4]}-{record.position:06}{end}" for record in records for end in (".png", ".overlay.png")
    }
    assert not any(folder.iterdir())


def test_names_that_are_no_text_or_look_like_one_are_judged_or_told_and_sorted(watch, folder, tmp_path, png, lines):
    odd = [b"\xe9.png", b"\xed\xa0\x80.png", rb"\udc80.png", rb"\u005cudc80.png", b"new\nline.png"]
    for i, name in enumerate(odd):
        (folder / os.fsdecode(name)).write_bytes(png(i))
    (folder / os.fsdecode(b"\xff.png")).write_bytes(b"no image")
    records, warnings, tally = watch(sorters=[Sorter(tmp_path / "sorted", "move", folder)])
    assert tally.total() == len({record.image for record in records}) == 6 == len(lines()) and not warnings
    assert tally["unreadable"] == 1 and [path.name for path in folder.iterdir()] == [os.fsdecode(b"\xff.png")]
    sorted_names = {os.fsencode(path.name) for path in (tmp_path / "sorted").glob("*/*") if "overlay" not in path.name}
    assert {name.rpartition(b"-")[0] + b".png" for name in sorted_names} == set(odd)


def test_a_file_of_a_preset_size_and_date_is_judged_when_it_is_whole(detector, folder, tmp_path):
    """A bitmap can be read as soon as it has its size, whatever is in it."""
    Image.fromarray(part(3)).save(tmp_path / "whole.bmp")
    whole, path = (tmp_path / "whole.bmp").read_bytes(), folder / "a.bmp"
    with Running(detector, folder, tmp_path / "results") as running:
        for share in range(1, 11):
            with path.open("r+b" if path.exists() else "wb") as file:
                file.write(whole[: len(whole) * share // 10])
                file.truncate(len(whole))
            os.utime(path, (1e9, 1e9))
            time.sleep(0.01)
        assert until(lambda: running.records)
        time.sleep(3 * QUICK.settle)
    assert running.records[-1].score == detector.predict(path).score  # never only the half of it


@pytest.mark.parametrize("error", [RuntimeError("no kernel"), MemoryError()])
def test_a_photo_that_the_model_fails_on_is_not_judged_and_holds_up_nobody(
    watch, detector, folder, tmp_path, png, lines, error
):
    for i, name in enumerate(("a.png", "b.png", "c.png")):
        (folder / name).write_bytes(png(i))
        os.utime(folder / name, (i, i))

    class Failing(Wrapped):
        def predict(self, given):
            if given.name == "a.png":
                raise error
            return detector.predict(given)

    sorter = Sorter(tmp_path / "sorted", "move", folder)
    records, warnings, tally = watch(Failing(detector), sorters=[sorter])
    assert names(records) == ["b.png", "c.png", "a.png"] and not warnings
    assert tally["not judged"] == 1 and lines()[2]["verdict"] == "not judged" and lines()[2]["score"] is None
    assert ("no kernel" if str(error) else "not enough memory") in lines()[2]["explanation"]
    assert [path.name for path in (tmp_path / "sorted/not-judged").iterdir()] == ["a-000003.png"]
    assert watch(Failing(detector), sorters=[sorter])[0] == []  # nor at the next start


def test_a_shortage_that_passes_is_not_told_as_the_photo_s_fault(watch, detector, folder, png):
    (folder / "a.png").write_bytes(png(1))
    short = [MemoryError(), RuntimeError("std::bad_alloc")]

    class Short(Wrapped):
        def predict(self, given):
            if short:
                raise short.pop()
            return detector.predict(given)

    [record] = watch(Short(detector))[0]
    assert record.score == detector.predict(folder / "a.png").score and not short


def test_a_file_that_changes_while_it_is_judged_is_judged_as_it_ends_up(watch, detector, folder, png):
    path = folder / "a.png"
    path.write_bytes(png(1))

    class Interrupted(Wrapped):
        def predict(self, given):
            prediction = detector.predict(given)
            if path.read_bytes() == png(1):
                path.write_bytes(png(2, defect=True))
            return prediction

    [record] = watch(Interrupted(detector))[0]
    assert record.score == detector.predict(path).score and record.size == len(png(2, defect=True))


def test_a_file_that_vanishes_while_it_is_judged_is_dropped(watch, detector, folder, png):
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(png(1))

    class Thief(Wrapped):
        def predict(self, given):
            (folder / "a.png").unlink(missing_ok=True)
            return detector.predict(given)

    records, warnings, _ = watch(Thief(detector))
    assert names(records) == ["b.png"] and not warnings


def test_a_folder_that_goes_away_is_waited_for(detector, folder, tmp_path, png):
    (folder / "a.png").write_bytes(png(1))
    with Running(detector, folder, tmp_path / "results") as running:
        assert until(lambda: len(running.records) == 1)
        folder.rename(tmp_path / "away")
        assert until(lambda: running.warnings)
        (tmp_path / "away/b.png").write_bytes(png(2))
        (tmp_path / "away").rename(folder)
        assert until(lambda: len(running.records) == 2)
        time.sleep(0.2)
    assert names(running.records) == ["a.png", "b.png"]
    assert len(running.warnings) == 1 and "cannot be listed" in running.warnings[0]


def test_stop_finishes_the_part_in_hand_and_leaves_the_rest_for_the_next_start(watch, detector, folder, png, lines):
    for i in range(4):
        (folder / f"{i}.png").write_bytes(png(i))
    asked = []

    class Slow(Wrapped):
        def predict(self, given):
            asked.append(given.name)
            return detector.predict(given)

    records, _, _ = watch(Slow(detector), stop=lambda: len(asked) >= 2)
    assert len(records) == 2 == len(lines())
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
    with pytest.raises(NfadError, match="is the folder of the results"):
        sorters = [Sorter(tmp_path / "results", "copy", folder)]
        Watch(detector, "", folder, tmp_path / "results", sorters=sorters)
    with pytest.raises(NfadError, match="is not a folder"):
        Watch(detector, "", tmp_path / "absent", tmp_path / "results")
    with pytest.raises(NfadError, match="settle is a number of seconds"):
        Pace(settle=-1)


def test_a_part_leaves_no_objects_behind(detector, folder, tmp_path, png):
    content = [png(seed) for seed in range(4)]
    sorters = [Sorter(tmp_path / "sorted", "move", folder)]
    with Running(detector, folder, tmp_path / "results", sorters=sorters) as running:

        def judged(number):
            (folder / f"{number}.png").write_bytes(content[number % 4] + bytes([number]))
            assert until(lambda: running.records)
            running.records.clear()

        assert growth(judged, 50, warm=20) < LEAST_OF_A_RECORD
