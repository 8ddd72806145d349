"""A watch on a full disk: SQLite itself is given no page more."""

import pytest
from watch.running import QUICK, Running, Wrapped, names, until

from nfad.errors import NfadError
from nfad.watch.sorting import Sorter
from nfad.watch.watch import Watch


def test_a_full_disk_is_waited_out_and_nothing_is_lost_or_judged_twice(detector, folder, tmp_path, png):
    class Filling(Wrapped):
        """SQLite gets no page more from the fourth photo on, until it has failed twice."""

        left = 2

        def predict(self, given):
            sql = running.watch._ledger._sql
            full = len(running.records) >= 3 and len(running.warnings) < 1
            if full or (running.warnings and self.left):
                self.left -= bool(running.warnings)
                [pages] = sql.execute("PRAGMA page_count").fetchone()
            else:
                pages = 10**6
            sql.execute(f"PRAGMA max_page_count = {pages}")
            return detector.predict(given)

    running = Running(Filling(detector), folder, tmp_path / "results", sorters=[Sorter(tmp_path / "s", "move", folder)])
    count = 0
    with running:
        while not running.warnings and count < 200:
            (folder / f"{count:03}.png").write_bytes(png(count))
            count += 1
            assert until(lambda wanted=count: len(running.records) == wanted or running.warnings)
        assert "is full" in running.warnings[0] and "no file is lost" in running.warnings[0]
        assert until(lambda: len(running.records) == count and not any(folder.iterdir()))
    assert names(running.records) == [f"{i:03}.png" for i in range(count)]
    assert not any(each.camera for each in running.records)  # a photo that was tried again is no frozen frame
    assert len(running.warnings) == 2 and running.warnings[1].endswith("takes records again")


def test_on_a_full_disk_once_says_so_and_ends(detector, folder, tmp_path, png):
    class Full(Wrapped):
        def predict(self, given):
            [pages] = watching._ledger._sql.execute("PRAGMA page_count").fetchone()
            watching._ledger._sql.execute(f"PRAGMA max_page_count = {pages}")
            return detector.predict(given)

    for i in range(40):
        (folder / f"{i}.png").write_bytes(png(i))
    watching = Watch(Full(detector), "part", folder, tmp_path / "results", pace=QUICK)
    with pytest.raises(NfadError, match="is its disk full"):
        watching.run(once=True)
    assert 0 < watching.tally.total() < 40
    rest = Watch(detector, "part", folder, tmp_path / "results", pace=QUICK).run(once=True)
    assert watching.tally.total() + rest.total() == 40
