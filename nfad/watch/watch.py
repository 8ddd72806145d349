"""The watch itself: look, judge, commit, pass on; again until told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nfad.errors import NfadError
from nfad.records import Prediction
from nfad.system.files import ready_folder
from nfad.watch.arrivals import Arrival, Arrivals, stamp_of
from nfad.watch.delivering import Courier, Delivery, Sender
from nfad.watch.ledger import Ledger, only_one
from nfad.watch.lines import Lines
from nfad.watch.record import UNREADABLE, Judgement, Seen, as_line, as_path, judged, unreadable
from nfad.watch.sorting import Sorter, digest

LEDGER, LINES, LOCK = "ledger.sqlite", "results.jsonl", ".watch.lock"
FAREWELL = 10.0  # seconds that receivers get at the end


class Model(Protocol):
    """Anything that judges an image file, a `Detector` for one."""

    def predict(self, images: Path) -> Prediction: ...


@dataclass(frozen=True)
class Pace:
    """How long things may take, in seconds."""

    poll: float = 0.5  # between two looks
    settle: float = 0.3  # a file that stood still for so long is taken for complete, if it can be read
    patience: float = 10.0  # one that stood still for so long and cannot be read is recorded as such

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < 86400:
                raise NfadError(f"{name} is a number of seconds, from 0 to a day; got {value:g}")


@dataclass
class Tally:
    """What came of a watch."""

    judged: int = 0
    anomalous: int = 0
    unreadable: int = 0


class Watch:
    """One folder, one ledger. `on_part(row, line)` is told of each part once it is committed, `warn` of trouble."""

    def __init__(
        self,
        model: Model,
        model_hash: str,
        folder: Path,
        results: Path,
        *,
        senders: Sequence[Sender] = (),
        sorters: Sequence[Sorter] = (),
        pace: Pace | None = None,
        on_part: Callable[[Judgement, str], None] = lambda row, line: None,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        if not folder.is_dir():
            raise NfadError(f"{folder} is not a folder; name the one the camera writes into")
        self._model, self._hash, self._pace = model, model_hash, pace or Pace()
        self._folder, self._results = folder.resolve(), ready_folder(results).resolve()
        self._senders, self._sorters, self._on_part, self._warn = senders, sorters, on_part, warn
        if self._results == self._folder:
            raise NfadError(f"the results of {folder} cannot go into it; choose another folder for them")
        if self._results in (sorter.folder for sorter in sorters):
            raise NfadError(f"{results} is the folder of the results; sort into another one")
        self.tally = Tally()

    def run(self, stop: Callable[[], bool] = lambda: False, *, once: bool = False) -> Tally:
        """Watch until `stop()` says so, or with `once` until all that was there at the start is judged."""
        with ExitStack() as stack:
            for place in (self._results, *(sorter.folder for sorter in self._sorters)):
                stack.enter_context(only_one(place / LOCK, place))
            ledger = self._ledger = stack.enter_context(closing(Ledger(self._results / LEDGER)))
            ledger.belong_to(self._folder)
            try:
                self._lines = stack.enter_context(closing(Lines(self._results / LINES, ledger)))
            except OSError as error:
                raise NfadError(f"cannot write {self._results / LINES}: {error.strerror or error}") from error
            self._lines_fail = False
            self._recent: tuple[int, Prediction | None] = (0, None)
            self._filings = [
                Delivery(sorter.name, lambda row, s=sorter: s.file(row, self._prediction_of), ledger, self._warn)
                for sorter in self._sorters
            ]
            self._couriers = [Courier(sender, self._results / LEDGER, self._warn) for sender in self._senders]
            for courier in self._couriers:
                ledger.position(courier.sender.name)  # from here on, before the first part is judged
                courier.start()
            try:
                self._pass_on()
                self._look_and_judge(stop, once)
            finally:
                self._say_farewell()
        return self.tally

    def _look_and_judge(self, stop: Callable[[], bool], once: bool) -> None:
        places = [self._results, *(sorter.folder for sorter in self._sorters)]
        settle = self._pace.settle
        arrivals = Arrivals(self._folder, self._ledger.latest, settle=settle, leave_out=places, warn=self._warn)
        there: set[str] | None = None
        gone = False
        while not stop():
            looked = time.monotonic()
            try:
                ready = arrivals.poll()
            except OSError as error:
                place, reason = error.filename or self._folder, error.strerror or error
                if once:
                    raise NfadError(f"{place} cannot be listed: {reason}") from error
                if not gone:
                    self._warn(f"{place} cannot be listed ({reason}); looking again until it can")
                gone, ready = True, []
            else:
                gone = False
            took = time.monotonic() - looked
            if once and there is None:
                there = set(arrivals.waiting)
            for arrival in ready:
                if stop():
                    return
                if self._take(arrival):
                    arrivals.settled(arrival)
            if there is not None and not there & arrivals.waiting.keys():
                return
            self._pass_on()
            # A file that waits to settle is looked at again when it may have; an idle folder at leisure.
            soon = min(self._pace.poll, max(settle, 0.05))
            # However many old files there are, looking takes a fifth of one core at most.
            _sleep(max(4 * took, soon if arrivals.waiting else self._pace.poll), stop)

    def _take(self, arrival: Arrival) -> bool:
        """Judge one file and commit it; False while it is not yet what it will be, or no longer there."""
        path = self._folder / as_path(arrival.path)
        started = time.perf_counter()
        try:
            sha256 = digest(path)
        except OSError as error:
            return self._give_up(arrival, "", f"{path} cannot be read: {error.strerror or error}", started)
        seen = Seen(arrival.path, arrival.stamp.size, arrival.stamp.mtime_ns, sha256)
        latest = self._ledger.latest(arrival.path)
        if latest is not None and latest.sha256 == sha256:
            # No camera writes the same bytes twice: it was touched, or copied anew.
            if stamp_of(path) == arrival.stamp:
                self._ledger.touch(seen)
                return True
            return False
        started = time.perf_counter()
        try:
            prediction = self._model.predict(path)
        except NfadError as error:
            return self._give_up(arrival, sha256, str(error), started)
        if stamp_of(path) != arrival.stamp:  # written to while it was read: not known what was judged
            return False
        milliseconds = 1000 * (time.perf_counter() - started)
        self._commit(judged(seen, prediction, arrival.arrived, self._hash, milliseconds), prediction)
        return True

    def _give_up(self, arrival: Arrival, sha256: str, reason: str, started: float) -> bool:
        path = self._folder / as_path(arrival.path)
        if stamp_of(path) != arrival.stamp or time.monotonic() - arrival.still_since < self._pace.patience:
            return False
        seen = Seen(arrival.path, arrival.stamp.size, arrival.stamp.mtime_ns, sha256)
        milliseconds = 1000 * (time.perf_counter() - started)
        self._commit(unreadable(seen, reason, arrival.arrived, self._hash, milliseconds), None)
        return True

    def _commit(self, row: Judgement, prediction: Prediction | None) -> None:
        row = self._ledger.append(row)
        self._recent = row.id, prediction
        self.tally.judged += row.verdict != UNREADABLE
        self.tally.anomalous += prediction is not None and prediction.is_anomalous
        self.tally.unreadable += row.verdict == UNREADABLE
        self._on_part(row, as_line(row, self._ledger.name))
        self._pass_on()

    def _pass_on(self) -> None:
        """Let all who read along the ledger have what is new; none of them can stop the inspection."""
        try:
            self._lines.catch_up()
            self._lines_fail = False
        except OSError as error:
            if not self._lines_fail:
                self._warn(f"{self._results / LINES} cannot be written ({error.strerror or error}); tried again")
            self._lines_fail = True
        for filing in self._filings:
            filing.catch_up()
        for courier in self._couriers:
            courier.hurry()

    def _prediction_of(self, row: Judgement) -> Prediction | None:
        """The maps behind a row: at hand, or made again after a restart; None if another model had judged it."""
        id, prediction = self._recent
        if id == row.id and prediction is not None:
            return prediction
        return self._model.predict(self._folder / as_path(row.path)) if row.model == self._hash else None

    def _say_farewell(self) -> None:
        deadline = time.monotonic() + FAREWELL
        for courier in self._couriers:
            courier.finish_by(deadline)
        for courier in self._couriers:
            courier.join(max(0.0, deadline - time.monotonic()))
        for name in [courier.sender.name for courier in self._couriers] + [each.name for each in self._filings]:
            if left := self._ledger.last() - self._ledger.position(name):
                self._warn(f"{name} has yet to get {left} parts; the next start sends them")


def _sleep(seconds: float, stop: Callable[[], bool]) -> None:
    """In short naps: a signal's handler may only set a flag, because an event's lock could be held by whom it stops."""
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))
