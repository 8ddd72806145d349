import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.system.ahead import MOST, ahead


@given(st.lists(st.integers(), max_size=20), st.integers(0, 6))
def test_results_come_in_the_order_of_the_items(items, threads):
    assert [each.result() for each in ahead(lambda item: item * 2, items, threads)] == [item * 2 for item in items]


def test_an_error_is_that_of_its_item_alone():
    found = list(ahead(lambda item: 1 // item, [1, 0, 1], 2))
    assert [found[0].result(), found[2].result()] == [1, 1]
    with pytest.raises(ZeroDivisionError):
        found[1].result()


@pytest.mark.parametrize("threads", [1, 2, 64])
def test_no_more_are_begun_than_there_are_threads_for(threads):
    begun, at_once, most, lock = [], 0, 0, threading.Lock()

    def work(item):
        nonlocal at_once, most
        with lock:
            begun.append(item)
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.002)
        with lock:
            at_once -= 1

    for done, _ in enumerate(ahead(work, range(40), threads)):
        assert len(begun) <= done + 2 + min(threads, MOST)
    assert 1 <= most <= min(threads, MOST) and len(begun) == 40


def test_who_stops_early_waits_for_nothing_that_was_not_begun():
    seen = []
    for _ in ahead(seen.append, range(1000), 2):
        break
    assert len(seen) <= 4
