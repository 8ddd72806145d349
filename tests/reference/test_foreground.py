import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad.reference.foreground import MIDDLE, middle_of, on_foreground
from nfad.vision.prior import foreground_tokens, foreground_weights


def random(*shape, seed):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("told", [foreground_weights, foreground_tokens])
def test_background_deviations_do_not_count(told):
    prior = torch.full((1, 8, 8), 0.2)
    prior[:, 2:6, 2:6] = 0.9
    deviation = 0.1 * random(1, 8, 8, seed=0).float()
    deviation[:, 0, 0], deviation[:, 3, 3] = 5.0, 4.0
    kept = on_foreground(deviation.flatten(1), told(prior.flatten(1))).reshape(8, 8)
    assert kept[0, 0] < 0.2 and kept[3, 3] == pytest.approx(4.0, rel=1e-3)


def plain_middle(values, weights, steps=20_000):
    """The mean of many quantiles."""
    order = np.argsort(values)
    upto = np.cumsum(weights[order]) / weights.sum()
    shares = 0.5 + MIDDLE * ((np.arange(steps) + 0.5) / steps - 0.5)
    return values[order][np.searchsorted(upto, shares)].mean()


@given(st.integers(1, 40), st.integers(0, 2**31))
def test_the_middle_is_the_mean_of_the_quantiles_about_the_median(tokens, seed):
    values, weights = random(1, tokens, seed=seed), random(1, tokens, seed=seed + 1)
    weights[:, 0] = 1
    found = float(middle_of(values, weights))
    # As many quantiles as there are tokens may lie on the wrong side of a step.
    assert found == pytest.approx(plain_middle(values[0].numpy(), weights[0].numpy()), abs=tokens / 20_000)


def test_the_middle_is_the_median_of_an_odd_part_and_minds_no_few_deviations():
    values = torch.arange(5.0)[None]
    assert float(middle_of(values, torch.ones(1, 5))) == pytest.approx(2.0)
    assert float(middle_of(values, torch.tensor([[0.0, 0, 1, 1, 1]]))) == pytest.approx(3.0)
    level = random(1, 100, seed=0)
    spiked = level.clone()
    spiked[:, :30] += 100
    assert float(middle_of(spiked, torch.ones(1, 100, dtype=torch.float64))) < 1


@given(st.integers(2, 100), st.integers(0, 2**31))
def test_a_map_moves_by_a_bounded_multiple_of_what_weights_and_values_move_by(tokens, seed):
    """Quantiles move as values do; as weights do, the distribution, over the MIDDLE that is looked at."""
    by = 1e-8
    values, weights = 10 * random(1, tokens, seed=seed), random(1, tokens, seed=seed + 1).round(decimals=1)
    weights[:, 0] = 1
    lifted = (weights + by * random(1, tokens, seed=seed + 2)).clamp(max=1)
    shift = on_foreground(values, lifted) - on_foreground(values, weights)
    bound = float(values.max() - values.min()) * (1 + 2 * tokens / float(weights.sum()) / MIDDLE)
    assert float(shift.abs().max()) <= 2 * by * bound
    other = on_foreground(values + by * (2 * random(1, tokens, seed=seed + 3) - 1), weights)
    assert float((other - on_foreground(values, weights)).abs().max()) <= 1.001 * by


def test_the_median_that_was_filled_in_jumped_with_a_token():
    """Of an even part, which one more token makes odd."""
    values, part = torch.tensor([[0.0, 1, 5, 6, 7]]), torch.tensor([[True, True, True, True, False]])
    more = part | True
    assert on_foreground(values, part)[0, 4] == 1 and on_foreground(values, more).sort().values[0, 2] == 5
    before, after = (middle_of(values, torch.tensor([[1.0, 1, 1, 1, last]])) for last in (0.0, 1e-6))
    assert abs(float(after - before)) < 1e-4


def test_an_image_whose_tokens_are_all_alike_keeps_its_map():
    values = random(1, 16, seed=0)
    assert torch.equal(on_foreground(values, foreground_weights(torch.full((1, 16), 0.3).double())), values)
