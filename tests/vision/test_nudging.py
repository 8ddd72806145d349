import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad.vision import nudging
from nfad.vision.nudging import SHIFT, nudged


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def disc(side, x, y):
    """A soft spot, whose centre of mass tells where it went."""
    place = torch.arange(side) + 0.5
    square = (place[None] - x * side) ** 2 + (place[:, None] - y * side) ** 2
    return torch.exp(-square / (0.005 * side**2)).expand(1, 3, side, side)


def centre(image):
    side, weights = image.shape[-1], image[0, 0] / image[0, 0].sum()
    place = (torch.arange(side) + 0.5) / side
    return float((weights.sum(0) * place).sum()), float((weights.sum(1) * place).sum())


@given(st.integers(0, 10_000))
def test_the_middle_moves_by_no_more_than_the_limit(seed):
    x, y = centre(nudged(disc(64, 0.5, 0.5), seeded(seed)))
    assert max(abs(x - 0.5), abs(y - 0.5)) <= SHIFT * (1 + nudging.ZOOM) * 1.5 + 1e-3  # turned about the middle


@given(st.integers(0, 10_000))
def test_values_stay_in_range_and_a_plain_image_stays_as_it_is(seed):
    noise = torch.rand(3, 3, 32, 32, generator=seeded(seed))
    moved = nudged(noise, seeded(seed))
    assert moved.shape == noise.shape and moved.min() >= 0 and moved.max() <= 1
    plain = torch.full((2, 3, 32, 32), 0.3)
    torch.testing.assert_close(nudged(plain, seeded(seed)), plain, atol=1e-5, rtol=0)


def test_every_image_has_a_nudge_of_its_own_and_the_seed_repeats_them():
    same = disc(64, 0.4, 0.6).repeat(4, 1, 1, 1)
    moved = nudged(same, seeded(1))
    assert torch.equal(moved, nudged(same, seeded(1)))
    places = {tuple(round(each, 4) for each in centre(image[None])) for image in moved}
    assert len(places) == 4


def test_without_limits_nothing_moves(monkeypatch):
    for name in ("SHIFT", "TURN", "ZOOM"):
        monkeypatch.setattr(nudging, name, 0.0)
    image = torch.rand(2, 3, 48, 48, generator=seeded(0))
    torch.testing.assert_close(nudged(image, seeded(0)), image, atol=1e-5, rtol=0)
