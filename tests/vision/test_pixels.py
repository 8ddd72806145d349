import os
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.vision.pixels import FORMATS, find_images, load_image, load_part, resize_weights

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
        (text, "not an image in a format that is read"),
        (empty, "is empty"),
        (tmp_path / "missing.png", "does not exist"),
        (tmp_path, "cannot be read|is a folder"),
    ]:
        with pytest.raises(NfadError, match=sentence) as caught:
            load_image(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["part.eps", "part.png"])
def test_what_other_programs_would_have_to_open_is_refused_whatever_its_name(tmp_path, name):
    Image.fromarray(RGB).save(tmp_path / name, "EPS")
    with Image.open(tmp_path / name) as opened:
        assert opened.format == "EPS"  # Pillow itself would pass it to Ghostscript
    with pytest.raises(NfadError, match="PNG, JPEG, TIFF, BMP, WebP, GIF or PPM"):
        load_image(tmp_path / name)


def test_every_format_that_cameras_write_is_read(tmp_path):
    for kind, suffix in FORMATS.items():
        Image.fromarray(RGB).save(tmp_path / f"part{suffix}", kind)
        assert load_image(tmp_path / f"part{suffix}").shape == RGB.shape
    assert {path.suffix for path in find_images(tmp_path)} == set(FORMATS.values())
    Image.fromarray(RGB).save(tmp_path / "one.jpg", "MPO")  # as some cameras write a JPEG
    assert load_image(tmp_path / "one.jpg").shape == RGB.shape


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


def test_a_part_is_larger_than_a_patch_and_has_one_frame(tmp_path):
    with pytest.raises(NfadError, match=r"3×40; at least 16 pixels"):
        load_part(np.zeros((40, 3), np.uint8))
    frames = [Image.new("L", (32, 32), shade) for shade in (0, 255)]
    frames[0].save(tmp_path / "two.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(NfadError, match="2 frames"):
        load_part(tmp_path / "two.gif")
    assert tmp_path / "two.gif" in list(find_images(tmp_path))  # told of, not passed over


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


@given(st.integers(4, 80), st.integers(1, 80))
def test_resizing_by_weights_is_torchs_antialiased_interpolation(before, after):
    steps = torch.eye(before, dtype=torch.float64)[None, None]
    wanted = F.interpolate(steps, (after, before), mode="bilinear", antialias=True, align_corners=False)[0, 0]
    np.testing.assert_allclose(resize_weights(before, after), wanted.numpy(), atol=1e-12)


SHORT = """
import resource, sys
from nfad.vision.pixels import load_image
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, used + 2**27))
try:
    load_image(sys.argv[1])
except MemoryError:
    print("short")
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells a process what it has taken")
def test_a_shortage_of_memory_is_not_told_as_a_damaged_file(tmp_path):
    path = saved(tmp_path, np.zeros((9000, 9000, 3), np.uint8))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SHORT, path], capture_output=True, text=True, env=environment)
    assert done.stdout == "short\n", done.stderr
