import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.evaluation.metrics import pixel_metrics
from nfad.evaluation.resampling import BINS, PixelResamples, score_bins


def pairs(seed: int, images: int, lift: float = 2.0) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(seed)
    made = []
    for index in range(images):
        mask = np.zeros((24, 24), dtype=bool)
        if index % 2:
            mask[3:9, 4:8] = mask[15:18, 15:20] = True
        made.append((random.normal(size=(24, 24)) + random.normal() + lift * mask, mask))
    return made


def resampled(made, seed: int = 0, samples: int = 200) -> PixelResamples:
    resamples = PixelResamples(seed, samples)
    for score_map, mask in made:
        resamples.update(score_map, mask)
    return resamples


@given(st.lists(st.floats(-60000, 60000, width=32), min_size=2, max_size=50))
def test_bins_keep_the_order(values):
    values = np.sort(np.array(values, dtype=np.float32))
    bins = score_bins(values)
    assert (np.diff(bins) >= 0).all() and bins.min() >= 0 and bins.max() < BINS


def test_resamples_are_those_of_the_drawn_images():
    """The same Poisson draws, carried out: each image as often as it was drawn."""
    made = pairs(1, 12)
    resamples = resampled(made, seed=5, samples=6)
    draws = np.random.default_rng(5)
    counts = np.stack([draws.poisson(1.0, 6) for _ in made], axis=1)
    for row, count in enumerate(counts):
        drawn = [pair for pair, times in zip(made, count) for _ in range(times)]
        exact = pixel_metrics(*zip(*drawn))
        # scores of a bin are within 1/64 of each other, so their order is lost among a few per cent of the pairs
        assert resamples.aurocs()[row] == pytest.approx(exact.auroc, abs=2e-3)
        assert resamples.aupros()[row] == pytest.approx(exact.aupro, abs=1e-2)


def test_the_spread_is_that_of_new_sets():
    """Intervals are for what another set of images from the same line would have given."""
    values = [pixel_metrics(*zip(*pairs(seed, 30))).auroc for seed in range(60)]
    spread = np.mean([np.std(resampled(pairs(seed, 30)).aurocs()) for seed in range(8)])
    assert 0.6 < spread / np.std(values) < 1.5


def test_two_parts_make_a_whole():
    made = pairs(2, 10)
    first, second = resampled(made[:4], 0), resampled(made[4:], 1)
    both = first + second
    false, overlap = both.pro_curve()
    whole = resampled(made).pro_curve()
    assert np.allclose(false, whole[0]) and np.allclose(overlap, whole[1], atol=1e-6)
    assert np.all(np.diff(false) >= 0) and overlap[-1] == pytest.approx(1, abs=1e-6)
    assert first.aurocs().shape == both.aurocs().shape


def test_arms_over_the_same_images_are_paired():
    """An arm's difference from itself plus a constant is nothing, whatever was drawn."""
    made = pairs(3, 10)
    shifted = [(score_map * 4, mask) for score_map, mask in made]  # a power of two: the same bins, moved together
    assert np.array_equal(resampled(made).aurocs(), resampled(shifted).aurocs(), equal_nan=True)


def test_nothing_to_find_is_not_a_number():
    normal = [(score_map, np.zeros_like(mask)) for score_map, mask in pairs(4, 3)]
    resamples = resampled(normal)
    assert np.isnan(resamples.aurocs()).all() and np.isnan(resamples.aupros()).all()
    assert len(resamples.pro_curve()[0]) == 0
