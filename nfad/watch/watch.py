"""The watch itself: look, judge, commit, pass on; again until told to stop."""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nfad.drift.camera import of_a_stopped_camera
from nfad.drift.state import FROZEN, SILENT
from nfad.drift.words import camera as camera_told
from nfad.errors import NfadError
from nfad.model import Model, why_failed
from nfad.records import NOT_JUDGED, UNREADABLE, Prediction
from nfad.system.files import locked, ready_folder, sha256_of
from nfad.system.platform import return_freed_memory
from nfad.watch.arrivals import Arrival, Arrivals, status_of
from nfad.watch.camera import NOTED, camera_after, frame_of, see, warning_of
from nfad.watch.delivery import Delivery, Sender, SenderThread, pause_after
from nfad.watch.ledger import Ledger, NoRoom
from nfad.watch.lines import Lines
from nfad.watch.record import Fingerprint, NoPrediction, WatchRecord, as_path, record_of, record_of_silence
from nfad.watch.sorting import Sorter

LEDGER, LINES, LOCK = "ledger.sqlite", "results.jsonl", ".watch.lock"
TIDY_SECONDS = 60.0  # between two times that free memory is given back
DRAIN_SECONDS = 10.0  # for receivers to take what is left at the end


@dataclass(frozen=True)
class Pace:
    """How long things may take, in seconds."""

    poll: float = 0.5  # between two looks
    settle: float = 0.3  # a file unchanged for so long is taken for complete, if it can be read
    patience: float = 10.0  # one unchanged for so long that cannot be read is recorded as unreadable

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < 86400:
                raise NfadError(f"{name} is a number of seconds, from 0 to a day; got {value:g}")


class Watch:
    """One folder, one ledger. `name` is the model's in the records; `on_record` gets each once it is committed.

    Without a photo for `silent_after` seconds that is recorded, and again when one has come, once each.
    """

    def __init__(
        self,
        model: Model,
        name: str,
        folder: Path,
        results: Path,
        *,
        senders: Sequence[Sender] = (),
        sorters: Sequence[Sorter] = (),
        pace: Pace | None = None,
        silent_after: float | None = None,
        on_record: Callable[[WatchRecord], None] = lambda record: None,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        if not folder.is_dir():
            raise NfadError(f"{folder} is not a folder; name the one the camera writes into")
        self._model, self._name, self._pace = model, name, pace or Pace()
        self._folder, self._results = folder.resolve(), ready_folder(results).resolve()
        self._senders, self._sorters, self._on_record, self._warn = senders, sorters, on_record, warn
        if silent_after is not None and not silent_after > 0:
            raise NfadError(f"--silent-after takes seconds above 0; got {silent_after:g}")
        self._silent_after = silent_after
        if self._results == self._folder:
            raise NfadError(f"the results of {folder} cannot go into it; choose another folder for them")
        if self._results in (sorter.folder for sorter in sorters):
            raise NfadError(f"{results} is the folder of the results; sort into another one")
        self.tally: Counter[str] = Counter()  # by verdict

    def run(self, stop: Callable[[], bool] = lambda: False, *, once: bool = False) -> Counter[str]:
        """Watch until `stop()` says so, or with `once` until all that was there at the start is judged."""
        self._stop, self._asked = stop, math.inf  # when it was asked to stop
        with ExitStack() as stack:
            for place in (self._results, *(sorter.folder for sorter in self._sorters)):
                message = f"another `nfad watch` writes to {place}; stop it or choose another folder"
                stack.enter_context(locked(place / LOCK, message))
            ledger = self._ledger = stack.enter_context(closing(Ledger(self._results / LEDGER)))
            ledger.belong_to(self._folder)
            try:
                self._lines = stack.enter_context(closing(Lines(self._results / LINES, ledger)))
            except OSError as error:
                raise NfadError(f"cannot write {self._results / LINES}: {error.strerror or error}") from error
            self._lines_fail = self._gone = False
            before = ledger.after(ledger.last() - NOTED, NOTED)
            self._camera = camera_after(before, self._model, self._silent_after)
            self._camera_told = self._camera.state
            self._silent = bool(before) and before[-1].camera == SILENT  # told before this start
            self._recent: tuple[str, Prediction | None] = ("", None)
            self._sortings = [
                Delivery(sorter.name, partial(sorter.file, prediction_of=self._prediction_of), ledger, self._warn)
                for sorter in self._sorters
            ]
            self._threads = [SenderThread(sender, self._results / LEDGER, self._warn) for sender in self._senders]
            for thread in self._threads:
                ledger.position(thread.sender.name)  # from here on, before the first image is judged
                thread.start()
            try:
                self._poll(stop, once)
            finally:
                self._drain()
        return self.tally

    def _poll(self, stop: Callable[[], bool], once: bool) -> None:
        places = [self._results, *(sorter.folder for sorter in self._sorters)]
        settle = self._pace.settle
        arrivals = Arrivals(self._folder, self._ledger.latest, settle=settle, exclude=places, warn=self._warn)
        there: set[str] | None = None
        failures = 0  # of the ledger, one after the other
        tidied = time.monotonic()
        while not stop():
            try:
                self._pass_on()
                looked = time.monotonic()
                ready = self._listed(arrivals, once)
                took = time.monotonic() - looked
                if not arrivals.waiting:  # what waits is a photo, however long the ledger or the model takes
                    self._listen()
                if once and there is None:
                    there = set(arrivals.waiting)
                for arrival in ready:
                    if stop():
                        return
                    if self._take(arrival):
                        arrivals.done(arrival)
                        failures = self._well_again(failures)
            except NoRoom as error:
                if once:
                    raise
                failures += 1
                if failures == 1:
                    self._warn(f"{error} Nothing more is judged until it takes records again; no file is lost")
                _sleep(pause_after(failures), stop)
                continue
            if there is not None and not there & arrivals.waiting.keys():
                return
            if time.monotonic() - tidied > TIDY_SECONDS:
                tidied = time.monotonic()
                return_freed_memory()
            # A file that waits to settle is looked at again when it may have; an idle folder at leisure.
            soon = min(self._pace.poll, max(settle, 0.05))
            # However many old files there are, looking takes a fifth of one core at most.
            _sleep(max(4 * took, soon if arrivals.waiting else self._pace.poll), stop)

    def _well_again(self, failures: int) -> int:
        if failures:
            self._warn(f"the ledger {self._results / LEDGER} takes records again")
        return 0

    def _listed(self, arrivals: Arrivals, once: bool) -> list[Arrival]:
        """What is ready; nothing while the folder is away."""
        try:
            ready = arrivals.poll()
        except OSError as error:
            place, reason = error.filename or self._folder, error.strerror or error
            if once:
                raise NfadError(f"{place} cannot be listed: {reason}") from error
            if not self._gone:
                self._warn(f"{place} cannot be listed ({reason}); looking again until it can")
            self._gone = True
            return []
        self._gone = False
        return ready

    def _take(self, arrival: Arrival) -> bool:
        """Judge one file and commit its record; False while it is not yet what it will be, or no longer there."""
        path = self._folder / as_path(arrival.image)
        started = time.perf_counter()
        try:
            sha256 = sha256_of(path)
        except OSError as error:
            why = f"{path} cannot be read: {error.strerror or error}"
            return self._commit(arrival, "", NoPrediction(UNREADABLE, why), started)
        latest = self._ledger.latest(arrival.image)
        if latest is not None and latest.sha256 == sha256:
            # No camera writes the same bytes twice: it was touched, or copied anew.
            if status_of(path) != arrival.status:
                return False
            if latest.mtime_ns != arrival.status.mtime_ns:
                self._warn(f"{arrival.image} has been written again with the same content; it is not judged again")
            self._ledger.touch(_fingerprint(arrival, sha256))
            return True
        started = time.perf_counter()
        try:
            found = self._model.predict(path)
        except NfadError as error:
            found = NoPrediction(UNREADABLE, str(error))
        except Exception as error:  # a backend's own; the photos behind it are judged all the same
            found = NoPrediction(NOT_JUDGED, why_failed(error))
        return self._commit(arrival, sha256, found, started)

    def _commit(self, arrival: Arrival, sha256: str, found: Prediction | NoPrediction, started: float) -> bool:
        """Record a prediction, or why there is none; False if it is too early to say."""
        milliseconds = 1000 * (time.perf_counter() - started)
        if status_of(self._folder / as_path(arrival.image)) != arrival.status:
            return False  # written to while it was read: not known what was judged
        if isinstance(found, NoPrediction) and time.monotonic() - arrival.unchanged_since < self._pace.patience:
            return False
        if self._silent:
            self._tell_of_silence(None, "Photos come again.")
        file = _fingerprint(arrival, sha256)
        record = record_of(found, file, arrival.arrived, self._model, self._name, milliseconds)
        camera = copy.deepcopy(self._camera)  # a photo whose record is not taken comes again, and counts once
        see(camera, record, None if isinstance(found, NoPrediction) else frame_of(found))
        if camera.state == FROZEN and isinstance(found, Prediction):
            found = of_a_stopped_camera(found)
            record = record_of(found, file, arrival.arrived, self._model, self._name, milliseconds)
        record = self._ledger.append(replace(record, camera=camera.state))
        self._camera = camera
        self._recent = record.id, None if isinstance(found, NoPrediction) else found
        self.tally[record.verdict] += 1
        self._tell_of_camera(record.image)
        self._on_record(record)
        self._pass_on()
        return True

    def _listen(self) -> None:
        """Once, when no photo has come for long."""
        if not self._silent and self._camera.state == SILENT:
            self._tell_of_silence(SILENT, camera_told(SILENT, 0, self._camera.silence))

    def _tell_of_silence(self, camera: str | None, sentence: str) -> None:
        record = self._ledger.append(record_of_silence(camera, sentence, self._model, self._name))
        self._silent = camera is not None
        self._warn(sentence)
        self._on_record(record)
        self._pass_on()

    def _tell_of_camera(self, image: str) -> None:
        """Once, when it begins."""
        state = self._camera.state
        if state is not None and state != self._camera_told:
            self._warn(warning_of(state, image))
        self._camera_told = state

    def _pass_on(self) -> None:
        """Let all who read along the ledger have what is new; none of them can stop the inspection."""
        try:
            self._lines.catch_up()
            self._lines_fail = False
        except OSError as error:
            if not self._lines_fail:
                self._warn(f"{self._results / LINES} cannot be written ({error.strerror or error}); tried again")
            self._lines_fail = True
        for sorting in self._sortings:
            sorting.catch_up(self._is_late)
        for thread in self._threads:
            thread.notify()

    def _is_late(self) -> bool:
        """Asked to stop so long ago that what is left to be sorted waits for the next start."""
        if not self._stop():
            return False
        self._asked = min(self._asked, time.monotonic())
        return time.monotonic() - self._asked > DRAIN_SECONDS

    def _prediction_of(self, record: WatchRecord) -> Prediction | None:
        """The maps behind a record: at hand, or made again after a restart; None if another model had judged it."""
        id, prediction = self._recent
        if id == record.id and prediction is not None:
            return prediction
        if record.model_sha256 != self._model.sha256 or record.threshold is None:  # no maps where a model failed
            return None
        try:
            found = self._model.predict(self._folder / as_path(record.image))
        except Exception:  # judged before, and the record stands: only its picture is lost
            return None
        return of_a_stopped_camera(found) if record.camera == FROZEN else found

    def _drain(self) -> None:
        """Give the receivers a moment to take what is left, and say who did not."""
        deadline = time.monotonic() + DRAIN_SECONDS
        for thread in self._threads:
            thread.finish_by(deadline)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for name in [thread.sender.name for thread in self._threads] + [each.name for each in self._sortings]:
            if left := self._ledger.last() - self._ledger.position(name):
                self._warn(f"{name} has yet to get {left} parts; the next start sends them")


def _fingerprint(arrival: Arrival, sha256: str) -> Fingerprint:
    return Fingerprint(arrival.image, arrival.status.size, arrival.status.mtime_ns, sha256)


def _sleep(seconds: float, stop: Callable[[], bool]) -> None:
    """In short naps: a signal's handler may only set a flag, because an event's lock could be held by whom it stops."""
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))
