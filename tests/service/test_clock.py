"""Clocks are set back and forth, and batteries of clocks die; no picture may go for it."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from service.serving import image, png, serving

from nfad.service import models, service
from nfad.service.clock import BELIEVED_AFTER, CautiousClock
from nfad.service.record import Ids, iso, time_of
from nfad.service.service import apply_retention
from nfad.service.settings import Retention

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Hands:
    """A wall clock that can be set, and seconds that only pass."""

    def __init__(self):
        self.wall, self.passed = START, 1000.0

    def wait(self, time):
        self.wall += time
        self.passed += time.total_seconds()

    def cautious(self, since=None):
        return CautiousClock(since, lambda: self.wall, lambda: self.passed)


def test_time_that_passes_is_told_as_it_is():
    hands = Hands()
    clock = hands.cautious()
    for _ in range(100):
        hands.wait(timedelta(hours=7))
        assert clock.now() == hands.wall


def test_a_jump_ahead_is_believed_after_a_day_and_a_step_back_at_once():
    hands = Hands()
    clock = hands.cautious()
    hands.wall += timedelta(days=40)
    for hour in range(24):
        assert clock.now() == START + hour * HOUR
        hands.wait(HOUR)
    assert clock.now() == hands.wall == START + timedelta(days=41)
    hands.wall -= timedelta(days=41)
    assert clock.now() == hands.wall
    hands.wall += timedelta(days=40)  # and back within the day, as somebody does who has mistyped
    assert clock.now() == START
    hands.wall -= timedelta(days=40)
    hands.wait(2 * HOUR)
    assert clock.now() == hands.wall and BELIEVED_AFTER == 86400


def test_what_passed_before_a_start_is_not_taken_for_granted_either():
    hands = Hands()
    clock = hands.cautious(since=START - timedelta(days=40))
    assert clock.now() == START - timedelta(days=40)
    hands.wait(timedelta(days=1))
    assert clock.now() in (hands.wall, START - timedelta(days=39))
    hands.wait(timedelta(days=1))
    assert clock.now() == hands.wall


@given(st.lists(st.integers(-(10**10), 10**10), min_size=1), st.none() | st.integers(0, 10**12))
def test_every_id_is_behind_the_one_before_whatever_the_clock_does(steps, last):
    ids, now = Ids(None if last is None else f"{last:012x}" + 10 * "0"), START
    found = ["" if last is None else f"{last:012x}"]
    for step in steps:
        now = max(now + timedelta(milliseconds=step), datetime(1980, 1, 1, tzinfo=UTC))
        found.append(ids.next(now)[:12])
    assert found == sorted(set(found))


def test_a_clock_that_is_right_is_told_by_the_id():
    assert time_of(Ids().next(START)) == START


class Set(datetime):
    """The clock on the wall, which somebody sets."""

    wall = START

    @classmethod
    def now(cls, zone=None):
        return cls.wall


@pytest.mark.parametrize("restarted", [False, True])
def test_the_newest_pictures_are_kept_after_the_clock_was_set_back(model, tmp_path, monkeypatch, restarted):
    monkeypatch.setattr(models, "datetime", Set)
    monkeypatch.setattr(Set, "wall", START)
    with serving([model], tmp_path) as client:
        before = [client.post("/v1/inspect", files=image(png(seed))).json() for seed in range(4)]
        if not restarted:
            check_newest_stay(client, monkeypatch, before)
    if restarted:
        with serving([model], tmp_path) as client:
            check_newest_stay(client, monkeypatch, before)


def check_newest_stay(client, monkeypatch, before):
    monkeypatch.setattr(Set, "wall", START - 2 * HOUR)
    after = [client.post("/v1/inspect", files=image(png(seed))).json() for seed in range(4, 7)]
    assert [each["time"] for each in after] == 3 * [iso(START - 2 * HOUR)]
    store, pictures = client.service.store, client.service.pictures
    assert apply_retention(store, pictures, Retention(count=3), START) == 4
    found = client.get("/v1/inspections").json()["inspections"]
    assert [each["id"] for each in found] == [each["id"] for each in [*before, *after]][::-1]
    assert [each["images"] is not None for each in found] == 3 * [True] + 4 * [False]
    early = client.get("/v1/inspections", params={"until": iso(START - HOUR)}).json()["inspections"]
    assert [each["id"] for each in early] == [each["id"] for each in after[::-1]]


def test_a_clock_40_days_ahead_removes_no_picture_of_the_last_30_days(model, tmp_path):
    with serving([model], tmp_path, retention=Retention(days=30)) as client:
        kept = client.post("/v1/inspect", files=image()).json()
        hands = Hands()
        hands.wall = datetime.now(UTC)
        clock = hands.cautious()
        hands.wall += timedelta(days=40)
        store, pictures = client.service.store, client.service.pictures
        assert apply_retention(store, pictures, Retention(days=30), clock.now()) == 0
        assert client.get(kept["images"]["original"]).status_code == 200


@pytest.mark.parametrize("believed", [False, True])
def test_a_service_that_starts_40_days_later_waits_until_that_is_believed(model, tmp_path, monkeypatch, believed):
    monkeypatch.setattr(models, "datetime", Set)
    monkeypatch.setattr(Set, "wall", datetime.now(UTC) - timedelta(days=40))
    with serving([model], tmp_path) as client:
        kept = client.post("/v1/inspect", files=image()).json()
    runs, apply = [], service.apply_retention
    monkeypatch.setattr(service, "TIDY_SECONDS", 0.01)
    monkeypatch.setattr(service, "apply_retention", lambda *given: runs.append(apply(*given)))
    if believed:
        monkeypatch.setattr("nfad.service.clock.BELIEVED_AFTER", 0.0)
    with serving([model], tmp_path, retention=Retention(days=30)) as client:
        while len(runs) < 3:
            time.sleep(0.01)
        assert sum(runs) == believed
        assert client.get(kept["images"]["original"]).status_code == (404 if believed else 200)
