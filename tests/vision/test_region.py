import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from nfad.errors import NfadError
from nfad.vision.region import Region, looked_at

PHOTO = np.zeros((40, 80, 3), np.uint8)


def half(rows=32, columns=64):
    """Bright on the left."""
    mask = np.zeros((rows, columns, 3), np.uint8)
    mask[:, : columns // 2] = 255
    return mask


@given(st.integers(0, 2**16))
def test_what_is_not_looked_at_leaves_no_trace(seed):
    region = Region.read(half(), PHOTO, 32, None)
    draw = torch.Generator().manual_seed(seed)
    views = torch.rand(2, 3, 32, 32, generator=draw)
    other = torch.where(region.seen, views, torch.rand(2, 3, 32, 32, generator=draw))
    torch.testing.assert_close(region(views), region(other), atol=1e-6, rtol=0)
    assert (region(views)[..., region.seen] == views[..., region.seen]).all()


def test_the_rest_has_the_mean_colour_of_what_is_seen():
    region = Region.read(half(), PHOTO, 32, None)
    views = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    painted = region(views)[0][:, ~region.seen]
    torch.testing.assert_close(painted, views[0][:, region.seen].mean(dim=1, keepdim=True).expand_as(painted))
    torch.testing.assert_close(region(0.5 * views), 0.5 * region(views))  # and so goes with the light


def test_a_view_of_another_size_is_painted_alike():
    region = Region.read(half(), PHOTO, 32, None)
    assert (region.at(16) == region.seen[::2, ::2]).all()
    assert region(torch.rand(1, 3, 48, 48)).shape == (1, 3, 48, 48)


def test_without_a_region_views_are_as_they_are():
    views = torch.rand(1, 3, 8, 8)
    assert looked_at(None, views) is views


def test_a_mask_is_read_from_a_file_and_follows_the_crop(tmp_path):
    Image.fromarray(half(40, 80)).save(tmp_path / "mask.png")
    whole = Region.read(tmp_path / "mask.png", PHOTO, 32, None)
    assert whole.share == 0.5
    cropped = Region.read(tmp_path / "mask.png", PHOTO, 32, 32)  # the middle 40 of 80 columns
    assert cropped.seen[:, :15].all() and not cropped.seen[:, 17:].any()


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(NfadError, match=r"mask has 40×40 pixels and a photo 80×40.*draw the mask on one of the photos"):
        Region.read(half(40, 40), PHOTO, 32, None)


def test_a_mask_that_leaves_nothing_is_refused():
    with pytest.raises(NfadError, match=r"leaves 0\.0% of the photo.*white where to look"):
        Region.read(np.zeros((40, 80, 3), np.uint8), PHOTO, 32, None)
