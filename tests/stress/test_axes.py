import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from nfad import NfadError
from nfad.stress.axes import (
    AXES,
    TOKEN,
    Axis,
    before_other,
    chosen_axes,
    edited,
    exposed,
    kelvin,
    lamp_gains,
    moved,
    photographed,
    turned,
)

EPS = torch.finfo(torch.float32).eps
axes = st.sampled_from(list(AXES.values()))


def view_(seed=0, size=64):
    return torch.rand(3, size, size, generator=torch.Generator().manual_seed(seed))


def part_(size=64):
    """A disc in the middle."""
    rows, columns = torch.meshgrid(*[torch.arange(size) - size / 2] * 2, indexing="ij")
    return (rows.square() + columns.square() < (size / 5) ** 2)[None]


REST = (part_()[None], torch.Generator())  # what an edit of light has no use for


@given(axes, st.floats(-1, 1), st.integers(0, 50))
def test_every_strength_gives_a_view_and_leaves_its_argument_alone(axis, share, seed):
    strength = share * max(axis.strengths) if axis.less else abs(share) * max(axis.strengths)
    strength = max(strength, axis.strengths[0]) if abs(strength) > 0.05 else axis.strengths[0]
    view, part = view_(seed), part_()
    before = view.clone()
    changed = edited(axis, strength, view, part, seed)
    assert changed.shape == view.shape and changed.dtype == view.dtype
    assert changed.min() >= 0 and changed.max() <= 1
    assert torch.equal(view, before)
    assert torch.equal(changed, edited(axis, strength, view, part, seed))


@pytest.mark.parametrize("axis", AXES.values(), ids=list(AXES))
def test_zero_is_the_very_view_and_more_strength_is_more_change(axis):
    view, part = view_(3), part_()
    assert edited(axis, 0, view, part, 0) is view
    for side in axis.sides:
        assert len(axis.of_side(side)) >= 2
        changes = [(edited(axis, s, view, part, 0) - view).abs().mean().item() for s in axis.of_side(side)]
        assert changes[0] > 0.001
        # Of white noise, moved twice as far is not more changed; of all else it is.
        assert axis.name in ("shift-x", "shift-y", "rotation") or changes == sorted(changes)


@given(st.floats(-2, 2), st.floats(-2, 2))
def test_stops_add_up(first, second):
    view = view_()[None]
    twice = exposed(second, exposed(first, view, *REST), *REST)
    assert torch.allclose(twice, exposed(first + second, view, *REST), rtol=16 * EPS)
    assert torch.equal(exposed(1.0, view, *REST), 2 * view)


@given(st.floats(-60, 120))
def test_lamps_follow_planck_about_and_undo_each_other(mired):
    red, green, blue = lamp_gains(mired)
    back = lamp_gains(-mired)
    assert green == 1 and np.allclose(np.multiply((red, green, blue), back), 1)
    assert (red >= 1 >= blue) if mired >= 0 else (red <= 1 <= blue)

    def planck(nanometres, temperature):
        return 1 / (math.exp(1.4388e7 / (nanometres * temperature)) - 1)

    ratio = [planck(w, kelvin(mired)) / planck(w, kelvin(0)) for w in (600, 540, 450)]
    assert np.allclose([red, blue], [ratio[0] / ratio[1], ratio[2] / ratio[1]], rtol=0.05)


def test_a_mired_is_a_millionth_of_a_reciprocal_kelvin():
    assert kelvin(0) == pytest.approx(5500)
    assert 1e6 / kelvin(50) - 1e6 / kelvin(0) == pytest.approx(50)
    assert AXES["temperature"].told(100) == "3500 K" and AXES["temperature"].told(0) == "5500 K"


@given(st.integers(-20, 20), st.integers(-20, 20))
def test_a_shift_moves_whole_pixels_right_and_down(right, down):
    view = view_()[None]
    shifted = moved(right, down, view)
    inner = slice(20, 44)
    rolled = view.roll((down, right), dims=(2, 3))
    assert shifted.shape == view.shape and torch.equal(shifted[..., inner, inner], rolled[..., inner, inner])


def test_turning_is_clockwise():
    view = view_()[None]
    quarter = turned(90.0, view, *REST)
    assert torch.allclose(quarter, view.rot90(-1, dims=(2, 3)), atol=1e-3)  # the grid's rounding, over 64 pixels
    assert not torch.allclose(quarter, view.rot90(1, dims=(2, 3)), atol=0.1)


@pytest.mark.parametrize(("strength", "colour"), [(100, 1.0), (-100, 0.0)])
def test_another_background_leaves_the_part_alone(strength, colour):
    view, part = view_(), part_()
    changed = edited(AXES["background"], strength, view, part, 0)
    inside = part.expand(3, -1, -1)
    assert torch.equal(changed[inside], view[inside])
    assert (changed[:, :8] == colour).all()


def test_the_soft_border_is_that_of_whole_squares():
    view, part = view_(size=96)[None], part_(96)[None]
    wide = F.max_pool2d(part.float(), 7, stride=1, padding=3)
    kept = F.avg_pool2d(wide, 7, stride=1, padding=3, count_include_pad=False)
    expected = torch.lerp(torch.lerp(view, torch.ones_like(view), 0.5), view, kept)
    assert torch.allclose(before_other(50, view, part, torch.Generator()), expected, atol=8 * EPS)


moving = [axis for axis in AXES.values() if axis.moves]


@given(st.sampled_from(moving), st.integers(0, 20), st.integers(0, 20))
def test_where_photographed_nothing_depends_on_what_lies_beyond_the_frame(axis, place, seed):
    strength, size, frame = axis.strengths[place % len(axis.strengths)], 128, 32
    view = view_(seed, size)[None]
    beyond = view_(seed + 1, size + 2 * frame)[None]
    beyond[..., frame:-frame, frame:-frame] = view
    known = photographed(axis, strength, size)
    known[:2] = known[-2:] = known[:, :2] = known[:, -2:] = False  # there bicubic reaches over the frame, by its taps
    one, other = (axis.edit(float(strength), each, each[:, :1] > 0, torch.Generator()) for each in (view, beyond))
    other = other[..., frame:-frame, frame:-frame]
    # A turned grid's coordinates are rounded differently in a larger frame; a pixel's neighbours differ by up to 1.
    assert torch.allclose(one[..., known], other[..., known], atol=64 * size * EPS)
    assert not torch.allclose(one, other, atol=0.1)
    assert known.float().mean() > 0.5


@pytest.mark.parametrize("axis", AXES.values(), ids=list(AXES))
def test_only_what_moves_leaves_something_out(axis):
    assert photographed(axis, 0, 64).all()
    assert photographed(axis, axis.strengths[-1], 64).all().item() is not axis.moves


def test_a_token_beside_what_was_made_up_is_left_out_too():
    known = photographed(AXES["shift-x"], 8, 64)
    assert not known[:, : 8 + TOKEN].any() and known[:, 8 + TOKEN :].all()


def test_light_noise_is_the_same_noise_as_strong_noise():
    view = torch.full((3, 64, 64), 0.5)
    weak, strong = (edited(AXES["noise"], s, view, part_(), 7) - view for s in (2, 4))
    assert torch.allclose(2 * weak, strong, atol=8 * EPS)
    assert strong.std().item() == pytest.approx(0.04, rel=0.05)


def test_strengths_are_told_in_words_of_the_line():
    told = {name: axis.told(axis.strengths[0]) for name, axis in AXES.items()}
    assert told["exposure"] == "−2 stops" and told["gamma"] == "gamma 0.5" and told["rotation"] == "−8°"
    assert AXES["blur"].told(0.5) == "0.5 px" and AXES["contrast"].told(20) == "+20%"


def test_a_required_strength_is_measured_on_both_sides():
    exposure = AXES["exposure"].reaching(0.7)
    assert {-0.7, 0.7} < set(exposure.strengths) and list(exposure.strengths) == sorted(exposure.strengths)
    assert AXES["blur"].reaching(1).strengths == AXES["blur"].strengths
    for strength in (0, -1, 2.1, math.nan):
        with pytest.raises(NfadError, match="exposure is measured up to 2 stops"):
            AXES["exposure"].reaching(strength)


def test_the_background_is_left_out_unless_it_can_be_told_or_is_asked_for():
    assert set(AXES) - set(chosen_axes(None, False)) == {"background"}
    assert list(chosen_axes(None, True)) == list(AXES)
    assert list(chosen_axes(["noise", "background", "noise"], False)) == ["noise", "background"]
    with pytest.raises(NfadError, match="there is no axis 'fog'; the axes are exposure"):
        chosen_axes(["fog"], True)


@pytest.mark.parametrize("axis", AXES.values(), ids=list(AXES))
def test_an_axis_is_well_formed(axis: Axis):
    assert 0 not in axis.strengths and list(axis.strengths) == sorted(axis.strengths)
    assert bool(axis.less) == (axis.strengths[0] < 0)
    assert [abs(s) for s in axis.of_side(1)] == sorted(s for s in axis.strengths if s > 0)
