import colorsys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parts import part
from scipy.ndimage import convolve, uniform_filter

from nfad.vision.acquisitions import KINDS, RANGES, TOGETHER, VISIBLE, Acquisition, acquired, defocused, draw

seeds = st.integers(0, 2**31)
VIEWS = [torch.from_numpy(part(seed, 64)).permute(2, 0, 1).float() / 255 for seed in range(4)]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def visible(before, after):
    """The share of the part's fine structure that is left, and how strong it is at most as taken: what somebody would
    see of it, were the noise raised with its contrast."""

    def fine(view):
        grey = torch.nn.functional.avg_pool2d(view, 2).mean(dim=0).double().numpy()
        return grey - uniform_filter(grey, grey.shape[0] // 16 | 1, mode="mirror")

    one, other = fine(before), fine(after)
    share = (one * other).sum() / (one * one).sum()
    return share, min(share, 1) * np.sqrt((one * one).mean())


@given(seeds, st.integers(0, 3))
def test_a_view_stays_a_view_and_its_own_self(seed, index):
    view = VIEWS[index]
    before = view.clone()
    changed, acquisition = acquired(view, generator(seed))
    assert changed.shape == view.shape and changed.min() >= 0 and changed.max() <= 1
    assert torch.equal(view, before) and changed.data_ptr() != view.data_ptr()
    assert torch.equal(changed, acquisition(view))
    again, same = acquired(view, generator(seed))
    assert torch.equal(again, changed) and same == acquisition


def test_another_seed_is_another_acquisition():
    drawn = {draw(generator(seed)) for seed in range(50)}
    assert len(drawn) == 50


@given(seeds)
def test_kinds_and_strengths_come_from_their_ranges_in_the_order_of_light(seed):
    acquisition = draw(generator(seed))
    kinds = [kind for kind, _ in acquisition.steps]
    assert 1 <= len(kinds) <= len(TOGETHER) and len(set(kinds)) == len(kinds)
    assert kinds == sorted(kinds, key=list(RANGES).index)
    for kind, strength in acquisition.steps:
        assert RANGES[kind].low <= strength <= RANGES[kind].high


def test_every_kind_and_number_of_kinds_has_its_share_and_ranges_are_filled():
    drawn = [draw(generator(seed)) for seed in range(3000)]
    counts = np.bincount([len(each.steps) for each in drawn], minlength=4)[1:] / len(drawn)
    assert counts == pytest.approx(TOGETHER, abs=4 * np.sqrt(0.25 / len(drawn)))
    for kind, range_ in RANGES.items():
        found = [dict(each.steps)[kind] for each in drawn if kind in dict(each.steps)]
        assert len(found) > 3000 / len(RANGES)
        ranked = np.sort(found)
        middle = range_.at(0.5)
        assert np.mean(ranked < middle) == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / len(found)))
        assert ranked[0] < range_.at(0.02) and ranked[-1] > range_.at(0.98)


def test_a_logarithmic_range_is_even_in_ratio():
    gain = RANGES["gain"]
    assert gain.at(0) == gain.low and gain.at(1) == pytest.approx(gain.high)
    assert gain.at(0.5) == pytest.approx(np.sqrt(gain.low * gain.high))


def test_a_hidden_part_is_never_drawn():
    """And would be, if draws were taken as they come."""
    hidden = 0
    for seed in range(300):
        view = VIEWS[seed % 4]
        _, acquisition = acquired(view, generator(seed))
        share, strength = visible(view, acquisition.noiseless(view))
        assert share >= VISIBLE - 1e-4 and strength >= acquisition.noise / 4 + 1 / 255 - 1e-5
        careless = draw(generator(seed))
        share, strength = visible(view, careless.noiseless(view))
        hidden += share < VISIBLE or strength < careless.noise / 4 + 1 / 255
    assert hidden > 0


def test_a_faint_part_under_much_noise_is_not_drawn_for_all_its_contrast_was_raised():
    """And would be: a gain beside the noise makes it as strong."""
    faint = 0.5 + 0.15 * (VIEWS[0] - VIEWS[0].mean())
    _, strength = visible(faint, faint)
    drawn = [acquired(faint, generator(seed))[1] for seed in range(400)]
    assert max(each.noise for each in drawn) <= 4 * (strength - 1 / 255) + 1e-4
    careless = [draw(generator(seed)) for seed in range(400)]
    raised = [a for a in careless if a.noise and visible(faint, a.noiseless(faint))[0] > 1]
    assert any(a.noise > 4 * (strength - 1 / 255) for a in raised)


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_a_view_with_nothing_to_see_is_left_as_it_was_taken(level):
    view = torch.full((3, 64, 64), level)
    changed, acquisition = acquired(view, generator(0))
    assert torch.equal(changed, view) and acquisition.steps == () and torch.equal(acquisition(view), view)


NEUTRAL = {"gain": 1.0, "spot": 1.0, "contrast": 1.0, "gamma": 1.0} | dict.fromkeys(
    ("ramp", "blur", "offset", "noise"), 0.0
)


@pytest.mark.parametrize(("kind", "neutral"), NEUTRAL.items())
@pytest.mark.parametrize("end", ["low", "high"])
def test_each_kind_changes_the_view_the_more_the_stronger_it_is(kind, neutral, end):
    def change(strength):
        return float((Acquisition(((kind, strength),), 3)(VIEWS[0]) - VIEWS[0]).abs().mean())

    assert change(neutral) == pytest.approx(0, abs=1e-6)
    extreme = getattr(RANGES[kind], end)
    if extreme != neutral:
        assert 1e-4 < change((neutral + extreme) / 2) < change(extreme)


def test_coloured_light_is_a_gain_of_each_channel():
    lit = Acquisition((("colour", 0.3),), 3)(VIEWS[0] * 0.5)
    gains = (lit / (VIEWS[0] * 0.5)).flatten(1)
    assert bool((gains.std(dim=1) < 1e-4).all()) and set(NEUTRAL) | {"colour"} == set(KINDS) | {"noise"} == set(RANGES)
    logs = gains.mean(dim=1).log().tolist()
    assert any(log == pytest.approx(0.3, abs=1e-4) for log in logs) and max(map(abs, logs)) <= 0.35 + 1e-4


def test_noise_is_what_noiseless_leaves_out():
    acquisition = Acquisition((("gain", 1.2), ("noise", 0.1)), 5)
    assert acquisition.noise == 0.1
    assert torch.equal(acquisition.noiseless(VIEWS[0]), Acquisition((("gain", 1.2),), 5)(VIEWS[0]))
    left = acquisition(VIEWS[0]) - acquisition.noiseless(VIEWS[0])
    assert float(left.std()) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_blur_goes_with_the_side_of_the_view(seed):
    """The same lens in front of a finer sensor: a point spreads over twice as many pixels."""

    def spread(side):
        view = torch.zeros(3, side, side)
        view[:, side // 2, side // 2] = 1
        row = Acquisition((("blur", 3.0),), seed)(view)[0].sum(dim=0)
        row = row / row.sum()
        return float((row * (torch.arange(side) - side // 2) ** 2).sum().sqrt())

    assert spread(256) == pytest.approx(3, rel=0.02) and spread(512) == pytest.approx(6, rel=0.02)


@given(st.floats(0.5, 9), st.integers(0, 3))
def test_out_of_focus_every_point_is_a_disk(radius, index):
    reach = int(np.ceil(radius))
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disk = np.clip(radius + 0.5 - np.hypot(rows, columns), 0, 1)
    view = VIEWS[index].double().numpy()
    wanted = np.stack([convolve(channel, disk / disk.sum(), mode="mirror") for channel in view])
    found = defocused(VIEWS[index], radius)
    np.testing.assert_allclose(found.numpy(), wanted, atol=64 * np.finfo(np.float32).eps)


def test_blur_is_soft_or_out_of_focus_by_the_same_spread():
    point = torch.zeros(3, 65, 65)
    point[:, 32, 32] = 1
    along = (torch.arange(65.0) - 32).square()
    shapes = set()
    for seed in range(20):
        found = KINDS["blur"](point, 3.0 * 256 / 65, generator(seed))[0]
        assert float(found.sum()) == pytest.approx(1, abs=1e-4)
        assert float((found.sum(dim=0) * along).sum()) == pytest.approx(9, rel=0.1)
        shapes.add(
            bool(found[32, 32] < 1.01 * found[32, 35])
        )  # a disk is as bright at half its radius as in the middle
    assert shapes == {True, False}


@pytest.mark.parametrize(("kind", "strength"), [("offset", 0.3), ("offset", -0.2), ("gamma", 0.5), ("contrast", 0.4)])
@given(seeds, st.integers(0, 3))
def test_a_tone_curve_is_every_channels_or_the_brightest_ones_with_the_hue_kept(kind, strength, seed, index):
    """By colorsys: hue and saturation are as they were, and the value follows the curve."""
    view = VIEWS[index]
    mean = float(view.mean())
    brightest = view.amax(dim=0)
    curves = {
        "offset": lambda x, _: x + strength,
        "gamma": lambda x, _: x**strength,
        "contrast": lambda x, middle: (x - middle) * strength + middle,
    }
    found = KINDS[kind](view, strength, generator(seed)).clamp(0, 1)
    by_channel = curves[kind](view, mean).clamp(0, 1)
    by_value = curves[kind](brightest, float(brightest.mean())).clamp(0, 1)
    if torch.equal(found, by_channel):
        return
    for y, x in np.random.default_rng(seed).integers(0, 64, (20, 2)):
        if brightest[y, x] < 1 / 255:
            continue
        hue, saturation, _ = colorsys.rgb_to_hsv(*view[:, y, x].tolist())
        wanted = colorsys.hsv_to_rgb(hue, saturation, float(by_value[y, x]))
        assert found[:, y, x].tolist() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("kind", ["offset", "gamma", "contrast"])
def test_half_of_the_tone_curves_keep_the_hue(kind):
    """Of a place that is red, all channels of which are as far from another as before, in ratio."""
    red = torch.tensor([0.5, 0.25, 0.125])[:, None, None].expand(3, 8, 8) * torch.linspace(0.8, 1.2, 8)
    kept = 0
    for seed in range(200):
        found = KINDS[kind](red, 0.3 if kind == "offset" else 0.6, generator(seed))
        kept += torch.allclose(found[0] / found[2], torch.tensor(4.0), rtol=1e-4)
    assert 70 < kept < 130
