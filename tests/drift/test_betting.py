import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from nfad.drift.betting import FLAGGED, MOST, SHIFTS, Above, Tail, shift
from nfad.errors import NfadError


@pytest.mark.parametrize("bet", range(SHIFTS))
def test_a_bet_on_a_uniform_p_value_returns_its_stake_on_average(bet):
    mean, error = integrate.quad(lambda p: shift(np.array([p]))[0, bet], 0, 1, points=[0.001, 0.999], limit=200)
    assert mean == pytest.approx(1, abs=1e-3 + error)


@given(st.floats(0, 1))
def test_returns_are_finite_and_never_ruin(p):
    assert np.isfinite(shift(np.array([p]))).all() and (shift(np.array([p])) > 0).all()


def test_whichever_way_values_move_some_bet_grows():
    random = np.random.default_rng(0)
    for moved in (random.beta(0.5, 1, 2000), random.beta(1, 0.5, 2000), random.beta(0.4, 0.4, 2000)):
        assert np.log(shift(moved)).mean(axis=0).max() > 0.05
    assert np.log(shift(random.random(2000))).mean(axis=0).max() < 0


@given(st.lists(st.floats(0.001, 0.9), min_size=1, max_size=3))
def test_tail_bets_are_fair(depths):
    bets = Tail(tuple(depths))
    each = np.repeat(sorted(set(depths)), 2)
    inside, outside = bets(np.array([0.0, 1.0]))
    assert len(inside) == len(bets) == len(each)
    assert each * inside + (1 - each) * outside == pytest.approx(np.ones(len(each)))
    assert (inside > 1).all()


def test_a_depth_is_a_share():
    with pytest.raises(NfadError, match="a share between 0 and 1"):
        Tail((0.05, 1.0))


@given(st.floats(0.001, 0.99), st.floats(0, 1), st.sampled_from([FLAGGED, MOST]))
def test_only_more_than_the_bound_can_win_a_bet_on_a_line(bound, share, excess):
    inside, outside = Above(bound, excess)(np.array([True, False]))
    mean = share * inside + (1 - share) * outside
    assert (outside > 0).all() and (inside > 1).all()
    assert (mean <= 1 + 1e-9).all() if share <= bound else (mean >= 1 - 1e-9).all()
