import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nfad.errors import NfadError
from nfad.stats.intervals import rate_interval


def test_rates_by_hand():
    assert rate_interval(0, 10).as_dict() == pytest.approx({"value": 0.0, "low": 0.0, "high": 1 - 0.025**0.1})
    assert rate_interval(10, 10).as_dict() == pytest.approx({"value": 1.0, "low": 0.025**0.1, "high": 1.0})
    nothing = rate_interval(0, 0)
    assert math.isnan(nothing.value) and (nothing.low, nothing.high) == (0.0, 1.0)


@settings(max_examples=50, deadline=None)
@given(total=st.integers(1, 200), data=st.data(), level=st.floats(0.5, 0.999))
def test_a_rate_at_either_end_makes_the_hits_a_tail_event(total, data, level):
    hits = data.draw(st.integers(0, total))
    found = rate_interval(hits, total, level)
    tail = (1 - level) / 2
    assert found.low <= found.value <= found.high
    assert hits == 0 or stats.binom.sf(hits - 1, total, found.low) == pytest.approx(tail, rel=1e-6)
    assert hits == total or stats.binom.cdf(hits, total, found.high) == pytest.approx(tail, rel=1e-6)


def test_bad_arguments_are_refused():
    with pytest.raises(NfadError, match=r"hits must lie in 0..total; got 3 of 2"):
        rate_interval(3, 2)
    with pytest.raises(NfadError, match="level must lie between 0 and 1"):
        rate_interval(1, 2, level=95)
