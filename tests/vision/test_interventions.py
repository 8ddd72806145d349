import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage

from nfad.vision.interventions import BACKGROUND, PAPER_PHOTOMETRIC, SENSOR, SETS, WIDE_PHOTOMETRIC, intervene

EPS = torch.finfo(torch.float32).eps
EVERY = {name: f for family in SETS["wide"].values() for name, f in family.items()}


def images_(seed=0, size=48):
    return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(seed))


def prior_(seed=0):
    """Per token of a 3×3 grid; some exactly at the threshold, which is foreground."""
    values = torch.rand(2, 9, generator=torch.Generator().manual_seed(seed))
    values[:, 4] = 0.5
    return values


def apply(name, images, prior=None, seed=7):  # not the images' own seed: noise would fill them with themselves
    return intervene(EVERY[name], images, prior_() if prior is None else prior, torch.Generator().manual_seed(seed))


def foreground_(prior, size=48):
    """Pixel by pixel: which token a pixel belongs to, and whether that token's prior reaches one half."""
    found = np.zeros((len(prior), 1, size, size), dtype=bool)
    for image, tokens in enumerate(prior.reshape(-1, 3, 3).numpy()):
        for y in range(size):
            for x in range(size):
                found[image, 0, y, x] = tokens[y // (size // 3), x // (size // 3)] >= 0.5
    return found


# The paper's, as plain formulas on float64 arrays of shape (image, 3, height, width)
RAMP = np.linspace(0.6, 1.4, 48)
PAPER = {
    "brightness ×1.40": lambda x: 1.40 * x,
    "brightness ×0.65": lambda x: 0.65 * x,
    "contrast ×1.5": lambda x: 1.5 * (x - x.mean((1, 2, 3), keepdims=True)) + x.mean((1, 2, 3), keepdims=True),
    "gamma 1.6": lambda x: x**1.6,
    "temperature": lambda x: np.stack([1.15 * x[:, 0], x[:, 1], 0.85 * x[:, 2]], axis=1),
    "ramp →": lambda x: x * RAMP[None, None, None, :],
    "ramp ↓": lambda x: x * RAMP[None, None, :, None],
}
WIDE = {
    "warm": lambda x: np.stack([1.35 * x[:, 0], x[:, 1], 0.65 * x[:, 2]], axis=1),
    "cold": lambda x: np.stack([0.7 * x[:, 0], 0.95 * x[:, 1], 1.3 * x[:, 2]], axis=1),
    "exposure ×0.4": lambda x: 0.4 * x,
    "exposure ×2": lambda x: 2 * x,
    "exposure ×3": lambda x: 3 * x,
    "offset +0.2": lambda x: x + 0.2,
    "offset +0.4": lambda x: x + 0.4,
    "×1.5 + 0.1": lambda x: 1.5 * x + 0.1,
    "gamma 0.5": lambda x: x**0.5,
    "gamma 0.7": lambda x: x**0.7,
    "contrast ×0.5": lambda x: 0.5 * (x - x.mean((1, 2, 3), keepdims=True)) + x.mean((1, 2, 3), keepdims=True),
}
SPOTS = {"hot spot": 2.2, "shadow": 0.4}
FILLS = {
    "fill black": (0, 0, 0),
    "fill grey": (0.5, 0.5, 0.5),
    "fill blue": (0.25, 0.45, 0.75),
    "fill light": (0.9, 0.9, 0.9),
}


def test_the_papers_set_is_seven_photometric_and_five_background():
    assert {family: list(members) for family, members in SETS["paper"].items()} == {
        "photometric": list(PAPER),
        "background": [*FILLS, "fill noise"],
    }


def test_the_wide_set_adds_to_the_papers():
    wide = SETS["wide"]
    assert list(wide) == ["photometric", "background", "sensor"]
    assert list(wide["photometric"])[:7] == list(PAPER_PHOTOMETRIC)
    assert set(wide["photometric"]) == {*PAPER, *WIDE, *SPOTS}  # all of which are tested below
    assert len(wide["photometric"]) == len(PAPER_PHOTOMETRIC) + len(WIDE_PHOTOMETRIC)
    assert wide["background"] == BACKGROUND == SETS["paper"]["background"]
    assert wide["sensor"] == SENSOR and len(SENSOR) == 6
    assert len(EVERY) == sum(map(len, wide.values()))  # no name stands for two


@pytest.mark.parametrize("name", PAPER | WIDE)
@given(seed=st.integers(0, 2**31))
def test_photometric_edits_follow_their_formulas(name, seed):
    images = images_(seed)
    wanted = np.clip((PAPER | WIDE)[name](images.double().numpy()), 0, 1)
    # Two float32 operations; the image's mean is a sum, and powers and ramps round a little more.
    assert np.abs(apply(name, images).double().numpy() - wanted).max() <= 16 * EPS


@pytest.mark.parametrize("name", SPOTS)
def test_spots_are_gaussian_gains_somewhere_on_each_image(name):
    images = torch.full((2, 3, 48, 48), 0.3)  # dim enough for no gain to be clipped
    gains = apply(name, images).double().numpy() / 0.3
    assert np.array_equal(gains[:, 0], gains[:, 1]) and np.array_equal(gains[:, 0], gains[:, 2])
    assert np.abs(gains[0] - gains[1]).max() > 0.01
    x, y = np.meshgrid(np.linspace(0, 1, 48), np.linspace(0, 1, 48))
    for gain in gains[:, 0]:
        bump = (gain - 1) / (SPOTS[name] - 1)
        near = bump > 0.1  # where its logarithm keeps its digits
        terms = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=-1)[near]
        fit, *_ = np.linalg.lstsq(terms, np.log(bump[near]), rcond=None)
        rounding = 64 * EPS / 0.1 / 0.6
        assert np.abs(terms @ fit - np.log(bump[near])).max() <= rounding
        level, slope_x, slope_y, curve_x, curve_y, mixed = fit
        radius = (-0.5 / curve_x) ** 0.5
        centre = -slope_x / (2 * curve_x), -slope_y / (2 * curve_y)
        assert 0.2 <= radius <= 0.5
        assert all(-1e-3 <= place <= 1.001 for place in centre)
        assert curve_y == pytest.approx(curve_x, rel=1e-3) and abs(mixed) < 1e-3 * abs(curve_x)
        assert level + (slope_x * centre[0] + slope_y * centre[1]) / 2 == pytest.approx(0, abs=1e-3)  # full there


@pytest.mark.parametrize("name", FILLS)
def test_backgrounds_are_filled_and_the_foreground_left_bitwise(name):
    images, prior = images_(), prior_()
    found, foreground = apply(name, images, prior), foreground_(prior)
    assert foreground.any() and not foreground.all()
    colour = np.broadcast_to(np.array(FILLS[name], np.float32)[:, None, None], images.shape)
    assert np.array_equal(found.numpy(), np.where(foreground, images.numpy(), colour))


def test_noise_fills_the_background_uniformly_and_leaves_the_foreground_bitwise():
    images, prior = images_(), prior_()
    found, foreground = apply("fill noise", images, prior), foreground_(prior)
    inside = np.broadcast_to(foreground, images.shape)
    assert np.array_equal(found.numpy()[inside], images.numpy()[inside])
    drawn = found.numpy()[~inside]
    # Uniform on [0, 1]: mean ½ and variance 1/12, each within six standard errors.
    assert abs(drawn.mean() - 0.5) <= 6 * (1 / 12 / drawn.size) ** 0.5
    assert abs(drawn.var() - 1 / 12) <= 6 * (1 / 180 / drawn.size) ** 0.5
    assert torch.equal(found, apply("fill noise", images, prior))
    assert not torch.equal(found, apply("fill noise", images, prior, seed=1))


@pytest.mark.parametrize("name", BACKGROUND)
def test_without_background_nothing_is_filled(name):
    images = images_()
    assert torch.equal(apply(name, images, torch.ones(2, 9)), images)


@pytest.mark.parametrize(("name", "sigma"), [("noise 0.05", 0.05), ("noise 0.1", 0.1), ("noise 0.2", 0.2)])
def test_sensor_noise_has_its_strength_before_clipping(name, sigma):
    images = torch.full((2, 3, 96, 96), 0.5)
    drawn = apply(name, images).numpy() - 0.5
    inside = np.clip(np.random.default_rng(0).normal(0, sigma, 10**6), -0.5, 0.5)  # the clamp bites at 2.5 σ for 0.2
    assert abs(drawn.mean()) <= 6 * sigma / drawn.size**0.5
    assert drawn.std() == pytest.approx(inside.std(), rel=6 / (2 * drawn.size) ** 0.5 + 6 / (2 * 10**6) ** 0.5)
    assert torch.equal(apply(name, images), apply(name, images))


@pytest.mark.parametrize(("name", "sigma"), [("blur 1", 1.0), ("blur 2", 2.0)])
def test_blur_is_scipys_gaussian(name, sigma):
    images = images_()
    wanted = ndimage.gaussian_filter(images.double().numpy(), (0, 0, sigma, sigma), mode="mirror", truncate=4.0)
    taps = 2 * int(4 * sigma + 0.5) + 1
    assert np.abs(apply(name, images).double().numpy() - wanted).max() <= 4 * taps * EPS


def test_jpeg_is_pillows_at_its_quality():
    images = images_()
    found = apply("JPEG 20", images)
    for image, result in zip(images, found, strict=True):
        buffer = io.BytesIO()
        pixels = np.rint(image.numpy() * np.float32(255)).astype(np.uint8).transpose(1, 2, 0)
        Image.fromarray(pixels).save(buffer, "JPEG", quality=20)
        assert np.array_equal(result.numpy().transpose(1, 2, 0), np.asarray(Image.open(buffer)) / np.float32(255))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("level", [None, 0.0, 1.0])
def test_every_edit_keeps_the_shape_and_the_range_and_spares_its_input(name, level):
    images = images_() if level is None else torch.full((2, 3, 48, 48), level)
    before = images.clone()
    found = apply(name, images)
    assert found.shape == images.shape and found.dtype == torch.float32
    assert found.min() >= 0 and found.max() <= 1
    assert torch.equal(images, before)
    if level is None:
        assert not torch.equal(found, images)  # an edit that does nothing teaches nothing
