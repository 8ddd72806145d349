"""A bounded line of images before one model: whatever waits is judged as one batch, then kept as one transaction.

Two threads, so that the model judges the next batch while the disk takes the last. There is no waiting for a batch to
fill: an idle service judges an image at once, a busy one finds several and judges them together.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from nfad.errors import NfadError
from nfad.judge import Judge
from nfad.records import Prediction
from nfad.service.record import Inspection
from nfad.service.refusal import Refused
from nfad.service.shelf import THUMBNAIL_SIDE, shown
from nfad.service.uploads import Upload
from nfad.vision.pixels import load_part

log = logging.getLogger("nfad.service")
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
    judge: Judge  # as it was at that moment: its rate may be changed at any time
    milliseconds: float


Keep = Callable[[Sequence[Judged]], Sequence[Inspection]]


class Queue:
    """`current()` is who judges now, `keep` makes inspections of what was judged; `batch` are judged at once."""

    def __init__(self, name: str, current: Callable[[], Judge], keep: Keep, places: int, batch: int) -> None:
        self.places = places
        self._current, self._keep, self._batch = current, keep, batch
        self._waiting: queue.Queue[Ticket | None] = queue.Queue()
        self._judged: queue.Queue[list[Judged] | None] = queue.Queue(maxsize=1)
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
        closing = False
        while not closing:
            tickets = [self._waiting.get()]
            while len(tickets) < self._batch and not self._waiting.empty():
                tickets.append(self._waiting.get())
            closing = None in tickets
            turn = [t for t in tickets if t is not None and t.answer.set_running_or_notify_cancel()]
            started = time.perf_counter()
            try:
                if judged := self._judge(turn):
                    self._judged.put(judged)
            except Exception:
                log.exception("a batch could not be judged")
                _fail(turn, Refused(500, FAILED))
            if turn:
                self._seconds += 0.2 * ((time.perf_counter() - started) / len(turn) - self._seconds)
        self._judged.put(None)

    def _judge(self, tickets: Sequence[Ticket]) -> list[Judged]:
        judge = self._current()
        opened: list[tuple[Ticket, np.ndarray]] = []

        def pixels() -> Iterator[np.ndarray]:
            """One whole photo in memory at a time; only its thumbnail stays."""
            for ticket in tickets:
                try:
                    image = load_part(ticket.upload.path)
                except NfadError as error:
                    ticket.answer.set_exception(Refused(400, ticket.upload.told(error)))
                    continue
                opened.append((ticket, shown(image, THUMBNAIL_SIDE)))
                yield image

        def skip(_: object, reason: str) -> None:
            ticket, _ = opened.pop()
            ticket.answer.set_exception(Refused(400, reason.replace("the array", "the upload")))

        predictions = list(judge.predict_stream(pixels(), skip))
        now = time.perf_counter()
        return [
            Judged(ticket, thumbnail, prediction, judge, (now - ticket.since) * 1000)
            for (ticket, thumbnail), prediction in zip(opened, predictions, strict=True)
        ]

    def _keep_all(self) -> None:
        while (judged := self._judged.get()) is not None:
            tickets = [each.ticket for each in judged]
            try:
                for ticket, inspection in zip(tickets, self._keep(judged), strict=True):
                    ticket.answer.set_result(inspection)
            except Refused as error:
                _fail(tickets, error)
            except Exception:
                log.exception("a batch could not be kept")
                _fail(tickets, Refused(500, FAILED))


def _fail(tickets: Sequence[Ticket], error: Exception) -> None:
    for ticket in tickets:
        if not ticket.answer.done():
            ticket.answer.set_exception(error)
