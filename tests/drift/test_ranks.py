import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from nfad.drift.ranks import SIDE, Ranks, cells, rank_errors

numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.floats(-4, 4))


@given(st.lists(numbers, min_size=2, max_size=40))
def test_cells_keep_the_order(values):
    found = cells(np.sort(np.array(values)))
    assert (np.diff(found) >= 0).all()
    assert found.min() >= 0 and found.max() < SIDE**2


@given(st.floats(2.0**-15, 2.0**15), st.sampled_from([-1, 1]))
def test_values_a_thousandth_apart_are_told_apart(value, sign):
    assert len(set(cells(sign * np.array([value, value * (1 + 2.0**-9)])).tolist())) == 2


def slow(history, at, chance):
    """The definition, value by value."""
    above, equal = sum(h > at for h in history), sum(h == at for h in history)
    return (above + chance * (equal + 1)) / (len(history) + 1)


@given(st.data(), st.integers(1, 12), st.integers(1, 3))
def test_p_values_are_those_of_the_definition_however_the_parts_come(data, parts, streams):
    of = st.sampled_from([0, 1, SIDE - 1, SIDE, 5 * SIDE, SIDE**2 - 1])
    at = data.draw(hnp.arrays(np.int64, (parts, streams), elements=of))
    chosen = data.draw(hnp.arrays(bool, (parts, streams)))
    chance = data.draw(hnp.arrays(np.float64, (parts, streams), elements=st.floats(0.01, 1)))
    cut = data.draw(st.integers(0, parts))
    ranks, found = Ranks(streams), []
    for some in (slice(0, cut), slice(cut, parts)):
        found.append(ranks.p_values(at[some], chosen[some], chance[some]))
        ranks.count(at[some], chosen[some])
    expected = [
        [slow([at[e, s] for e in range(p) if chosen[e, s]], at[p, s], chance[p, s]) for s in range(streams)]
        for p in range(parts)
    ]
    assert np.concatenate(found) == pytest.approx(np.array(expected))
    ranks.count(at, chosen, -1)
    assert ranks.p_values(at[:1], chosen[:1], chance[:1]) == pytest.approx(chance[:1])


def test_p_values_are_independent_and_uniform_while_nothing_changes():
    """Ten normals and twenty parts, many tied; a fixed set of normals would fail the second half of this."""
    random = np.random.default_rng(0)
    runs, normals, parts = 2000, 10, 20
    at = cells(random.geometric(0.2, size=(normals + parts, runs)).astype(float))
    every = np.ones_like(at, dtype=bool)
    found = np.empty((parts, runs))
    for run in range(0, runs, 100):  # a stream a run
        ranks, some = Ranks(100), slice(run, run + 100)
        ranks.count(at[:normals, some], every[:normals, some])
        chance = 1 - random.random((parts, 100))
        found[:, some] = ranks.p_values(at[normals:, some], every[normals:, some], chance)
    assert min(stats.kstest(row, "uniform").pvalue for row in found) > 0.001 / parts
    scale = np.sqrt(12 * parts)  # so that the sum of the p-values has variance 1 if they are independent
    sums = (found - 0.5).mean(axis=0) * scale
    assert stats.kstest(sums, "norm").pvalue > 0.001
    fixed = (at[:normals, None] > at[None, normals:]).mean(axis=0)
    assert ((fixed - fixed.mean()).mean(axis=0) * scale).var() > 2


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_rank_errors_are_those_of_mann_and_whitney(before, after):
    before, after = np.array(before, dtype=float), np.array(after, dtype=float)
    wins = stats.mannwhitneyu(after, before, method="asymptotic").statistic
    spread = np.sqrt(len(before) * len(after) * (len(before) + len(after) + 1) / 12)
    assert rank_errors(before, after) == pytest.approx((wins - len(before) * len(after) / 2) / spread)
    assert rank_errors(before, after) == pytest.approx(-rank_errors(after, before))
    assert rank_errors(before, after[:0]) == rank_errors(before[:0], after) == 0
