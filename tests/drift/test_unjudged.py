"""Photos that are not judged: no part's evidence, and not passed over in silence."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nfad.drift import DriftMonitor, numbers_of
from nfad.drift.state import STEADY, UNJUDGED
from nfad.drift.unjudged import TOLERATED, Unjudged
from nfad.errors import NfadError
from nfad.records import InspectionRecord
from nfad.verdict.prediction import Outputs, Rule
from nfad.verdict.threshold import Threshold

SCORES = np.linspace(1, 3, 20)
RULE = Rule.at(Threshold(SCORES, SCORES), 0.1)
NUMBERS = {"participation": 0.5, "nuisance_fraction": 0.1, "nuisance_by_family": {"photometric": 0.1}}


def prediction(score=2.0, strangeness=0.5):
    view = np.zeros((4, 4), np.float32)
    out = Outputs(score, score, view, view, **NUMBERS, strangeness=strangeness, strange="does not look like the part")
    return RULE(out)


def record(given):
    return InspectionRecord.of(
        given, id="1", time="", image="", sha256="", model="", model_sha256="", false_alarm_rate=0.1, milliseconds=1
    )


@pytest.mark.parametrize("given", [prediction(strangeness=1.5), prediction(math.nan), prediction(math.inf)])
def test_what_is_not_judged_has_no_numbers_by_its_prediction_and_by_its_record(given):
    assert numbers_of(given) is None and numbers_of(record(given)) is None
    judged = prediction()
    assert numbers_of(judged) == numbers_of(record(judged)) and numbers_of(judged)["score"] == 2


def test_parts_are_judged_as_if_the_others_had_not_come(line):
    parts = line(1).parts(260, light=1.0)
    mixed = [each for number, part in enumerate(parts) for each in ([None] * (number % 40 == 0) + [part])]
    alone, among = (DriftMonitor.replay(line(2).normals(40), given).state() for given in (parts, mixed))
    assert (among.parts, among.photos) == (260, 267) and (alone.parts, alone.photos) == (260, 260)
    assert not among.not_judged.alarm and among.verdict == alone.verdict
    assert among.sentence == f"{alone.sentence} Not judged, and so left out: 7 of 267 photos."
    same = {"photos": 0, "sentence": "", "not_judged": alone.not_judged}
    assert replace(among, **same) == replace(alone, **same)


def test_a_covered_camera_is_told_within_a_few_photos_and_over_once_it_sees_again(line):
    here = line(3)
    monitor = DriftMonitor.replay(here.normals(40), here.parts(300))
    assert monitor.state().verdict == STEADY
    monitor.extend(8 * [None])
    told = monitor.state()
    assert told.verdict == UNJUDGED and told.alarm and told.parts == 300 and told.photos == 308
    assert told.not_judged.since == 301 and told.not_judged.level >= 1 and told.since is None
    assert told.sentence.startswith("Many photos are not judged since about photo 301: 8 of 8 photos are not judged")
    assert "Of those judged: steady: 300 parts" in told.sentence
    monitor.extend(here.parts(40))
    told = monitor.state()
    assert told.verdict == STEADY and not told.not_judged.alarm and told.not_judged.level < 1
    assert "8 of 348 photos" in told.sentence


def test_a_line_on_which_nothing_was_ever_judged_is_not_steady(line):
    monitor = DriftMonitor.replay(line(4).normals(20), 20 * [None])
    told = monitor.state()
    assert told.verdict == UNJUDGED and told.parts == 0 and "steady" not in told.sentence.lower()
    assert told.blocks == ()


@pytest.mark.parametrize(("rate", "run_length"), [(0.05, 500), (0.2, 200)])
def test_false_alarms_are_as_rare_as_stated_where_as_many_are_not_judged_as_is_tolerated(rate, run_length):
    runs, span = 300, 150
    random, alarms = np.random.default_rng(5), 0
    for _ in range(runs):
        watching, alarm = Unjudged(rate, run_length), False
        for flag in random.random(span) < TOLERATED:
            watching.extend([bool(flag)])
            alarm |= watching.answer().alarm
        alarms += alarm
    bound = rate + span / (2 * run_length)
    assert 0 < alarms <= runs * bound + 4 * math.sqrt(runs * bound * (1 - bound))


@given(st.lists(st.booleans(), max_size=120), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_how_photos_are_cut_into_calls_makes_no_difference(flags, size):
    at_once, cut = Unjudged(0.01, 100), Unjudged(0.01, 100)
    at_once.extend(flags)
    for first in range(0, len(flags), size):
        cut.extend(flags[first : first + size])
    assert at_once.answer() == cut.answer() and at_once.photos == cut.photos == len(flags)


def test_a_part_that_is_refused_leaves_no_trace_among_the_photos(line):
    monitor = DriftMonitor(line(6).normals(20))
    with pytest.raises(NfadError, match="finite"):
        monitor.extend([None, dict.fromkeys(line(6).normals(1), math.nan)])
    assert monitor.state().photos == 0


def test_too_little_for_an_alarm_is_said_to_be():
    watching = Unjudged(0.01, 1e9)
    watching.extend(20 * [False] + 4 * [True])
    told = watching.answer()
    assert not told.alarm and told.effect.startswith("4 of 24 photos are not judged, 16.7%")
    watching = Unjudged(0.01, 1e9)
    watching.extend(5 * [False, False, False, True])
    assert not watching.answer().alarm and watching.answer().effect.endswith("not yet enough for an alarm")
    watching = Unjudged(0.01, 1e9)
    assert watching.answer().effect == ""
    watching.extend([False])
    assert "is judged" in watching.answer().effect
