"""How a fit finds its parts before a plain background."""

import math

import numpy as np
import pytest
import torch
from nails import nail, nut
from parts import tiny

from nfad.errors import NfadError
from nfad.fitting.posing import background_of, drawn, lying_of, part_of, pose_of, unlikeness
from nfad.fitting.views import ViewCache
from nfad.vision.images import to_view


@pytest.mark.parametrize("ratio", [0.6, 1.0, 1.8])
def test_the_axis_is_that_of_the_part_in_its_photo(ratio):
    """Against moments of the drawn part itself, in a photo whose view is stretched."""
    photo, mask = nail(1, angle=0.7, ratio=ratio, with_mask=True)
    rows, columns = np.nonzero(mask)
    _, vectors = np.linalg.eigh(np.cov(np.stack([columns, rows])))
    centre, axis = lying_of(part_of(to_view(photo, 128, None)[0][None]), ratio)
    assert abs(float(axis[0] @ torch.tensor(vectors[:, 1]).float())) > math.cos(math.radians(2))
    height = mask.shape[0]
    middle = (np.array([columns.mean(), rows.mean()]) - np.array([mask.shape[1], height]) / 2) / (height / 2)
    np.testing.assert_allclose(centre[0], middle, atol=0.05)


def test_the_background_is_told_by_the_frame_whatever_the_lamp():
    """A ramp and a bowl of light are found exactly, also where a part reaches the frame."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 64), torch.linspace(-1, 1, 64), indexing="ij")
    light = (0.5 + 0.2 * x - 0.1 * y + 0.1 * x * y - 0.15 * x * x).expand(1, 3, -1, -1)
    torch.testing.assert_close(background_of(light), light, atol=1e-4, rtol=0)
    with_part = light.clone()
    with_part[..., 28:36, :] = 0
    found = background_of(with_part)
    assert float((found - light).abs().mean()) < 0.03
    assert float(part_of(with_part)[0, 32].mean()) > 0.95 and float(part_of(with_part)[0, 10].mean()) < 0.05


def test_copies_are_not_unlike_and_light_does_not_count():
    view = to_view(nail(0), 64, None)[0]
    assert unlikeness(torch.stack([view, 0.5 * view + 0.1])) < 1e-4
    assert unlikeness(torch.stack([view, view.flip(1)])) > 0.5


def test_the_box_is_as_large_as_the_part_and_no_longer_than_three_times_its_width():
    pose = drawn(torch.stack([to_view(nail(seed), 128, None)[0] for seed in range(12)]), 1.0)
    along, across = pose.half
    assert 0.56 < along < 0.75 and 0.2 < across < 0.35  # the nail: half a photo long, 0.22 wide
    assert across >= along / 3


@pytest.mark.parametrize("corners", [3, 4, 6])
def test_a_part_without_a_long_axis_is_turned_by_its_corners(corners):
    views = torch.stack([to_view(nut(seed, corners), 128, None)[0] for seed in range(16)])
    assert unlikeness(drawn(views, 1.0).turned(views)[0]) < 0.1 * unlikeness(views)


def test_parts_that_fill_their_photos_are_not_turned(tmp_path):
    """What a box about them would show beyond the photo's edge is made up."""
    whole = [nail(seed, angle=0.8, at=(0, 0)) for seed in range(12)]
    views = ViewCache.read(whole, 64, None, tmp_path)
    assert pose_of(tiny(pose="turned"), views, torch.arange(12)) is not None
    views = ViewCache.read([photo[45:-45, 45:-45] for photo in whole], 64, None, tmp_path)
    with pytest.raises(NfadError, match="does not fit in"):
        pose_of(tiny(pose="turned"), views, torch.arange(12))
