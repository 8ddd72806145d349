"""A bounded line of images before one model: whoever waits is judged in one stream, and kept several at a time.

Two threads, so that the model judges while the disk takes what was judged before. There is no waiting for a batch to
fill: an idle service judges and keeps an image at once, a busy one finds several and takes them together.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from nfad.errors import NfadError
from nfad.model import Model
from nfad.records import Prediction
from nfad.service.record import Inspection
from nfad.service.refusal import Refused
from nfad.service.shelf import THUMBNAIL_SIDE, shown
from nfad.service.uploads import Upload
from nfad.vision.pixels import load_part

log = logging.getLogger("nfad.service")
GATHER = 0.1  # seconds
FAILED = "the image could not be judged for a reason that lies with the service; its log says more"


@dataclass(frozen=True)
class Ticket:
    """An upload in the line. Cancelling the answer before its turn takes it out."""

    upload: Upload
    answer: Future[Inspection] = field(default_factory=Future)
    since: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True)
class Judged:
    """A ticket after its turn, before it is kept."""

    ticket: Ticket
    thumbnail: np.ndarray
    prediction: Prediction
    model: Model  # as it was at that moment: its rate may be changed at any time
    milliseconds: float


Keep = Callable[[Sequence[Judged]], Sequence[Inspection]]


class Queue:
    """`current()` is who judges now, `keep` makes inspections of at most `batch` that were judged."""

    def __init__(self, name: str, current: Callable[[], Model], keep: Keep, places: int, batch: int) -> None:
        self.places = places
        self._current, self._keep, self._batch = current, keep, batch
        self._waiting: queue.Queue[Ticket | None] = queue.Queue()
        self._judged: queue.Queue[Judged | None] = queue.Queue(maxsize=batch)
        self._lock, self._closed = threading.Lock(), False
        self._seconds = 0.1  # an image takes, on average of late
        self._threads = [
            threading.Thread(target=work, name=f"{name}-{work.__name__.strip('_')}", daemon=True)
            for work in (self._judge_all, self._keep_all)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        return self._waiting.qsize()

    @property
    def alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def check_place(self) -> None:
        """Refuse at once when the line is full or closed."""
        if self._closed:
            raise Refused(503, "the service is stopping; send the image again to the next one", retry_after=5)
        if self.waiting >= self.places:
            seconds = max(1, math.ceil(self._seconds * self.waiting))
            raise Refused(429, f"{self.places} images are waiting already; send this one again in {seconds} s", seconds)

    def put(self, upload: Upload) -> Ticket:
        """Take a place in the line; the answer comes when the inspection is kept."""
        ticket = Ticket(upload)
        with self._lock:
            self.check_place()
            self._waiting.put(ticket)
        return ticket

    def close(self) -> None:
        """Finish what is waiting, take nothing more."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _judge_all(self) -> None:
        while (ticket := self._waiting.get()) is not None:
            self._judge(ticket)
        self._judged.put(None)

    def _judge(self, first: Ticket) -> None:
        """This one and all that come until the line is empty, as one stream: the next is opened while one is judged."""
        model, taken = self._current(), deque[tuple[Ticket, np.ndarray]]()
        opening: Ticket | None = first

        def pixels() -> Iterator[np.ndarray]:
            """Of each photo only the thumbnail is kept here."""
            nonlocal opening
            while opening is not None:
                if opening.answer.set_running_or_notify_cancel():
                    try:
                        image = load_part(opening.upload.path)
                    except NfadError as error:
                        opening.answer.set_exception(Refused(400, opening.upload.told(error)))
                    else:
                        taken.append((opening, shown(image, THUMBNAIL_SIDE)))
                        opening = None
                        yield image
                opening = self._next() if self._current() is model else None

        def skip(_: object, reason: str) -> None:
            ticket, _ = taken.pop()
            ticket.answer.set_exception(Refused(400, reason.replace("the array", "the upload")))

        since, count = time.perf_counter(), 0
        try:
            for prediction in model.predict_stream(pixels(), skip, prefetch=True):
                ticket, thumbnail = taken.popleft()
                now, count = time.perf_counter(), count + 1
                self._judged.put(Judged(ticket, thumbnail, prediction, model, (now - ticket.since) * 1000))
                if count == self._batch or not taken:
                    self._seconds += 0.2 * ((now - since) / count - self._seconds)
                    since, count = now, 0
        except Exception:
            log.exception("images could not be judged")
            _fail([*(ticket for ticket, _ in taken), *([opening] if opening else [])], Refused(500, FAILED))

    def _next(self) -> Ticket | None:
        """Whoever stands in line now; the end of the line is left standing."""
        try:
            ticket = self._waiting.get_nowait()
        except queue.Empty:
            return None
        if ticket is None:
            self._waiting.put(None)
        return ticket

    def _keep_all(self) -> None:
        closing = False
        while not closing:
            found = list(self._some())
            closing = None in found
            judged = [each for each in found if each is not None]
            tickets = [each.ticket for each in judged]
            try:
                for ticket, inspection in zip(tickets, self._keep(judged), strict=True):
                    ticket.answer.set_result(inspection)
            except Refused as error:
                _fail(tickets, error)
            except Exception:
                log.exception("inspections could not be kept")
                _fail(tickets, Refused(500, FAILED))

    def _some(self) -> Iterator[Judged | None]:
        """One that was judged, and those that follow soon because others stand in line already: a commit for all."""
        yield self._judged.get()
        until = time.perf_counter() + GATHER
        with contextlib.suppress(queue.Empty):
            for _ in range(self._batch - 1):
                yield self._judged.get(timeout=max(0, until - time.perf_counter()) if self.waiting else 0)


def _fail(tickets: Sequence[Ticket], error: Exception) -> None:
    for ticket in tickets:
        if not ticket.answer.done():
            ticket.answer.set_exception(error)
