import numpy as np
import pytest

from nfad.paper.estimates import Estimate, entry, estimate


def result(same: float, dark: float, spread: float = 0.01, seed: int = 0) -> dict:
    """A cell's result with two domains, as `measure` makes them."""
    random = np.random.default_rng(seed)
    values = {"same": same, "dark": dark, "all": 0.5}
    arm = {domain: {"i_auroc": value, "i_ap": value} for domain, value in values.items()}
    return {
        "rows": [{"domain": domain, "arms": {"filtered": arm[domain]}} for domain in values],
        "resamples": {
            domain: {"filtered": {"i_auroc": (value + spread * random.normal(size=400)).tolist()}}
            for domain, value in values.items()
        },
    }


def test_the_mean_is_over_domains_then_categories_in_per_cent():
    both = estimate([result(0.9, 0.7), result(0.6, 0.6)], "filtered", "i_auroc")
    assert both.value == pytest.approx(70)
    assert estimate([result(0.9, 0.7)], "filtered", "i_auroc", "dark").value == pytest.approx(70)


def test_a_mean_of_two_independent_domains_is_surer_than_either():
    one = estimate([result(0.9, 0.7)], "filtered", "i_auroc", "same")
    mean = estimate([result(0.9, 0.7)], "filtered", "i_auroc")
    width = [high - low for low, high in (one.interval, mean.interval)]
    assert width[1] / width[0] == pytest.approx(2**-0.5, rel=0.2)


def test_a_metric_without_resamples_says_nothing_of_its_spread():
    found = estimate([result(0.9, 0.7)], "filtered", "i_ap")
    assert found.value == pytest.approx(80) and np.isnan(found.interval).all()
    assert not entry("sheet", "row", "i_ap", found, found).strong


def test_only_a_paired_difference_beyond_its_interval_is_strong():
    noise = np.random.default_rng(0).normal(size=400)
    base = Estimate(80, 80 + 5 * noise)
    # Shared noise cancels: half a point is certain though each value is uncertain by ten.
    assert entry("s", "r", "i_auroc", Estimate(80.5, 80.5 + 5 * noise), base).strong
    other = np.random.default_rng(1).normal(size=400)
    assert not entry("s", "r", "i_auroc", Estimate(80.5, 80.5 + 5 * other), base).strong
    assert not entry("s", "r", "i_auroc", base, base).strong


def test_a_domain_where_the_metric_is_undefined_makes_the_mean_undefined():
    missing = result(0.9, 0.7)
    missing["rows"][1]["arms"]["filtered"]["i_auroc"] = None
    assert np.isnan(estimate([missing], "filtered", "i_auroc").value)
