"""What `watch` says of the camera: stopped, silent, there again."""

import os
import time
from dataclasses import replace

import pytest
from nails import nail
from parts import part
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from watch.running import Running, Wrapped, until

from nfad import Config, Detector
from nfad.drift.state import COVERED, DEFOCUSED, FROZEN, MISPLACED, SHIFTED, SILENT
from nfad.errors import NfadError
from nfad.watch.record import NO_PHOTO
from nfad.watch.senders import Webhook
from nfad.watch.sorting import Sorter
from nfad.watch.watch import Watch

STEADIED = Config.preset("embedded-fast", size=128, acquisitions=36, pairs=2, false_alarm_rate=0.2)


def lying(seed, at=(0.0, 0.0)):
    return nail(seed, angle=0.2, at=at)


def test_a_camera_that_has_stopped_is_told_of_once_and_in_every_record(watch, folder, png, receiver):
    for i in range(12):
        (folder / f"{i:02}.png").write_bytes(png(i if i < 3 else 3 if i < 9 else i))
        os.utime(folder / f"{i:02}.png", (i, i))
    records, warnings, _ = watch(senders=[Webhook(f"http://{receiver.address}/")])
    assert [each.camera for each in records] == [None] * 5 + [FROZEN] * 4 + [None] * 3
    assert [each["camera"] for each in receiver.accepted] == [each.camera for each in records]
    assert warnings == [
        "05.png shows the same frame as the 2 photos before it; has the camera stopped? Such photos are not judged"
    ]


def test_a_frame_that_stands_still_is_no_good_part(detector, folder, tmp_path, png, watch, receiver):
    """Whatever lies before the camera then: not in good/, not normal for a receiver, whatever date is in the file."""
    for i in range(6):
        (folder / f"{i}.png").write_bytes(png(3))
        if i:  # the same pixels in another file
            Image.open(folder / "0.png").save(folder / f"{i}.png", pnginfo=dated(i))
        os.utime(folder / f"{i}.png", (i, i))
    sinks = {
        "senders": [Webhook(f"http://{receiver.address}/")],
        "sorters": [Sorter(tmp_path / "sorted", "copy", folder)],
    }
    assert detector.predict(folder / "0.png").verdict == "normal"
    records, _, tally = watch(**sinks)
    assert [each.verdict for each in records] == ["normal"] * 2 + ["not judged"] * 4
    assert [each.camera for each in records] == [None] * 2 + [FROZEN] * 4
    assert [each["verdict"] for each in receiver.accepted] == [each.verdict for each in records]
    assert tally == {"normal": 2, "not judged": 4}
    assert records[5].score is None and "the very same frame as the 2 photos before it" in records[5].explanation
    kept = {
        place.name: len(list(place.glob("*[0-9].png"))) for place in (tmp_path / "sorted").iterdir() if place.is_dir()
    }
    assert kept == {"good": 2, "not-judged": 4}
    Image.open(folder / "0.png").save(folder / "6.png", pnginfo=dated(5))  # the bytes of the last one, after a restart
    records, warnings, _ = watch(**sinks)
    assert [(each.verdict, each.camera) for each in records] == [("not judged", FROZEN)]
    assert not warnings  # told before the restart


def dated(date):
    told = PngInfo()
    told.add_text("date", str(date))
    return told


@pytest.mark.parametrize(
    ("change", "why", "state"),
    [
        (lambda photo: photo // 40, None, COVERED),
        (lambda photo: photo, "blurred beyond anything this model was fitted for", DEFOCUSED),
        (lambda photo: photo, "does not look like the fitted part", MISPLACED),
    ],
)
def test_a_camera_that_sees_no_part_is_told_of_to_every_receiver(
    detector, folder, tmp_path, watch, receiver, change, why, state
):
    """In the records, to receivers and beside the photos; over with the next good one, and not over with a restart."""

    class Seen(Wrapped):
        def predict(self, path):
            found = self._model.predict(path)
            return replace(found, why_not_judged=why) if why and 1 <= int(path.stem) < 6 else found

    def run(numbers):
        for i in numbers:
            photo = part(20 + i)
            Image.fromarray(change(photo) if 1 <= i < 6 else photo).save(folder / f"{i}.png")
            os.utime(folder / f"{i}.png", (i, i))
        return watch(
            Seen(detector),
            senders=[Webhook(f"http://{receiver.address}/")],
            sorters=[Sorter(tmp_path / "sorted", "move", folder)],
        )

    records, warnings, tally = run(range(5))
    assert [each.camera for each in records] == [None, None, None, state, state]
    assert tally["not judged"] == 4 and [each.startswith(state) for each in warnings] == [True]
    after, again, _ = run((5, 6))
    assert [each.camera for each in after] == [state, None] and not again
    assert [each["camera"] for each in receiver.accepted] == [each.camera for each in (*records, *after)]
    assert len(list((tmp_path / "sorted" / "not-judged").glob("*[0-9].png"))) == 5


def test_a_camera_that_has_moved_is_told_of_to_every_receiver(folder, watch, receiver):
    """Its photos are moved back and judged: that alone would say nothing until they no longer can be."""
    model = Detector.fit([lying(seed) for seed in range(12)], STEADIED)
    for i in range(14):
        Image.fromarray(lying(40 + i, at=(0.05 if 4 <= i < 11 else 0.0, 0.0))).save(folder / f"{i:02}.png")
        os.utime(folder / f"{i:02}.png", (i, i))
    records, warnings, _ = watch(model, senders=[Webhook(f"http://{receiver.address}/")])
    assert [each.camera for each in records] == [None] * 8 + [SHIFTED] * 3 + [None] * 3
    assert [each["camera"] for each in receiver.accepted] == [each.camera for each in records]
    assert all(each.is_judged for each in records[4:11])
    assert len(warnings) == 1 and warnings[0].startswith("08.png: Photo after photo lies further off its place")


def test_a_silent_camera_is_recorded_once_and_so_is_its_return(detector, folder, tmp_path, png, receiver, lines):
    """In the ledger, the lines and for receivers, also over a restart; nothing of it is a part, or sorted."""

    def started():
        return Running(
            detector, folder, tmp_path / "results", silent_after=0.4, senders=[Webhook(f"http://{receiver.address}/")],
            sorters=[Sorter(tmp_path / "sorted", "copy", folder)],
        )  # fmt: skip

    with started() as first:
        (folder / "0.png").write_bytes(png(0))
        assert until(lambda: len(first.records) == 2)
        time.sleep(0.6)  # longer than it takes to be told again
    with started() as second:  # nor is it told again here
        time.sleep(0.6)
        (folder / "1.png").write_bytes(png(1))
        assert until(lambda: len(second.records) == 3)
    told = [(each.image, each.verdict == NO_PHOTO, each.camera) for each in (*first.records, *second.records)]
    wanted = [("0.png", False, None), ("", True, SILENT), ("", True, None), ("1.png", False, None), ("", True, SILENT)]
    assert told[:4] == wanted[:4] and told[4:] in ([], wanted[4:])
    assert (
        [each["camera"] for each in lines()]
        == [each[2] for each in told]
        == [each["camera"] for each in receiver.accepted]
    )
    assert first.records[1].explanation.startswith("No photo has come for") and first.records[1].score is None
    assert first.warnings[0] == first.records[1].explanation and second.warnings[0] == "Photos come again."
    assert first.watch.tally.total() == second.watch.tally.total() == 1
    assert len([each for each in (tmp_path / "sorted").rglob("*.png") if ".overlay" not in each.name]) == 2


def test_photos_that_wait_are_no_silence(detector, folder, tmp_path, png):
    """A model that takes longer than the camera may be silent."""

    class Slow(Wrapped):
        def predict(self, path):
            time.sleep(0.5)
            return self._model.predict(path)

    for i in range(3):
        (folder / f"{i}.png").write_bytes(png(i))
    with Running(Slow(detector), folder, tmp_path / "results", silent_after=0.4) as running:
        assert until(lambda: len(running.records) >= 3)
    assert [each.verdict == NO_PHOTO for each in running.records[:3]] == [False] * 3
    with pytest.raises(NfadError, match="--silent-after takes seconds above 0"):
        Watch(detector, "", folder, tmp_path / "results", silent_after=0)
