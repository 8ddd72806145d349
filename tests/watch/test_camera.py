"""What `watch` says of the camera: stopped, silent, there again."""

import os
import time

import pytest
from watch.running import Running, Wrapped, until

from nfad.drift.state import FROZEN, SILENT
from nfad.errors import NfadError
from nfad.watch.record import NO_PHOTO
from nfad.watch.senders import Webhook
from nfad.watch.sorting import Sorter
from nfad.watch.watch import Watch


def test_a_camera_that_has_stopped_is_told_of_once_and_in_every_record(watch, folder, png, receiver):
    for i in range(12):
        (folder / f"{i:02}.png").write_bytes(png(i if i < 3 else 3 if i < 9 else i))
        os.utime(folder / f"{i:02}.png", (i, i))
    records, warnings, _ = watch(senders=[Webhook(f"http://{receiver.address}/")])
    assert [each.camera for each in records] == [None] * 5 + [FROZEN] * 4 + [None] * 3
    assert [each["camera"] for each in receiver.accepted] == [each.camera for each in records]
    assert warnings == ["05.png is the same file as the 2 photos before it; has the camera stopped?"]


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
