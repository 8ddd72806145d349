import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from nfad.vision import images, pixels
from nfad.vision.images import to_view

sides = st.integers(1, 150)
modes = st.sampled_from([None, 32, 40])


@given(sides, sides, modes, st.sampled_from([np.uint8, np.uint16]))
def test_a_view_is_square_in_zero_one_and_inside_the_original(height, width, resize, dtype):
    top = np.iinfo(dtype).max
    pixels = np.random.default_rng(height).integers(0, top + 1, (height, width, 3)).astype(dtype)
    view, box = to_view(pixels, 32, resize)
    assert view.shape == (3, 32, 32) and view.dtype == torch.float32
    assert view.min() >= 0 and view.max() <= 1
    assert (box.height, box.width) == (height, width)
    rounding = 4 * np.finfo(float).eps * (height + width)
    assert box.top >= 0 and box.top + box.box_height <= height + rounding
    assert box.left >= 0 and box.left + box.box_width <= width + rounding
    if resize is None:
        assert (box.top, box.left, box.box_height, box.box_width) == (0, 0, height, width)
    else:  # central: as much cut at either end, but for half a pixel of the view
        assert abs(box.top - (height - box.top - box.box_height)) <= box.box_height / 32 + rounding
        assert abs(box.left - (width - box.left - box.box_width)) <= box.box_width / 32 + rounding


def test_a_view_of_its_own_size_is_the_image():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    for resize in (None, 32):
        view, _ = to_view(pixels, 32, resize)
        assert torch.equal(view, torch.from_numpy(pixels).permute(2, 0, 1).float() / 255)
    deep, _ = to_view(pixels.astype(np.uint16) * 257, 32, None)
    assert (deep - view).abs().max() <= 4 * torch.finfo(torch.float32).eps  # 257 · 255 = 65535


def test_the_paper_resizes_the_shorter_side_then_crops_the_centre():
    pixels = np.zeros((64, 128, 3), np.uint8)
    pixels[:, 32:96] = 255  # the central square
    view, box = to_view(pixels, 24, 32)
    assert (view == 1).all()
    assert (box.top, box.left, box.box_height, box.box_width) == (8, 40, 48, 48)
    stretched, _ = to_view(pixels, 32, None)
    assert stretched[:, :, :7].max() == 0 and stretched[:, :, 10:22].min() == 1


@given(st.integers(20, 180), st.integers(20, 180), modes, st.data())
def test_a_bright_spot_returns_to_its_place_in_the_original(height, width, resize, data):
    _, box = to_view(np.zeros((height, width, 3), np.uint8), 32, resize)
    # One pixel of the view and one of the original: the spot is at least as large as what it is seen with.
    y, x = max(1.0, box.box_height / 32), max(1.0, box.box_width / 32)
    row = data.draw(st.floats(box.top + 2 * y, box.top + box.box_height - 2 * y), "row")
    column = data.draw(st.floats(box.left + 2 * x, box.left + box.box_width - 2 * x), "column")
    rows, columns = np.arange(height)[:, None] + 0.5, np.arange(width)[None] + 0.5
    spot = np.exp(-0.5 * (((rows - row) / y) ** 2 + ((columns - column) / x) ** 2))
    pixels = np.repeat((255 * spot).astype(np.uint8)[..., None], 3, axis=2)
    view, box = to_view(pixels, 32, resize)
    found = box.unproject(view.mean(dim=0).numpy())
    assert found.shape == (height, width)
    weights = np.where(np.isnan(found) | (found < 0.5 * np.nanmax(found)), 0, found)
    centre = (weights * rows).sum() / weights.sum(), (weights * columns).sum() / weights.sum()
    # Half a pixel for rounding the box to whole ones, half for the sampling of the thresholded spot.
    assert abs(centre[0] - row) <= 0.5 + 0.5 * y
    assert abs(centre[1] - column) <= 0.5 + 0.5 * x


@given(sides, sides)
def test_unproject_is_nan_exactly_where_the_model_did_not_look(height, width):
    view, box = to_view(np.full((height, width, 3), 255, np.uint8), 32, 40)
    found = box.unproject(view[0].numpy())
    assert found.shape == (height, width)
    # A white image stays white but for the rounding of the two resamplings' weights, at most ~10 taps an axis.
    assert np.nanmax(np.abs(found - 1)) <= 64 * np.finfo(np.float32).eps
    seen = ~np.isnan(found)
    rows, columns = seen.any(axis=1), seen.any(axis=0)
    assert np.array_equal(seen, rows[:, None] & columns)
    assert abs(rows.sum() - box.box_height) <= 1 and abs(columns.sum() - box.box_width) <= 1
    _, whole = to_view(np.zeros((height, width, 3), np.uint8), 32, None)
    assert not np.isnan(whole.unproject(view[0].numpy())).any()


@pytest.mark.parametrize(("height", "width"), [(4, 400), (400, 4), (1, 97), (97, 1)])
@pytest.mark.parametrize("resize", [None, 40])
def test_elongated_images_keep_their_middle(height, width, resize):
    pixels = np.zeros((height, width, 3), np.uint8)
    longer = max(height, width)
    middle = slice(longer // 2 - 2, longer // 2 + 3)
    pixels[(slice(None), middle) if width > height else middle] = 255
    view, box = to_view(pixels, 32, resize)
    found = np.nan_to_num(box.unproject(view.mean(dim=0).numpy()))
    line = found.sum(axis=0) if width > height else found.sum(axis=1)
    centre = (line * np.arange(longer)).sum() / line.sum()
    assert abs(centre - longer // 2) <= 1


def test_a_thin_strip_is_not_enlarged_beyond_what_an_image_may_have(monkeypatch):
    def careful(image, target, **options):
        assert target[0] * target[1] <= pixels.MAX_PIXELS
        return torch.zeros(*image.shape[:2], *target)

    monkeypatch.setattr(images.F, "interpolate", careful)
    to_view(np.zeros((8, 20_000, 3), np.uint8), 224, 256)


MEASURE = """
import sys
from nfad.vision.images import load_part, to_view

def memory(name):
    [line] = [line for line in open("/proc/self/status") if line.startswith(name)]
    return 1024 * int(line.split()[1])

before = memory("VmRSS")
open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far, see proc(5)
to_view(load_part(sys.argv[1]), 224, None)
print(memory("VmHWM") - before)
"""
SIDE = 6000


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a peak of memory and forgets it"
)
@pytest.mark.parametrize(
    ("shape", "kind", "budget"), [((3,), np.uint8, 8), ((4,), np.uint8, 8), ((), np.uint8, 8), ((), np.uint16, 11)]
)
def test_a_large_photo_takes_no_more_memory_than_its_budget(tmp_path, shape, kind, budget):
    """Bytes a pixel: what the decoder has and our copy, or our copy and one channel in floats."""
    Image.fromarray(np.zeros((SIDE, SIDE, *shape), kind)).save(tmp_path / "a.png", compress_level=1)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", MEASURE, tmp_path / "a.png"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert int(done.stdout) < budget * SIDE**2 + 50_000_000  # and what the first photo sets up


@pytest.mark.parametrize("resize", [None, 72])
def test_a_large_photo_is_seen_as_if_it_were_not(monkeypatch, resize):
    photo = np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)
    wanted, geometry = to_view(photo, 64, resize)
    monkeypatch.setattr(images, "LARGE", 0)
    found, where = to_view(photo, 64, resize)
    assert geometry == where
    torch.testing.assert_close(found, wanted, rtol=0, atol=4 * torch.finfo(torch.float32).eps)
