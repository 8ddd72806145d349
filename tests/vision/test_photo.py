import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parts import part

from nfad.vision.photo import NUMBERS, photo_numbers


def view(image):
    return torch.from_numpy(np.asarray(image)).permute(2, 0, 1).float() / 255


def numbers(image):
    return dict(zip(NUMBERS, photo_numbers(image[None])[0].tolist(), strict=True))


def flat(level):
    return torch.full((3, 128, 128), float(level))


PLAIN = view(part(0, 128))


@given(st.integers(0, 2**31), st.integers(1, 4), st.sampled_from([64, 128, 144, 256]))
def test_a_batch_gives_what_each_gives_alone(seed, count, side):
    views = torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(seed))
    together = photo_numbers(views)
    assert together.shape == (count, len(NUMBERS)) and torch.isfinite(together).all()
    alone = torch.cat([photo_numbers(each[None]) for each in views])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_a_black_and_a_white_photo_show_nothing():
    black, grey, white = (numbers(flat(level)) for level in (0, 0.5, 1))
    assert black["brightness"] < grey["brightness"] < white["brightness"]
    assert (black["dark"], grey["dark"], white["dark"]) == (1, 0, 0)
    assert (black["bright"], grey["bright"], white["bright"]) == (0, 0, 1)
    for each in (black, grey, white):
        assert each["flat"] == 1 and each["colour"] == pytest.approx(0, abs=1e-5) and each["uneven"] < 1e-5
    assert all(each["contrast"] < numbers(PLAIN)["contrast"] for each in (black, grey, white))
    assert numbers(PLAIN)["flat"] == numbers(PLAIN)["dark"] == 0


@given(st.integers(0, 2**31), st.sampled_from([1e-6, -1e-6]))
def test_rounding_moves_no_pixel_across_a_bound(seed, hair):
    """Of photos of whole grey levels about the bounds, many of whose squares have just their level on the mean."""
    levels = np.random.default_rng(seed).choice([2, 3, 4, 251, 252, 253], (256, 256, 1)).repeat(3, axis=2)
    mean = levels[..., 0].reshape(128, 2, 128, 2).mean(axis=(1, 3))
    assert (mean == 3).any() and (mean == 252).any()
    told, moved = numbers(view(levels)), numbers(view(levels) + hair)
    assert (told["dark"], told["bright"]) == (moved["dark"], moved["bright"])
    assert told["dark"] == (mean < 3).mean() and told["bright"] == (mean > 252).mean()


@pytest.mark.parametrize(
    ("name", "sign", "change"),
    [
        ("brightness", -1, lambda view: view * 0.5),
        ("contrast", -1, lambda view: 0.5 + 0.2 * (view - 0.5)),
        ("contrast", 1, lambda view: (0.5 + 2 * (view - 0.5)).clamp(0, 1)),
        ("noise", 1, lambda view: view + 0.1 * torch.randn(view.shape, generator=torch.Generator().manual_seed(0))),
        ("noise", -1, lambda view: torch.nn.functional.avg_pool2d(view, 9, 1, 4)),
        ("colour", 1, lambda view: view * torch.tensor([1.2, 1, 0.8])[:, None, None]),
        ("colour", -1, lambda view: view * torch.tensor([0.8, 1, 1.2])[:, None, None]),
        ("uneven", 1, lambda view: view * torch.linspace(0.5, 1, 128)),
        ("uneven", 1, lambda view: torch.cat([view[:, :64] * 0.3, view[:, 64:]], dim=1)),
        ("flat", 1, lambda view: torch.cat([view[:, :64], flat(0.5)[:, 64:]], dim=1)),
        ("dark", 1, lambda view: torch.cat([view[:, :64] * 0, view[:, 64:]], dim=1)),
        ("bright", 1, lambda view: (view * 4).clamp(0, 1)),
    ],
)
def test_a_change_moves_its_number_the_right_way(name, sign, change):
    before = PLAIN.clone()
    moved = numbers(change(PLAIN))[name] - numbers(PLAIN)[name]
    assert sign * moved > 0.05 and torch.equal(PLAIN, before)


def test_half_of_the_photo_covered_is_half_of_it_dark():
    covered = numbers(torch.cat([PLAIN[:, :64] * 0, PLAIN[:, 64:]], dim=1))
    assert covered["dark"] == covered["flat"] == 0.5


def test_numbers_of_large_views_are_those_of_the_same_photo_made_small():
    large = torch.rand(1, 3, 512, 512, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(photo_numbers(large), photo_numbers(torch.nn.functional.avg_pool2d(large, 4)))
