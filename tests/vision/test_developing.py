"""What a lamp or a sensor did to all of a photo is undone, and no more than that."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parts import part
from scipy.ndimage import convolve1d, map_coordinates

from nfad.vision.developing import APART, TAPS, Developing, Development, details, fine_details
from nfad.vision.images import to_view
from nfad.vision.pose import Pose
from nfad.vision.teacher import load_teacher

SIDE = 128


def views_of(count=8, start=0):
    return torch.stack([to_view(part(start + seed, SIDE), SIDE, None)[0] for seed in range(count)])


def as_it_is(photos):
    return photos


VIEWS = views_of(24)
FITTED = Development.of(VIEWS.split(8), SIDE, as_it_is)


def noisy(views, sigma, seed=0):
    return views + sigma * torch.randn(views.shape, generator=torch.Generator().manual_seed(seed))


def slow_halved(plane):
    """Of one channel, square by square: the mean of its own mean and that of the 4 × 4 about it."""
    wide, small = np.pad(plane, 1, mode="edge"), np.empty((plane.shape[0] // 2, plane.shape[1] // 2))
    for y, x in np.ndindex(*small.shape):
        own, around = plane[2 * y : 2 * y + 2, 2 * x : 2 * x + 2], wide[2 * y : 2 * y + 4, 2 * x : 2 * x + 4]
        small[y, x] = (own.mean() + around.mean()) / 2
    return small


def slow_doubled(plane, shape):
    """Bilinear, by places: a coarse pixel lies in the middle of its four."""
    places = [np.clip((np.arange(side) + 0.5) * few / side - 0.5, 0, few - 1) for side, few in zip(shape, plane.shape)]
    return map_coordinates(plane, np.meshgrid(*places, indexing="ij"), order=1)


def test_details_and_what_is_left_are_those_of_a_slow_pyramid():
    found, left = details(VIEWS[:1])
    plane = VIEWS[0, 1].double().numpy()
    for detail in found:
        coarser = slow_halved(plane)
        np.testing.assert_allclose(detail[0, 1].numpy(), plane - slow_doubled(coarser, plane.shape), atol=1e-5)
        plane = coarser
    np.testing.assert_allclose(left[0, 1].numpy(), plane, atol=1e-5)


@pytest.mark.parametrize("side", [VIEWS.shape[-1], 13, 20, 23, 32, 37, 48])
def test_fine_details_are_those_of_a_slow_filter_at_some_places(side):
    """Of any side: which places lie in a view goes by it."""
    views = VIEWS[:, :, :side, :side]
    slow, energies = views[0].double().numpy(), []
    for level, apart in enumerate(APART):
        taps = np.zeros(4 * 2**level + 1)
        taps[:: 2**level] = TAPS
        smooth = convolve1d(convolve1d(slow, taps, 1, mode="mirror"), taps, 2, mode="mirror")
        margin = (2, 6)[level]  # beyond which a filter would see what is not there
        energies.append(((slow - smooth)[:, margin:-margin:apart, margin:-margin:apart] ** 2).mean())
        slow = smooth
    np.testing.assert_allclose([float(energy) for energy in fine_details(views[:1])], energies, rtol=1e-4)


@given(st.floats(0.35, 1.5), st.floats(-0.1, 0.1), st.lists(st.floats(0.8, 1.2), min_size=3, max_size=3))
def test_exposure_offset_and_white_balance_are_made_the_fits(gain, offset, colours):
    """Where nothing was cut off, a photo in another light has mean and spread of the fit's; it had not before."""
    views = 0.2 + 0.25 * VIEWS[:2]
    fitted = Development.of([views], SIDE, as_it_is)
    lit = (views * gain * torch.tensor(colours)[:, None, None] + offset).clamp(min=0)
    back = fitted.balanced(lit)
    for name in ("mean", "std"):
        low, high = getattr(views, name)(dim=(2, 3)).aminmax(dim=0)
        now = getattr(back, name)(dim=(2, 3))
        assert (now > low - 0.005).all() and (now < high + 0.005).all()
    # One map of all pixels: a part's own structure stays what it was.
    assert torch.corrcoef(torch.stack([back[0, 0].flatten(), lit[0, 0].flatten()]))[0, 1] > 0.999


def test_a_photo_like_the_fits_is_left_as_it_is():
    middle = FITTED.mean.mean(dim=0), FITTED.spread.mean(dim=0)
    off = VIEWS[0] - VIEWS[0].mean(dim=(1, 2), keepdim=True)
    view = (off / off.std(dim=(1, 2), keepdim=True) * middle[1][:, None, None] + middle[0][:, None, None])[None]
    torch.testing.assert_close(FITTED.balanced(view), view.clamp(0, 1), atol=1e-6, rtol=0)
    quiet = FITTED.noise(VIEWS) == 0
    assert quiet.float().mean() >= 0.9
    torch.testing.assert_close(FITTED.denoised(VIEWS, torch.zeros(len(VIEWS))), VIEWS, atol=1e-5, rtol=0)


@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.18])
def test_noise_is_measured_and_most_of_it_taken_out(sigma):
    seen = noisy(VIEWS, sigma)
    found = FITTED.noise(seen)
    assert (found.sqrt() / sigma - 1).abs().max() < 0.1
    left = (FITTED.denoised(seen, found) - VIEWS).square().mean()
    assert left < (seen - VIEWS).square().mean() / 6


def test_noise_of_colour_is_taken_out_of_a_grey_part():
    """Grey has detail of its own, the differences of channels none: there noise is told from nothing."""
    grey = VIEWS.mean(dim=1, keepdim=True).expand_as(VIEWS)
    fitted = Development.of([grey], SIDE, as_it_is)
    seen = noisy(grey, 0.1)
    quiet = fitted.denoised(seen, fitted.noise(seen))
    colour = [(each - each.mean(dim=1, keepdim=True)).square().mean() for each in (seen, quiet)]
    assert colour[1] < colour[0] / 20


def test_noisy_photos_are_cleaned_and_those_beside_them_left_alone():
    some = torch.cat([VIEWS[:2], noisy(VIEWS[2:4], 0.1), VIEWS[4:5]])
    each = torch.cat([FITTED(view[None])[0] for view in some])
    torch.testing.assert_close(FITTED(some)[0], each, atol=1e-5, rtol=0)
    assert (FITTED.noise(some) > 0).tolist()[2:4] == [True, True]


@given(st.floats(0.3, 3), st.floats(-0.2, 0.3))
def test_contrast_is_not_taken_for_noise(gain, offset):
    assert (FITTED.noise(VIEWS * gain + offset) <= 1e-6 * gain**2).float().mean() >= 0.9


def test_noise_is_measured_in_photos_that_were_steadied():
    """Moving a photo takes off some of its noise, most of it the finest."""
    pose = Pose.steady(1.0, torch.zeros(48, 48))
    boxes = torch.tensor([[0.98, -0.05, 0.013], [0.05, 0.98, -0.021]]).expand(24, -1, -1)

    def sampled(photos):
        return pose.sampled(photos, boxes[: len(photos)])

    fitted = Development.of([sampled(VIEWS)], SIDE, sampled)
    told = fitted.noise(sampled(noisy(VIEWS, 0.1))).sqrt()
    assert (told / 0.1 - 1).abs().max() < 0.15
    blind = FITTED.noise(sampled(noisy(VIEWS, 0.1))).sqrt()
    assert blind.max() < 0.08


def test_where_photos_are_as_grainy_as_noise_none_is_sought():
    grainy = torch.rand(8, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    fitted = Development.of([grainy], SIDE, as_it_is)
    assert not fitted.fine.any() and not fitted.noise(grainy).any()


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_a_plain_photo_stays_plain(level):
    developed, _ = FITTED(torch.full((1, 3, SIDE, SIDE), level))
    assert torch.isfinite(developed).all() and developed.std(dim=(2, 3)).max() < 1e-3


def test_a_teacher_that_develops_sees_what_a_developed_photo_shows():
    teacher = load_teacher("vit_tiny_patch16_224", "untrained", (1, 3), (4, 5), SIDE)
    dark = 0.4 * VIEWS[:2]
    for own, other in zip(Developing(teacher, FITTED).tokens(dark), teacher.tokens(FITTED(dark)[0]), strict=True):
        assert torch.equal(own, other)


def test_what_was_undone_is_told_noise_from_light():
    assert (FITTED(VIEWS)[1] < 0.02).float().mean() > 0.9
    noise, light = FITTED(noisy(VIEWS, 0.1))[1].T
    assert (noise > 0.2).all() and (light < noise / 2).all()
    noise, light = FITTED(0.3 * VIEWS)[1].T
    assert (light > 0.2).all() and (noise < light / 10).all()
