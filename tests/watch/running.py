"""A watch that runs while a test does something to its folder."""

import threading
import time

from nfad.watch.watch import Pace, Watch

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
