import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad import NfadError
from nfad.stats.intervals import rate_interval
from nfad.stats.verdicts import count_verdicts, verdict_error

images = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=40)


def columns(rows):
    return np.array(rows, dtype=bool).reshape(-1, 3).T


def slow(rows):
    """Part by part, as one would count on paper."""
    good = bad = false_alarms = passed = 0
    for is_bad, flagged, judged in rows:
        if is_bad:
            bad += 1
            if judged and not flagged:
                passed += 1
        else:
            good += 1
            if judged and flagged:
                false_alarms += 1
    return (false_alarms / good + passed / bad) / 2 if good and bad else math.nan


@given(images)
def test_the_verdict_error_is_what_one_counts_by_hand(rows):
    assert verdict_error(*columns(rows)) == pytest.approx(slow(rows), nan_ok=True)


@given(images)
def test_every_part_is_counted_once(rows):
    labels, flagged, judged = columns(rows)
    found = count_verdicts(labels, flagged, judged)
    assert found.passed.high == rate_interval(int((judged & ~flagged & labels).sum()), int(labels.sum())).high
    for kind, caught, unjudged in (
        (~labels, found.false_alarms, found.good_not_judged),
        (labels, found.detections, found.bad_not_judged),
    ):
        count = int(kind.sum())
        passed = int((judged & ~flagged)[kind].sum())
        for share, hits in ((caught, (judged & flagged)[kind].sum()), (unjudged, (~judged)[kind].sum())):
            expected = rate_interval(int(hits), count)
            assert (share.low, share.high) == (expected.low, expected.high)
        if count:
            assert caught.value + unjudged.value + passed / count == pytest.approx(1)


@given(images, st.data())
def test_a_bad_part_that_is_no_longer_judged_is_never_passed_and_a_good_one_never_flagged(rows, data):
    labels, flagged, judged = columns(rows)
    if not len(labels) or labels.all() or not labels.any():
        return
    place = data.draw(st.integers(0, len(labels) - 1))
    fewer = judged.copy()
    fewer[place] = False
    assert verdict_error(labels, flagged, fewer) <= verdict_error(labels, flagged, judged)
    before, after = (count_verdicts(labels, flagged, each) for each in (judged, fewer))
    refused = (before.bad_not_judged, after.bad_not_judged)
    refused = refused if labels[place] else (before.good_not_judged, after.good_not_judged)
    assert (refused[1].value > refused[0].value) == bool(judged[place])  # what the error gains is told there


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(NfadError, match="as many"):
        verdict_error([True], [True, False], [True])


def test_nothing_given_is_changed():
    labels, flagged, judged = np.array([0, 1], bool), np.array([1, 1], bool), np.array([0, 1], bool)
    count_verdicts(labels, flagged, judged)
    assert flagged.tolist() == [True, True] and judged.tolist() == [False, True]
