import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage
from torch.nn import functional as F

from nfad.vision.maps import PIECE, image_score, pixel_maps, smoothing_kernel

EPS = torch.finfo(torch.float32).eps
seeds = st.integers(0, 2**31)


def tokens_(images, grid, seed):
    return torch.rand(images, grid * grid, generator=torch.Generator().manual_seed(seed)) * 2


@given(
    st.integers(1, 3), st.integers(1, 16), st.sampled_from([48, 63, 64, 96]), st.sampled_from([0.0, 0.5, 2, 4.0]), seeds
)
def test_pixel_maps_are_bilinear_upsampling_then_scipys_gaussian(images, grid, size, sigma, seed):
    tokens = tokens_(images, grid, seed)
    large = F.interpolate(
        tokens.double().reshape(images, 1, grid, grid), (size, size), mode="bilinear", align_corners=False
    )[:, 0].numpy()
    # Reflection about the border pixel's centre: "mirror" to scipy, "reflect" to torch.
    wanted = large if sigma == 0 else ndimage.gaussian_filter(large, (0, sigma, sigma), mode="mirror", truncate=4.0)
    found = pixel_maps(tokens, size, sigma)
    # Two float32 matrix products whose weights are positive and sum to one; the values lie below 2.
    assert np.abs(found.double().numpy() - wanted).max() <= 2 * 4 * (grid + 1) * EPS


@given(st.integers(1, 16), st.floats(1e-6, 2), st.sampled_from([0.0, 4.0]))
def test_a_constant_stays_itself(grid, level, sigma):
    found = pixel_maps(torch.full((1, grid * grid), level), 64, sigma)
    assert (found - level).abs().max() <= 4 * (grid + 1) * EPS * level


def test_a_hot_token_is_hottest_at_its_own_centre():
    tokens = torch.zeros(1, 196)
    tokens[0, 3 * 14 + 9] = 1
    found = pixel_maps(tokens, 224, 4.0)[0]
    row, column = divmod(int(found.argmax()), 224)
    assert abs(row + 0.5 - 3.5 * 16) <= 1 and abs(column + 0.5 - 9.5 * 16) <= 1
    assert float(found.min()) == 0


@given(st.floats(0.3, 6))
def test_the_kernel_is_symmetric_sums_to_one_and_ends_at_four_sigma(sigma):
    taps = smoothing_kernel(sigma).numpy()
    radius = len(taps) // 2
    assert np.array_equal(taps, taps[::-1])
    assert taps.sum() == pytest.approx(1, abs=len(taps) * np.finfo(float).eps)
    assert abs(radius - 4 * sigma) <= 0.5 + 1e-9
    steps = np.arange(-radius, radius + 1)
    wanted = np.exp(-0.5 * (steps / sigma) ** 2)
    assert np.abs(taps - wanted / wanted.sum()).max() <= len(taps) * np.finfo(float).eps


@given(st.integers(1, 3), st.integers(1, 40), st.floats(0.001, 1), seeds)
def test_image_score_is_the_mean_of_the_sorted_top(images, size, share, seed):
    maps = torch.randn(images, size, size, generator=torch.Generator().manual_seed(seed))
    count = max(1, int(share * size * size))
    wanted = np.sort(maps.double().numpy().reshape(images, -1), axis=1)[:, -count:].mean(axis=1)
    found = image_score(maps, share).double().numpy()
    assert np.abs(found - wanted).max() <= 4 * count * EPS * float(maps.abs().max())


@given(st.integers(1, 3), st.integers(1, 6), st.floats(0.001, 0.02), st.integers(1, 50), seeds)
def test_image_score_of_a_few_in_whole_pieces_is_the_mean_of_the_sorted_top(images, eighths, share, levels, seed):
    """Also where many pixels are alike, where all of the highest lie in one piece, and each in another."""
    rng, side = np.random.default_rng(seed), 8 * eighths
    maps = torch.from_numpy(rng.integers(-levels, levels, (images, side, side)).astype(np.float32))
    flat = maps.flatten(1)
    flat[0, ::PIECE] += 2 * levels
    flat[-1, :PIECE] += 5 * levels
    count = max(1, int(share * side * side))
    wanted = np.sort(flat.double().numpy(), axis=1)[:, -count:].mean(axis=1)
    np.testing.assert_allclose(image_score(maps, share).numpy(), wanted, rtol=1e-6, atol=1e-6)


def test_image_score_takes_one_percent_and_at_least_one_pixel():
    maps = torch.arange(224.0 * 224).reshape(1, 224, 224)
    top = np.arange(224 * 224)[-501:]  # 1 % of 50176, floored
    assert float(image_score(maps)) == pytest.approx(top.mean(), rel=501 * EPS)
    assert float(image_score(torch.tensor([[[1.0, 3], [2, 0]]]))) == 3
