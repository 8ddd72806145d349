import struct
import warnings
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from nfad.errors import NfadError
from nfad.vision import images
from nfad.vision.images import find_images, load_image, load_part, to_view

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (7, 9, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (7, 9), dtype=np.uint8)
DEEP = RNG.integers(0, 65536, (7, 9), dtype=np.uint16)


def saved(folder, pixels, name="image.png", **options):
    picture = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    picture.save(folder / name, **options)
    return folder / name


def png_header(path, width, height):
    """A PNG that promises so many pixels and holds none."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    return path


# Formats


def test_rgb_comes_back_as_it_was(tmp_path):
    for name in ("a.png", "a.bmp", "a.tif", "a.ppm"):
        assert np.array_equal(load_image(saved(tmp_path, RGB, name)), RGB)
    assert np.array_equal(load_image(str(tmp_path / "a.png")), RGB)  # a string names a path, too


def test_grey_becomes_three_equal_channels(tmp_path):
    wanted = np.stack([GREY] * 3, axis=2)
    assert np.array_equal(load_image(saved(tmp_path, GREY)), wanted)
    assert np.array_equal(load_image(GREY), wanted)
    assert np.array_equal(load_image(GREY[..., None]), wanted)
    bilevel = Image.fromarray(np.eye(5, dtype=np.uint8) * 255).convert("1")
    assert np.array_equal(load_image(saved(tmp_path, bilevel))[..., 0], np.eye(5, dtype=np.uint8) * 255)


def test_sixteen_bits_are_kept(tmp_path):
    wanted = np.stack([DEEP] * 3, axis=2)
    for name in ("deep.png", "deep.tif"):
        found = load_image(saved(tmp_path, DEEP, name))
        assert found.dtype == np.uint16
        assert np.array_equal(found, wanted)
    assert np.array_equal(load_image(DEEP), wanted)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_transparency_is_laid_over_white(dtype):
    top = np.iinfo(dtype).max
    pixels = np.array([[[100, 50, 0, top], [100, 50, 0, 0], [0, 0, 0, top // 5]]], dtype=dtype)
    found = load_image(pixels)
    assert found.dtype == dtype
    assert found[0, 0].tolist() == [100, 50, 0]
    assert found[0, 1].tolist() == [top, top, top]
    assert found[0, 2].tolist() == [top - top // 5] * 3


def test_transparency_in_files_is_laid_over_white(tmp_path):
    rgba = np.dstack([RGB, np.zeros((7, 9), np.uint8)])
    rgba[:3, :, 3] = 255
    found = load_image(saved(tmp_path, rgba))
    assert np.array_equal(found[:3], RGB[:3])
    assert (found[3:] == 255).all()
    grey_alpha = Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(rgba[..., 3])])
    found = load_image(saved(tmp_path, grey_alpha, "la.png"))
    assert np.array_equal(found[:3, :, 0], GREY[:3]) and (found[3:] == 255).all()


def test_palettes_are_looked_up(tmp_path):
    palette = Image.fromarray(np.array([[0, 1], [2, 1]], dtype=np.uint8), "P")
    palette.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    found = load_image(saved(tmp_path, palette))
    assert found.tolist() == [[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [0, 255, 0]]]
    found = load_image(saved(tmp_path, palette, "clear.png", transparency=1))
    assert found.tolist() == [[[255, 0, 0], [255] * 3], [[0, 0, 255], [255] * 3]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_camera_held_sideways_is_turned_upright(tmp_path, orientation):
    # What the EXIF orientation says must be done to the stored pixels to see the scene.
    upright = {
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: np.rot90(a, 2),
        4: np.flipud,
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: np.rot90(a, 2).transpose(1, 0, 2),
        8: lambda a: np.rot90(a, 1),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = load_image(saved(tmp_path, RGB, exif=exif))
    assert np.array_equal(found, upright[orientation](RGB))


# What strangers send


def test_damaged_and_foreign_files_are_told_in_one_sentence(tmp_path):
    whole = saved(tmp_path, np.kron(RGB, np.ones((20, 20, 1), np.uint8)), "whole.jpg").read_bytes()
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(whole[: len(whole) // 2])
    text = tmp_path / "notes.png"
    text.write_text("not an image")
    empty = tmp_path / "empty.png"
    empty.write_bytes(b"")
    for path, sentence in [
        (cut, "is the file complete"),
        (text, "not an image in a known format"),
        (empty, "is empty"),
        (tmp_path / "missing.png", "does not exist"),
        (tmp_path, "cannot be read|is a folder"),
    ]:
        with pytest.raises(NfadError, match=sentence) as caught:
            load_image(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("width", "height"), [(20_000, 20_000), (12_000, 10_000), (2**31 - 1, 1)])
def test_a_decompression_bomb_is_refused_from_its_header(tmp_path, width, height):
    path = png_header(tmp_path / "bomb.png", width, height)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of some sizes itself
        with pytest.raises(NfadError, match="scale it down"):
            load_image(path)


def test_pixels_whose_range_is_unknown_are_refused(tmp_path):
    with pytest.raises(NfadError, match="floating-point"):
        load_image(saved(tmp_path, GREY.astype(np.float32), "float.tif"))
    with pytest.raises(NfadError, match=r"outside 0\.\.65535"):
        load_image(saved(tmp_path, np.full((3, 3), 70_000, np.int32), "wide.tif"))
    for dtype in (np.float32, np.float64, np.int64, bool):
        with pytest.raises(NfadError, match="uint8 or uint16"):
            load_image(RGB.astype(dtype))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0, 3), (4, 4, 2), (4, 4, 5), (4,), (1, 4, 4, 3), (4, 4, 0), ()])
def test_arrays_that_are_no_image_are_refused(shape):
    with pytest.raises(NfadError, match="shape"):
        load_image(np.zeros(shape, np.uint8))


# Folders


def test_images_are_found_sorted_and_metadata_skipped(tmp_path):
    for name in [
        "b.png",
        "a.JPG",
        "sub/c.tiff",
        "notes.txt",
        ".hidden.png",
        ".cache/d.png",
        "__MACOSX/e.png",
        "sub/._c.tiff",
    ]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = [path.relative_to(tmp_path).as_posix() for path in find_images(tmp_path)]
    assert found == ["a.JPG", "b.png", "sub/c.tiff"]


def test_a_hidden_place_above_the_folder_does_not_matter(tmp_path):
    folder = tmp_path / ".work" / "parts"
    folder.mkdir(parents=True)
    saved(folder, RGB)
    assert list(find_images(folder)) == [folder / "image.png"]


def test_a_single_file_is_its_own_folder_and_a_missing_one_is_told(tmp_path):
    path = saved(tmp_path, RGB)
    assert list(find_images(path)) == [path]
    with pytest.raises(NfadError, match="does not exist"):
        list(find_images(tmp_path / "nowhere"))


def test_a_folder_named_like_an_image_is_no_image(tmp_path):
    (tmp_path / "part.png").mkdir()
    saved(tmp_path / "part.png", RGB)
    assert list(find_images(tmp_path)) == [tmp_path / "part.png" / "image.png"]


# The model's view

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
    pixels = RNG.integers(0, 256, (32, 32, 3), dtype=np.uint8)
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
        assert target[0] * target[1] <= images.MAX_PIXELS
        return torch.zeros(*image.shape[:2], *target)

    monkeypatch.setattr(images.F, "interpolate", careful)
    to_view(np.zeros((8, 20_000, 3), np.uint8), 224, 256)


def test_a_part_is_larger_than_a_patch_and_has_one_frame(tmp_path):
    with pytest.raises(NfadError, match=r"3×40; at least 16 pixels"):
        load_part(np.zeros((40, 3), np.uint8))
    frames = [Image.new("L", (32, 32), shade) for shade in (0, 255)]
    frames[0].save(tmp_path / "two.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(NfadError, match="2 frames"):
        load_part(tmp_path / "two.gif")
    assert tmp_path / "two.gif" in list(find_images(tmp_path))  # told of, not passed over
