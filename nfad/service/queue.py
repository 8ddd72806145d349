"""A bounded queue of images before one model: what waits is predicted as one stream and kept several at a time.

Two threads, so that the model works while the disk takes earlier results. No batch is waited for: an idle service
judges and keeps an image at once, a busy one finds several and takes them together.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from nfad.errors import NfadError
from nfad.model import Model, is_shortage
from nfad.records import Prediction
from nfad.service.errors import ApiError
from nfad.service.logs import request_id
from nfad.service.pictures import THUMBNAIL_SIDE, for_display
from nfad.service.record import Inspection
from nfad.service.uploads import Upload
from nfad.vision.pixels import load_part

log = logging.getLogger("nfad.service")
GATHER = 0.1  # seconds to wait for further results of a commit
FAILED = "the image could not be judged for a reason that lies with the service; its log says more"
SHORT_OF_MEMORY = "there is not enough memory for this image now; send it again, or scale it down"


@dataclass(frozen=True)
class Ticket:
    """An upload in the queue. Cancelling the answer before its turn takes it out."""

    upload: Upload
    answer: Future[Inspection] = field(default_factory=Future)
    since: float = field(default_factory=time.perf_counter)
    request: str | None = field(default_factory=request_id.get)  # that it came with, for the log


@dataclass(frozen=True)
class Result:
    """A ticket with its prediction, not yet kept."""

    ticket: Ticket
    thumbnail: np.ndarray
    prediction: Prediction
    model: Model  # as it was at that moment: its rate may be changed at any time
    milliseconds: float
    frame: int  # a hash of the photo's pixels


Keep = Callable[[Sequence[Result]], Sequence[Inspection]]


class Queue:
    """`current()` is the model to use now; `keep` makes inspections of up to `batch` results and stores them."""

    def __init__(self, name: str, current: Callable[[], Model], keep: Keep, places: int, batch: int) -> None:
        self.places = places
        self._current, self._keep, self._batch = current, keep, batch
        self._waiting: queue.Queue[Ticket | None] = queue.Queue()  # None ends it
        self._results: queue.Queue[Result | None] = queue.Queue(maxsize=batch)
        self._lock, self._closed = threading.Lock(), False
        self._seconds = 0.1  # an image takes, as a moving average
        self._threads = [
            threading.Thread(target=work, name=f"{name}-{work.__name__.strip('_')}", daemon=True)
            for work in (self._predict_all, self._keep_all)
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
        """Refuse at once when the queue is full or closed."""
        if self._closed:
            raise ApiError(503, "the service is stopping; send the image again to the next one", retry_after=5)
        if self.waiting >= self.places:
            seconds = max(1, math.ceil(self._seconds * self.waiting))
            raise ApiError(
                429, f"{self.places} images are waiting already; send this one again in {seconds} s", seconds
            )

    def put(self, upload: Upload) -> Ticket:
        """Take a place in the queue; the answer comes when the inspection is kept."""
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

    def _predict_all(self) -> None:
        while (ticket := self._waiting.get()) is not None:
            self._predict(ticket)
        self._results.put(None)

    def _predict(self, first: Ticket) -> None:
        """This image and all that come until the queue is empty, as one stream: the next is read during the last."""
        model, taken = self._current(), deque[tuple[Ticket, np.ndarray, int]]()
        opening: Ticket | None = first

        def photos() -> Iterator[np.ndarray]:
            """Of each photo only the thumbnail is kept here."""
            nonlocal opening
            while opening is not None:
                if opening.answer.set_running_or_notify_cancel():
                    try:
                        photo = load_part(opening.upload.path)
                    except NfadError as error:
                        opening.answer.set_exception(ApiError(400, opening.upload.without_path(error)))
                    else:
                        taken.append((opening, for_display(photo, THUMBNAIL_SIDE), _frame(photo)))
                        opening = None
                        yield photo
                opening = self._next() if self._current() is model else None

        def skip(_: object, reason: str) -> None:
            ticket, _, _ = taken.pop()
            ticket.answer.set_exception(ApiError(400, reason.replace("the array", "the upload")))

        since, count = time.perf_counter(), 0
        try:
            for prediction in model.predict_stream(photos(), skip, prefetch=True):
                ticket, thumbnail, frame = taken.popleft()
                now, count = time.perf_counter(), count + 1
                milliseconds = (now - ticket.since) * 1000
                self._results.put(Result(ticket, thumbnail, prediction, model, milliseconds, frame))
                if count == self._batch or not taken:
                    self._seconds += 0.2 * ((now - since) / count - self._seconds)
                    since, count = now, 0
        except Exception:
            log.exception("images could not be judged together")  # the fault of one, of which the others know nothing
            for ticket in [*(ticket for ticket, _, _ in taken), *([opening] if opening else [])]:
                self._predict_alone(ticket, model)

    def _predict_alone(self, ticket: Ticket, model: Model) -> None:
        try:
            photo = load_part(ticket.upload.path)
            [prediction] = model.predict_stream([photo], prefetch=False)
        except NfadError as error:
            said = ticket.upload.without_path(error).replace("the array", "the upload")
            ticket.answer.set_exception(ApiError(400, said))
        except Exception as error:
            log.exception("an image could not be judged", extra={"request": ticket.request})
            short = ApiError(503, SHORT_OF_MEMORY, retry_after=5)
            ticket.answer.set_exception(short if is_shortage(error) else ApiError(500, FAILED))
        else:
            thumbnail, milliseconds = for_display(photo, THUMBNAIL_SIDE), (time.perf_counter() - ticket.since) * 1000
            self._results.put(Result(ticket, thumbnail, prediction, model, milliseconds, _frame(photo)))

    def _next(self) -> Ticket | None:
        """Whatever waits now; None if nothing does. The end mark stays in the queue."""
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
            found = list(self._some_results())
            closing = None in found
            results = [each for each in found if each is not None]
            tickets = [each.ticket for each in results]
            try:
                for ticket, inspection in zip(tickets, self._keep(results), strict=True):
                    ticket.answer.set_result(inspection)
            except ApiError as error:
                _fail(tickets, error)
            except Exception:
                log.exception("inspections could not be kept")
                _fail(tickets, ApiError(500, FAILED))

    def _some_results(self) -> Iterator[Result | None]:
        """One result, and, while other images wait, those that follow soon: one commit for all of them."""
        yield self._results.get()
        until = time.perf_counter() + GATHER
        with contextlib.suppress(queue.Empty):
            for _ in range(self._batch - 1):
                yield self._results.get(timeout=max(0, until - time.perf_counter()) if self.waiting else 0)


def _frame(photo: np.ndarray) -> int:
    """Quick, and enough to tell a frame from the one before it."""
    return zlib.crc32(np.ascontiguousarray(photo).data)


def _fail(tickets: Sequence[Ticket], error: Exception) -> None:
    for ticket in tickets:
        if not ticket.answer.done():
            ticket.answer.set_exception(error)
