import threading
import time

import pytest

from nfad.watch.delivery import LONGEST_PAUSE, Delivery, Refused, SenderThread
from nfad.watch.ledger import Ledger


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "ledger.sqlite")
    yield opened
    opened.close()


class Moody:
    """Takes parts unless told what to raise."""

    name = "moody"

    def __init__(self):
        self.had, self.error, self.tries, self.closed = [], None, 0, False

    def __call__(self, record):
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.had.append(record.image)

    def send(self, text, id):
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.had.append(id)

    def close(self):
        self.closed = True


def test_all_parts_in_order_also_more_than_are_read_at_once(ledger, record):
    receiver = Moody()
    delivery = Delivery("r", receiver, ledger, print)
    for i in range(250):
        ledger.append(record(f"{i}.png"))
    assert delivery.catch_up() and receiver.had == [f"{i}.png" for i in range(250)]
    assert delivery.catch_up() and receiver.tries == 250


def test_a_failure_is_told_once_waited_out_ever_longer_and_loses_nothing(ledger, record):
    receiver, clock, told = Moody(), Clock(), []
    delivery = Delivery("r", receiver, ledger, told.append, clock)
    receiver.error = ConnectionRefusedError("down")
    ledger.append(record("a.png"))
    ledger.append(record("b.png"))
    pauses = []
    for _ in range(12):
        assert not delivery.catch_up()
        assert not delivery.catch_up()  # not due: not even tried
        pauses.append(delivery.due - clock.now)
        clock.now = delivery.due
    assert receiver.tries == 12 and len(told) == 1 and "ConnectionRefusedError: down" in told[0]
    assert pauses == sorted(pauses) and pauses[0] == 1 and pauses[-1] == LONGEST_PAUSE
    receiver.error = None
    assert delivery.catch_up() and receiver.had == ["a.png", "b.png"]
    assert told[1:] == ["r takes parts again"]


def test_a_receiver_may_be_dead_for_weeks(ledger, record):
    receiver, clock = Moody(), Clock()
    delivery = Delivery("r", receiver, ledger, lambda sentence: None, clock)
    receiver.error = ConnectionRefusedError("down")
    ledger.append(record("a.png"))
    while receiver.tries < 20_000:  # two weeks
        assert not delivery.catch_up()
        clock.now = delivery.due
    receiver.error = None
    assert delivery.catch_up() and receiver.had == ["a.png"]


def test_what_is_refused_for_good_is_kept_as_such_and_holds_up_nobody(ledger, record):
    receiver, told = Moody(), []
    delivery = Delivery("r", receiver, ledger, told.append)
    receiver.error = Refused("too long")
    ledger.append(record("a.png"))
    assert delivery.catch_up()
    receiver.error = None
    ledger.append(record("b.png"))
    assert delivery.catch_up() and receiver.had == ["b.png"]
    assert ledger.refusals("r") == {1: "too long"} and "a.png (part 1): too long" in told[0]


def test_another_start_goes_on_behind_the_last_that_was_had(ledger, record):
    first, second = Moody(), Moody()
    delivery = Delivery("r", first, ledger, print)
    ledger.append(record("a.png"))
    delivery.catch_up()
    ledger.append(record("b.png"))
    Delivery("r", second, ledger, print).catch_up()
    assert (first.had, second.had) == (["a.png"], ["b.png"])


def test_a_sender_thread_delivers_meanwhile_and_finishes_what_is_left(ledger, record):
    sender = Moody()
    thread = SenderThread(sender, ledger.file, print)
    ledger.position(sender.name)
    thread.start()
    ledger.append(record("a.png"))
    thread.notify()
    for _ in range(200):
        if sender.had:
            break
        time.sleep(0.01)
    assert sender.had == [f"{ledger.name}-1"]
    ledger.append(record("b.png"))
    thread.finish_by(time.monotonic() + 5)
    thread.join(5)
    assert sender.had == [f"{ledger.name}-1", f"{ledger.name}-2"] and sender.closed and not thread.is_alive()


def test_a_sender_thread_whose_receiver_is_down_ends_when_asked(ledger, record):
    sender = Moody()
    sender.error = TimeoutError()
    thread = SenderThread(sender, ledger.file, lambda sentence: None)
    ledger.position(sender.name)
    ledger.append(record("a.png"))
    thread.start()
    for _ in range(20):  # new records do not shorten the pause
        thread.notify()
        time.sleep(0.01)
    assert sender.tries == 1
    thread.finish_by(time.monotonic() + 5)
    thread.join(3)
    assert not thread.is_alive() and sender.tries == 2  # once more, and then goodbye
    assert ledger.position(sender.name) == 0
    assert thread not in threading.enumerate()
