import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.errors import NfadError
from nfad.stats.conformal import conformal_threshold, p_value, smallest_rate
from nfad.verdict.threshold import Threshold

scores = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200)


@given(scores, st.floats(0.001, 0.999))
def test_flags_at_most_the_promised_share_of_the_held_out_and_the_next(values, rate):
    if rate < smallest_rate(len(values)):
        with pytest.raises(NfadError, match="support a false-alarm rate"):
            conformal_threshold(values, rate)
        return
    threshold = conformal_threshold(values, rate)
    above = sum(value > threshold for value in values)
    # Of the n+1 exchangeable places, the next score exceeds the threshold in at most this many.
    assert (above + 1) / (len(values) + 1) <= rate + 1e-9 or above == 0
    assert threshold in values


def test_the_rate_holds_on_fresh_normals():
    random = np.random.default_rng(0)
    alarms = []
    for _ in range(400):
        held, fresh = random.gamma(2.0, size=60), random.gamma(2.0, size=50)
        alarms.append((fresh > conformal_threshold(held, 0.1)).mean())
    assert abs(np.mean(alarms) - 0.1) < 4 * np.std(alarms) / math.sqrt(len(alarms)) + 1 / 61


@given(scores, st.floats(-1e6, 1e6))
def test_a_p_value_below_the_rate_is_a_flag(values, score):
    rate = max(0.3, smallest_rate(len(values)))
    flagged = score > conformal_threshold(values, rate)
    assert flagged == (p_value(values, score) <= rate + 1e-9) or score in values


def test_a_score_that_is_no_number_has_no_p_value():
    assert math.isnan(p_value([1.0, 2.0], math.nan))


def test_too_few_normals_use_the_smallest_rate_they_support():
    held = Threshold(tuple(range(19)), tuple(range(19)))
    assert held.smallest_rate == 1 / 20
    assert held.supported(0.01) == 1 / 20
    assert held.at(0.01) == held.at(0.05) == (18.0, 18.0)
    assert held.at(0.5)[0] < 18


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5])
def test_a_rate_is_between_0_and_1(rate):
    with pytest.raises(NfadError, match="between 0 and 1"):
        Threshold((1.0,), (1.0,)).supported(rate)


@given(scores.filter(lambda values: np.ptp(values) > 0), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_the_share_of_the_excess_lies_between_none_and_all_of_it(values, score, unfiltered_score):
    held = Threshold(tuple(values), tuple(values))
    share = held.excess_filtered(score, unfiltered_score)
    if unfiltered_score <= np.median(values):
        assert math.isnan(share)
    else:
        assert 0 <= share <= 1
        assert share == 1 or score > np.median(values)
        assert share == 0 or score < unfiltered_score


def test_half_of_the_excess():
    held = Threshold((1.0, 2.0, 3.0), (2.0, 4.0, 6.0))
    assert held.excess_filtered(5.0, 10.0) == 0.5  # 3 of 6 are left
    assert held.excess_filtered(1.0, 10.0) == 1 and held.excess_filtered(9.0, 10.0) == 0
