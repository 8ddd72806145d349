import dataclasses
import math
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import part, parts, tiny
from scipy import stats

from nfad import Detector
from nfad.drift import DriftMonitor, monitor, numbers_of
from nfad.drift.state import ABSORBED, ABSORBED_AND_DEFECTS, DEFECTS, STEADY, UNABSORBED, UNSETTLED
from nfad.errors import NfadError
from nfad.stats.conformal import conformal_threshold
from nfad.vision.images import to_view
from nfad.vision.interventions import affine


def feed(one, parts):
    one.extend(parts)
    return one


def verdicts(line, normals, before, after, runs=15, **changes):
    """What is said so many parts after the change."""
    found = []
    for run in range(runs):
        here = line(run, normals, before)
        start = here.normals(normals)
        found.append(DriftMonitor.replay(start, here.parts(before) + here.parts(after, **changes)).state().verdict)
    return Counter(found)


@pytest.mark.parametrize(("rate", "normals"), [(0.05, 20), (0.2, 8)])
def test_false_alarms_are_as_rare_as_stated(line, rate, normals):
    """Of everything together, with few normals; the sum of two rates, P ≤ rate + m / (2 run_length)."""
    runs, span, run_length = 80, 150, 500
    alarms = 0
    for run in range(runs):
        here = line(run, normals)
        watching = DriftMonitor(here.normals(normals), rate=rate, run_length=run_length)
        alarms += any(feed(watching, here.parts(50)).state().alarm for _ in range(span // 50))
    bound = rate + span / (2 * run_length)
    assert alarms <= runs * bound + 4 * math.sqrt(runs * bound * (1 - bound))


def test_a_fixed_set_of_normals_would_break_the_promise(line):
    """Why parts join the history: against 20 normals alone, 2000 good parts look like another distribution."""
    here = line(3)
    normals, good = here.normals(20)["score"], [each["score"] for each in here.parts(2000)]
    fixed = ((normals[:, None] > np.array(good)).sum(axis=0) + here.random.random(2000)) / 21
    assert stats.kstest(fixed, "uniform").pvalue < 1e-6
    assert DriftMonitor.replay(line(3).normals(20), line(4).parts(2000)).state().verdict == STEADY


def test_a_new_lamp_that_the_filter_absorbs(line):
    assert verdicts(line, 100, 200, 100, light=2.0)[ABSORBED] >= 13
    here = line(0)
    state = DriftMonitor.replay(here.normals(100), here.parts(200) + here.parts(100, light=2.0)).state()
    assert state.nuisance.alarm and not state.bulk.alarm and not state.tail.alarm
    assert set(state.nuisance.moved) == {"nuisance:photometric", "unfiltered_score"}
    assert 180 <= state.since <= 210
    assert "illumination-like" in state.sentence or "without the filter" in state.sentence


@pytest.mark.parametrize("far", [1.5, -1.5])
def test_what_the_filter_does_not_absorb(line, far):
    """Lower scores too, where nothing shows more nuisance than before."""
    assert verdicts(line, 100, 200, 100, unabsorbed=far)[UNABSORBED] >= 13


def test_scores_that_fall_under_a_new_lamp_are_absorbed(line):
    """As darker photos do: the filter takes off more than the lamp has brought, and not one part more is flagged."""
    assert verdicts(line, 100, 200, 100, light=3.0, unabsorbed=-1.5)[ABSORBED] >= 13
    here = line(0)
    stream = here.parts(200) + here.parts(100, light=3.0, unabsorbed=-1.5)
    state = DriftMonitor.replay(line(1).normals(100), stream).state()
    assert state.bulk.alarm and not state.tail.alarm and "score lower than at the fit" in state.sentence
    assert state.since == state.nuisance.since
    assert verdicts(line, 100, 200, 100, light=3.0, unabsorbed=1.5)[ABSORBED] == 0


def test_defects_under_a_lamp_that_lowers_scores_are_not_settled(line):
    found = verdicts(line, 100, 200, 200, light=3.0, unabsorbed=-1.5, defects=0.3)
    assert found[UNSETTLED] >= 12 and found[ABSORBED] == 0


def test_where_nearly_all_parts_are_flagged_it_is_the_line(line):
    assert verdicts(line, 100, 200, 100, unabsorbed=6.0)[UNABSORBED] >= 13


def test_where_most_parts_are_flagged_it_may_be_the_line_or_defects(line):
    assert verdicts(line, 100, 200, 100, defects=0.75)[UNSETTLED] >= 11
    here = line(2)
    state = DriftMonitor.replay(here.normals(100), here.parts(200) + here.parts(100, defects=0.75)).state()
    assert state.tail.alarm and state.tail.level >= 1 and state.tail.since == state.since
    assert not state.bulk.alarm and state.bulk.level is None and "cannot be told" in state.bulk.effect
    assert "More than half of the parts are flagged" in state.sentence


def test_more_defects_leave_the_bulk_alone(line):
    found = verdicts(line, 100, 500, 200, defects=0.2)
    assert found[DEFECTS] >= 12 and found[UNABSORBED] == found[ABSORBED] == 0
    here = line(1)
    state = DriftMonitor.replay(here.normals(100), here.parts(500) + here.parts(200, defects=0.2)).state()
    assert state.tail.alarm and not state.bulk.alarm
    assert "at a stated rate of 1.0%" in state.sentence and "ordinary parts score as before" in state.sentence


def test_both_at_once_are_told_apart(line):
    found = verdicts(line, 100, 500, 200, defects=0.25, light=2.0)
    assert found[ABSORBED_AND_DEFECTS] >= 12 and found[DEFECTS] == found[UNABSORBED] == 0


@pytest.mark.parametrize(("normals", "share"), [(12, 0.9), (20, 0.64), (100, 0.3)])
def test_flags_count_although_they_were_there_from_the_first_part_on(line, normals, share):
    """Ranks among all before them forget what has always been so; the line of the threshold does not."""
    for run in range(5):
        here = line(run, normals)
        state = DriftMonitor.replay(here.normals(normals), here.parts(200, defects=share)).state()
        assert state.tail.alarm and state.tail.level >= 1 and "not yet" not in state.tail.effect
        assert state.verdict not in (STEADY, ABSORBED)


def test_a_change_after_many_good_parts_is_found_as_quickly(line):
    here = line(5)
    watching = DriftMonitor.replay(here.normals(30), here.parts(5000))
    assert watching.state().verdict == STEADY
    state = feed(watching, here.parts(40, light=2.0)).state()
    assert state.verdict == ABSORBED and 4980 <= state.since <= 5020


def test_drift_does_not_become_normal_and_its_end_is_told(line):
    here = line(6)
    watching = DriftMonitor.replay(here.normals(50), here.parts(200) + here.parts(1500, light=2.5))
    assert watching.state().verdict == ABSORBED and watching.state().since <= 210
    assert feed(watching, here.parts(200)).state().verdict == STEADY


def test_slow_drift_is_found(line):
    here = line(7)
    slow = [here.parts(1, light=3 * i / 1000)[0] for i in range(1000)]
    assert DriftMonitor.replay(here.normals(50), slow).state().verdict == ABSORBED


@settings(max_examples=15)
@given(seed=st.integers(0, 999), count=st.integers(0, 130), cuts=st.lists(st.integers(0, 130), max_size=3))
def test_however_the_parts_come_the_state_is_the_same(seed, count, cuts):
    from drift.conftest import Line

    here = Line(seed)
    normals, stream = here.normals(12), here.parts(count // 2) + here.parts(count - count // 2, light=3.0, defects=0.3)
    whole = DriftMonitor.replay(normals, stream)
    one = DriftMonitor(normals)
    for i, numbers in enumerate(stream):
        one.update(numbers)
        if i in cuts:
            one.state()  # asking changes nothing
    found, expected = dataclasses.asdict(one.state()), dataclasses.asdict(whole.state())
    for question in ("nuisance", "bulk", "tail"):  # vectors and scalars may round their powers differently
        assert found[question].pop("level") == pytest.approx(expected[question].pop("level"), rel=1e-9)  # or both None
    assert found == expected


def test_only_ranks_count(line):
    """Twice every number is the same story: doubling moves no value within its doubling's cells."""
    here = line(8)
    normals, stream = here.normals(40), here.parts(100) + here.parts(60, unabsorbed=2.0)
    once = DriftMonitor.replay(normals, stream)
    doubled = [{name: 2 * value for name, value in each.items()} for each in (normals, *stream)]
    twice = DriftMonitor.replay(doubled[0], doubled[1:])
    for question in ("nuisance", "bulk", "tail"):
        assert getattr(once.state(), question).level == getattr(twice.state(), question).level
    assert once.state().verdict == twice.state().verdict


def test_the_settings_are_heard(line):
    here = line(9)
    normals, stream = here.normals(50), here.parts(100) + here.parts(25, light=1.5)
    levels = [DriftMonitor.replay(normals, stream, run_length=n).state().nuisance.level for n in (100, 10_000)]
    assert levels[0] > levels[1] > 0
    assert DriftMonitor(normals, flag_rate=0.1).state().normals.flagged == 4  # ⌈51 · 0.9⌉ = 46 are not
    assert DriftMonitor.replay(normals, stream, seed=1).state().nuisance.level != levels[1]


def test_blocks_are_quantiles_of_their_parts(line):
    here = line(10)
    normals, stream = here.normals(30), here.parts(120, defects=0.2)
    state = DriftMonitor.replay(normals, stream).state()
    assert [(block.first, block.parts) for block in state.blocks] == [(1, 50), (51, 50), (101, 20)]
    scores = np.array([numbers["score"] for numbers in stream[50:100]])
    assert state.blocks[1].median["score"] == np.median(scores)
    assert state.blocks[1].high["score"] == np.quantile(scores, 0.9)
    assert state.blocks[1].flagged == (scores > conformal_threshold(normals["score"], 1 / 31)).sum()
    assert state.normals.median["participation"] == np.median(normals["participation"])


def test_memory_is_bounded(line, monkeypatch):
    monkeypatch.setattr(monitor, "BLOCKS", 3)
    here = line(11)
    state = DriftMonitor.replay(here.normals(30), here.parts(2000)).state()
    assert [block.first for block in state.blocks] == [1851, 1901, 1951]
    assert state.tail.effect.startswith("flagged") and f"of {monitor.RECENT} parts" in state.tail.effect


def test_ten_thousand_parts_replay_quickly(line):
    here = line(12)
    normals, stream = here.normals(100), here.parts(10_000)
    start = time.process_time()
    DriftMonitor.replay(normals, stream)
    assert time.process_time() - start < 3  # a third of a second on an idle core


@pytest.mark.parametrize("normals", [1, 2, 3, 5])
def test_very_few_normals_are_weak_but_valid(line, normals):
    here = line(13, normals)
    assert DriftMonitor.replay(here.normals(normals), here.parts(300)).state().verdict == STEADY


def test_parts_that_are_all_alike_alarm_nobody():
    normals = {"score": [1.0] * 20, "unfiltered_score": [1.0] * 20, "nuisance:sensor": [0.0] * 20}
    same = {"score": 1.0, "unfiltered_score": 1.0, "nuisance:sensor": 0.0}
    state = DriftMonitor.replay(normals, [same] * 300).state()
    assert state.verdict == STEADY and "not yet" not in state.nuisance.effect + state.bulk.effect


def test_before_the_first_part(line):
    state = DriftMonitor(line(0).normals(20)).state()
    assert (state.verdict, state.parts, state.since, state.blocks) == (STEADY, 0, None, ())


def test_bad_input_is_told_and_leaves_no_trace(line):
    here = line(14)
    normals, [good] = here.normals(20), here.parts(1)
    watching = DriftMonitor(normals)
    for wrong, message in (
        ({"score": 1.0}, "has no 'unfiltered_score'"),
        (good | {"score": float("nan")}, "score of part 1 is nan"),
        (good | {"nuisance:background": None}, "nuisance:background of part 1 is nan"),
    ):
        with pytest.raises(NfadError, match=message):
            watching.update(wrong)
    assert feed(watching, [good]).state() == DriftMonitor.replay(normals, [good]).state()
    for wrong, message in (
        ({"score": [1.0]}, "lack unfiltered_score"),
        ({"score": [], "unfiltered_score": []}, "one value an image"),
        ({"score": [1.0], "unfiltered_score": [1.0, 2.0]}, "one value an image"),
        ({"score": [1.0], "unfiltered_score": [math.inf]}, "not finite"),
    ):
        with pytest.raises(NfadError, match=message):
            DriftMonitor(wrong)
    for settings_ in ({"rate": 0}, {"rate": 1}, {"flag_rate": 2}, {"run_length": 0}):
        with pytest.raises(NfadError, match="must lie between|at least 1"):
            DriftMonitor(normals, **settings_)


def test_no_network_is_loaded_to_tell_drift():
    code = "import sys, nfad.drift; assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture(scope="module")
def detector():
    return Detector.fit(parts(40), tiny())


def test_a_lamp_that_fades_in_front_of_a_real_detector(detector):
    watching = DriftMonitor(detector.normals, flag_rate=detector.false_alarm_rate)
    feed(watching, map(numbers_of, detector.predict_stream(parts(60, 1000))))
    assert watching.state().verdict == STEADY

    def faded(index):
        view = to_view(part(2000 + index), 64, None)[0][None]
        nowhere = torch.zeros((1, 1, *view.shape[2:]), dtype=torch.bool)
        return affine(1 - 0.6 * index / 60, 0.0, view, nowhere, torch.Generator())

    feed(watching, [numbers_of(detector.predict_views(faded(index))[0]) for index in range(60)])
    state = watching.state()
    assert state.verdict in (ABSORBED, UNABSORBED, UNSETTLED)  # the teacher is untrained: either may be true
    assert state.nuisance.moved[0] == "nuisance:photometric" and "illumination-like" in state.sentence
    assert 55 <= state.nuisance.since <= 100


def test_broken_parts_in_front_of_a_real_detector(detector):
    some = [part(5000 + i, defect=i % 3 == 0) for i in range(120)]
    state = DriftMonitor.replay(detector.normals, map(numbers_of, detector.predict_stream(some))).state()
    assert state.tail.alarm and state.verdict in (DEFECTS, UNSETTLED, ABSORBED_AND_DEFECTS)
