import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from references import operator as slow

from nfad.operator import gate, participation_ratio
from nfad.operator.gate import EPSILON, magnitude

EPS = torch.finfo(torch.float64).eps
maps = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
    # Discrepancies reach 2; rounding makes some slightly negative.
    elements=st.one_of(st.floats(1e-4, 2), st.just(0.0), st.floats(-1e-7, 0)),
)


@given(maps)
def test_participation_follows_its_definition(energies):
    found = participation_ratio(torch.from_numpy(energies)).numpy()
    wanted = np.array([slow.participation(row) for row in energies])
    assert np.abs(found - wanted).max() <= 4 * energies.shape[1] * EPS


@given(maps)
def test_participation_lies_between_one_token_and_all(energies):
    found = participation_ratio(torch.from_numpy(energies)).numpy()
    some = np.clip(energies, 0, None).sum(axis=1) > 0
    tokens = energies.shape[1]
    assert (found <= 1 + 4 * tokens * EPS).all()
    assert (found[some] >= (1 - 4 * tokens * EPS) / tokens).all()
    assert (found[~some] == 0).all()


@given(st.integers(1, 200), st.floats(1e-5, 2), st.data())
def test_participation_is_one_for_a_constant_and_one_over_p_for_a_spike(tokens, level, data):
    spike = torch.zeros(1, tokens, dtype=torch.float64)
    spike[0, data.draw(st.integers(0, tokens - 1))] = level
    constant = torch.full((1, tokens), level, dtype=torch.float64)
    assert float(participation_ratio(constant)) == pytest.approx(1, rel=4 * tokens * EPS)
    assert float(participation_ratio(spike)) == pytest.approx(1 / tokens, rel=8 * EPS)


@given(st.integers(1, 50), st.floats(-3, 3), st.integers(0, 2**31))
def test_participation_is_blind_to_scale(tokens, exponent, seed):
    energies = torch.rand(2, tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 1e-2
    scaled = participation_ratio(energies * 10**exponent)
    assert (scaled - participation_ratio(energies)).abs().max() <= 8 * tokens * EPS


def test_a_map_without_energy_takes_part_nowhere():
    silent = torch.zeros(1, 9, dtype=torch.float64)
    faint = torch.full((1, 9), (EPSILON / 9) ** 0.5 / 10, dtype=torch.float64)  # squares sum to ε/100
    assert float(participation_ratio(silent)) == 0
    assert float(participation_ratio(faint)) == pytest.approx(0.01, rel=1e-9)


@given(maps, st.floats(1e-3, 1))
def test_gate_lies_in_zero_one_and_is_full_from_the_median_on(energies, tau):
    spread = participation_ratio(torch.from_numpy(energies))
    found = gate(spread, tau)
    assert ((found >= 0) & (found <= 1)).all()
    assert torch.equal(found == 1, spread / tau >= 1)
    assert torch.equal(found[spread < tau], spread[spread < tau] / tau)
    assert torch.equal(found, gate(spread, torch.tensor(tau, dtype=torch.float64)))


def test_gate_opens_and_closes_with_tau():
    spread = torch.tensor([0.01, 0.5, 1.0])
    assert torch.equal(gate(spread, float("inf")), torch.zeros(3))
    assert torch.equal(gate(spread, 1e-30), torch.ones(3))
    assert gate(spread, 0.5).tolist() == pytest.approx([0.02, 1, 1], rel=4 * torch.finfo(torch.float32).eps)


@given(maps)
def test_magnitude_weighs_participation_by_the_mean_discrepancy(energies):
    found = magnitude(torch.from_numpy(energies)).numpy()
    wanted = [slow.participation(row) * np.clip(row, 0, None).mean() for row in energies]
    assert np.abs(found - wanted).max() <= 16 * energies.shape[1] * EPS


def test_magnitude_grows_with_scale_where_participation_does_not():
    energies = torch.rand(3, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(magnitude(3 * energies), 3 * magnitude(energies), rtol=64 * EPS, atol=0)
    assert torch.allclose(participation_ratio(3 * energies), participation_ratio(energies), rtol=64 * EPS, atol=0)
