import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from references import metrics as slow
from scipy import stats

from nfad.errors import NfadError
from nfad.evaluation import auroc
from nfad.evaluation.auroc import auroc_resamples, paired_interval, weighted_aurocs
from nfad.evaluation.metrics import image_metrics
from nfad.stats.intervals import percentiles


def auroc_interval(scores, labels, seed=0, samples=2000, level=0.95):
    """As `Tally` forms it."""
    return percentiles(image_metrics(scores, labels).auroc, auroc_resamples(scores, labels, seed, samples), level)


def two_classes(normal=60, anomalous=40, gap=1.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(normal + anomalous) >= normal
    return rng.normal(size=len(labels)) + gap * labels, labels


@settings(max_examples=40, deadline=None)
@given(data=st.data(), images=st.integers(2, 9))
def test_counting_a_draw_twice_is_listing_it_twice(data, images):
    scores = data.draw(hnp.arrays(np.float64, images, elements=st.sampled_from([0.0, -0.0, 1.0, 2.0])))
    labels = np.arange(images) < data.draw(st.integers(1, images - 1))
    counts = data.draw(hnp.arrays(np.int64, (3, images), elements=st.integers(0, 3)))
    counts[:, [0, -1]] += 1  # both classes present
    expected = [slow.auroc(np.repeat(scores, row), np.repeat(labels, row)) for row in counts]
    assert weighted_aurocs(scores, labels, counts) == pytest.approx(expected)


def test_the_value_is_the_auroc_and_lies_inside():
    scores, labels = two_classes()
    found = auroc_interval(scores, labels)
    assert found.value == pytest.approx(image_metrics(scores, labels).auroc)
    assert 0.0 <= found.low < found.value < found.high <= 1.0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), samples=st.integers(1, 5))
def test_the_value_lies_inside_even_with_few_samples(seed, samples):
    scores, labels = two_classes(6, 5, seed=seed)
    found = auroc_interval(scores, labels, seed=seed, samples=samples)
    assert found.low <= found.value <= found.high


def test_a_seed_fixes_the_interval():
    scores, labels = two_classes()
    assert auroc_interval(scores, labels, seed=3) == auroc_interval(scores, labels, seed=3)
    assert auroc_interval(scores, labels, seed=3) != auroc_interval(scores, labels, seed=4)


def test_a_higher_level_is_wider():
    scores, labels = two_classes()
    narrow, wide = (auroc_interval(scores, labels, level=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_width_is_that_of_hanley_and_mcneil():
    """For these sizes their closed-form standard error should come out within a fifth."""
    scores, labels = two_classes(150, 100, gap=1.2)
    found = auroc_interval(scores, labels, samples=1000)
    a, q1, q2 = found.value, found.value / (2 - found.value), 2 * found.value**2 / (1 + found.value)
    error = math.sqrt((a * (1 - a) + 99 * (q1 - a**2) + 149 * (q2 - a**2)) / (100 * 150))
    assert (found.high - found.low) / (2 * 1.96) == pytest.approx(error, rel=0.2)


def test_coverage_is_about_its_level():
    truth = stats.norm.cdf(1.0 / math.sqrt(2))
    found = [auroc_interval(*two_classes(40, 40, seed=seed), seed=seed, samples=200, level=0.9) for seed in range(150)]
    assert 0.82 < np.mean([f.low <= truth <= f.high for f in found]) < 0.97


def test_resamples_without_both_classes_are_drawn_again(monkeypatch):
    monkeypatch.setattr(auroc, "CHUNK", 40)  # several chunks
    labels = np.array([True] + [False] * 9)  # a third of all draws miss the one anomaly
    counts = np.concatenate(list(auroc._resamples(labels, seed=0, samples=101)))
    assert counts.shape == (101, 10)
    assert (counts.sum(axis=1) == 10).all() and (counts[:, 0] > 0).all() and (counts[:, 1:].sum(axis=1) > 0).all()


def test_pairing_shrinks_the_interval_of_a_difference():
    scores, labels = two_classes()
    rng = np.random.default_rng(1)
    close = scores + 0.1 * rng.normal(size=len(scores))
    found = paired_interval(close, scores, labels)
    alone = auroc_interval(scores, labels)
    assert found.value == pytest.approx(image_metrics(close, labels).auroc - image_metrics(scores, labels).auroc)
    assert found.low <= found.value <= found.high
    assert found.high - found.low < (alone.high - alone.low) / 2


def test_a_detector_does_not_differ_from_itself():
    scores, labels = two_classes()
    assert paired_interval(scores, np.exp(scores), labels).as_dict() == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_swapping_the_pair_flips_the_sign():
    a, labels = two_classes()
    b, _ = two_classes(gap=2.0, seed=5)
    there, back = paired_interval(a, b, labels), paired_interval(b, a, labels)
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low))


def test_one_class_is_nan():
    assert all(math.isnan(v) for v in auroc_interval([1.0, 2.0], [True, True]).as_dict().values())
    assert all(math.isnan(v) for v in paired_interval([1.0, 2.0], [1.0, 2.0], [False, False]).as_dict().values())


def test_bad_arguments_are_refused():
    scores, labels = two_classes()
    with pytest.raises(NfadError, match="level must lie between 0 and 1"):
        auroc_interval(scores, labels, level=95)
    with pytest.raises(NfadError, match="samples must be at least 1"):
        auroc_interval(scores, labels, samples=0)
    with pytest.raises(NfadError, match="same length"):
        paired_interval(scores, scores[1:], labels)
