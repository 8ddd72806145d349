import re
from dataclasses import replace

import numpy as np
import pytest

from nfad.drift import DriftMonitor, words
from nfad.drift.state import ABSORBED, SHIFTED, STEADY, UNABSORBED, UNSETTLED, VERDICTS, Answer
from nfad.stats.intervals import rate_interval


def test_a_family_is_named_and_measured_against_the_fit():
    found = words.nuisance_effect("nuisance:photometric", np.array([0.1, 0.1, 0.9]), np.array([0.23, 0.0, 5.0]))
    assert found == "the illumination-like share of the deviation is 2.3× the fit's median"
    assert "of none" not in words.nuisance_effect("nuisance:own", np.array([0.2]), np.array([0.1]))
    assert "own share" in words.nuisance_effect("nuisance:own", np.array([0.2]), np.array([0.1]))
    assert "0.1 at the median, none at the fit" in words.nuisance_effect("nuisance:x", np.zeros(3), np.full(3, 0.1))


def test_the_control_score_may_be_negative():
    found = words.nuisance_effect("unfiltered_score", np.array([-1.0]), np.array([2.5]))
    assert found == "the score without the filter is 2.5 at the median, -1 at the fit"


def test_bulk_by_hand():
    held_out = np.array([1.0, 2.0, 3.0, 4.0, 9.0])
    found = words.bulk_effect(8.0, held_out, np.array([1.0, 4.0, 5.0, 9.0]))
    assert found.startswith("ordinary parts score 4 at the median, 2.5 at the fit")
    assert found.endswith("75% of all parts are ordinary, 80% at the fit")
    assert words.bulk_effect(8.0, held_out, np.array([8.5, 9.0])).startswith("no part scores like an ordinary one")


def test_flagged_with_its_interval():
    interval = rate_interval(7, 100)
    seen = np.array([2.0] * 7 + [1.0] * 93)
    found = words.tail_effect(1.0, 0.01, True, seen)
    assert found.startswith("flagged 7.0% of 100 parts") and found.endswith("at a stated rate of 1.0%")
    assert f"{interval.low:.1%} to {interval.high:.1%}" in found


def test_what_is_plainly_off_without_an_alarm_is_said_to_be_too_little_for_one():
    seen = np.array([2.0] * 7 + [1.0] * 93)
    assert "not yet enough for an alarm" in words.tail_effect(1.0, 0.01, False, seen)
    assert "alarm" not in words.tail_effect(1.0, 0.06, False, seen)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_sentence_for_every_verdict(verdict):
    answers = [Answer(name, True, 2.0, 1200, ("score",), f"<{name}>") for name in ("nuisance", "bulk", "tail")]
    found = words.sentence(verdict, 1200, 2400, *answers, doubtful=False)
    assert found.endswith(".") and found[0].isupper()
    if verdict == "steady":
        assert "2,400 parts" in found and "<" not in found
    else:
        assert "since about part 1,200" in found
        assert ("<tail>" in found) == (verdict not in ("acquisition drift, absorbed by the filter", SHIFTED))
        assert ("<bulk>" in found) == (verdict == "drift the filter does not absorb")


def test_a_bulk_that_fell_is_told_calmly_and_with_its_price():
    nuisance, fell, quiet = (Answer(*given, ("score",), "<effect>") for given in (
        ("nuisance", True, 2.0, 90), ("bulk", True, 2.0, 96), ("tail", False, 0.1, None)
    ))  # fmt: skip
    found = words.sentence(ABSORBED, 90, 180, nuisance, fell, quiet, doubtful=True)
    assert "score lower than at the fit and no more are flagged" in found and "a weak defect may" in found
    assert "as before" not in found
    stands = words.sentence(ABSORBED, 90, 180, nuisance, replace(fell, alarm=False), quiet, doubtful=False)
    assert "score as before" in stands and "lower" not in stands


def test_where_most_parts_are_flagged_nothing_is_said_of_ordinary_ones():
    answers = [Answer(name, True, 2.0, 9, ("score",), f"<{name}>") for name in ("nuisance", "bulk", "tail")]
    crowd = Answer("bulk", False, None, None, (), words.CROWDED)
    found = words.sentence(UNSETTLED, 9, 90, answers[0], crowd, answers[2], doubtful=True)
    assert found.startswith("More than half of the parts are flagged since about part 9") and "look at some" in found
    assert "<tail>" in found and "ordinary" not in found
    assert "half" not in words.sentence(UNSETTLED, 9, 90, *answers, doubtful=True)


def test_no_two_sentences_contradict_each_other(line):
    """An effect beyond its interval comes with an alarm, or with words that say why there is none."""
    kinds = [{}, {"unabsorbed": 4.0}, {"defects": 0.5}, {"light": 3.0}]
    for run in range(24):
        here = line(run, 17)
        watching = DriftMonitor(here.normals(int(here.random.choice([8, 20, 60]))))
        for _ in range(6):
            watching.extend(here.parts(25, **here.random.choice(kinds)))
            state = watching.state()
            answers = (state.nuisance, state.bulk, state.tail)
            assert state.alarm == any(answer.alarm for answer in answers)
            assert (state.verdict == UNABSORBED) == state.bulk.alarm  # none of these changes lowers a score
            for answer in answers:
                if answer.level is None:
                    assert answer is state.bulk and not answer.alarm and state.verdict == UNSETTLED
                else:
                    assert answer.level >= 1 if answer.alarm else answer.level < 1
                assert not (answer.alarm and "not yet" in answer.effect)
            if found := re.search(r"interval ([\d.]+)% to .* rate of ([\d.]+)%", state.tail.effect):
                low, stated = map(float, found.groups())
                assert low <= stated or state.tail.alarm or "not yet" in state.tail.effect


def test_what_is_said_without_an_alarm_is_not_of_the_parts_under_the_last_one(line):
    here = line(15)
    watching = DriftMonitor.replay(here.normals(100), here.parts(200) + here.parts(60, unabsorbed=6.0))
    assert watching.state().tail.alarm
    watching.extend(here.parts(300))
    state = watching.state()
    assert state.verdict == STEADY
    flagged, parts = re.match(r"flagged ([\d.]+)% of (\d+) parts", state.tail.effect).groups()
    assert float(flagged) < 5 and int(parts) < 300
