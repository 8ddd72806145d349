"""A watch that runs while a test does something to its folder, and records to do it with."""

import threading
import time

from nfad.verdict.prediction import Outputs, Rule
from nfad.watch.record import WatchRecord
from nfad.watch.watch import Pace, Watch

QUICK = Pace(poll=0.02, settle=0.05, patience=0.3)


def made_record(image="a.png", **changes):
    given = {
        "id": "", "time": "2024-05-01T00:00:00.500Z", "image": image, "sha256": "0" * 64, "model": "part",
        "model_sha256": "f" * 64, "verdict": "normal", "explanation": "Normal.", "milliseconds": 1.5,
        "score": 1.25, "threshold": 2.0, "nuisance_by_family": {"photometric": 0.25},
        "arrived": "2024-05-01T00:00:00.000Z", "size": 3, "mtime_ns": 5,
    }  # fmt: skip
    return WatchRecord(**given | changes)


def names(records):
    return [record.image for record in records]


def until(happens, seconds=20):
    end = time.monotonic() + seconds
    while not happens() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(happens())


class Wrapped:
    """A model of which a test changes one thing."""

    def __init__(self, model):
        self._model = model

    def __getattr__(self, name):
        return getattr(self._model, name)


class Strange(Wrapped):
    """Finds every photo strange; `scores` by file name."""

    def __init__(self, model, scores):
        super().__init__(model)
        self._scores = scores

    def predict(self, path):
        given = self._model.predict(path)
        outputs = Outputs(
            self._scores.get(path.name, given.score), given.unfiltered_score, given.map, given.unfiltered_map,
            given.participation, given.nuisance_fraction, given.nuisance_by_family,
            strangeness=2.5, strange="does not look like the fitted part",
        )  # fmt: skip
        return Rule.at(self._model.held_out, self._model.false_alarm_rate)(outputs, given.geometry, given.source)


class Running:
    """A watch in a thread, until it is told to stop."""

    def __init__(self, model, folder, results, **options):
        self.records, self.warnings, self.error, self._stop = [], [], None, False
        self.watch = Watch(
            model, "part", folder, results, pace=QUICK, on_record=self.records.append,
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
