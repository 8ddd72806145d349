"""Files or arrays from strangers → pixels, and where the model will look in them; without torch, for a line PC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from nfad.errors import NfadError
from nfad.records import Geometry

SUFFIXES = frozenset({".gif", ".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})
# What cameras write, with the usual suffix. Pillow reads more, but some of it with the help of other programs
# (Ghostscript for EPS), and what is judged may come from strangers.
FORMATS = {
    "PNG": ".png", "JPEG": ".jpg", "TIFF": ".tif", "BMP": ".bmp", "WEBP": ".webp", "GIF": ".gif", "PPM": ".ppm",
}  # fmt: skip
MAX_PIXELS = 100_000_000  # a decompression bomb is refused from its header, before a pixel is decoded
DEEP = ("I;16", "I;16B", "I;16L", "I")  # modes with more than 8 bits
STRIP = 256  # rows that are converted at once
MIN_SIDE = 16  # a patch: less than that is no picture of a part
ImageLike = str | Path | np.ndarray


def find_images(root: Path) -> Iterator[Path]:
    """All images below a folder, sorted by path; hidden files and macOS metadata are skipped."""
    if not root.exists():
        raise NfadError(f"{root} does not exist; name a folder of images or an image file")
    if root.is_file():
        yield root
        return
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if (
            path.suffix.lower() in SUFFIXES
            and path.is_file()
            and not any(p.startswith(".") or p == "__MACOSX" for p in parts)
        ):
            yield path


def load_image(image: ImageLike) -> np.ndarray:
    """A path or an array (grey, RGB, RGBA; 8 or 16 bit) → (height, width, 3), uint8 or uint16, upright.

    Transparent pixels are laid over white, as an image viewer shows them.
    """
    if isinstance(image, np.ndarray):
        return _three_channels(image, "the array")
    path = Path(image)
    try:
        with Image.open(path, formats=tuple(FORMATS)) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise NfadError(
                    f"{path} has {opened.width}×{opened.height} pixels; at most {MAX_PIXELS // 10**6} million are "
                    "read; scale it down first"
                )
            if (frames := getattr(opened, "n_frames", 1)) > 1:
                raise NfadError(f"{path} holds {frames} frames; save the one to inspect as an image of its own")
            ImageOps.exif_transpose(opened, in_place=True)
            if opened.mode == "F":
                raise NfadError(f"{path} holds floating-point pixels, whose range is unknown; save 8 or 16 bits")
            pixels = np.empty((opened.height, opened.width, 3), np.uint16 if opened.mode in DEEP else np.uint8)
            # Strip by strip: of a large photo there are the decoder's pixels and ours, and no third copy.
            for top in range(0, opened.height, STRIP):
                rows = opened.crop((0, top, opened.width, min(top + STRIP, opened.height)))
                pixels[top : top + STRIP] = _three_channels(_channels(rows, path), str(path))
            return pixels
    except (NfadError, MemoryError):  # a shortage of ours is no fault of the file
        raise
    except IsADirectoryError:
        raise NfadError(f"{path} is a folder, not an image") from None
    except FileNotFoundError:
        raise NfadError(f"{path} does not exist") from None
    except Image.DecompressionBombError:
        raise NfadError(f"{path} unpacks to far more pixels than an inspection image has; scale it down") from None
    except UnidentifiedImageError:
        if path.stat().st_size == 0:
            raise NfadError(f"{path} is empty (0 bytes)") from None
        raise NfadError(
            f"{path} is not an image in a format that is read (PNG, JPEG, TIFF, BMP, WebP, GIF or PPM); "
            "save it as one of these"
        ) from None
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise NfadError(f"{path} cannot be read as an image: {error}; is the file complete?") from None


def _channels(rows: Image.Image, path: Path) -> np.ndarray:
    """As they are stored, but for palettes and the like."""
    if rows.mode in DEEP:
        pixels = np.asarray(rows)
        if pixels.min() < 0 or pixels.max() > 65535:
            raise NfadError(f"{path} holds 32-bit values outside 0..65535; save it with 8 or 16 bits")
        return pixels.astype(np.uint16)
    has_alpha = rows.mode in ("RGBA", "LA", "PA") or "transparency" in rows.info
    return np.asarray(rows if rows.mode == "RGB" and not has_alpha else rows.convert("RGBA" if has_alpha else "RGB"))


def photo_of(path: str | Path) -> np.ndarray:
    """The image as a person sees it: upright, three channels, 8 bits."""
    return eight_bits(load_image(path))


def eight_bits(pixels: np.ndarray) -> np.ndarray:
    """Pixels of 8 or 16 bits in 8."""
    return pixels if pixels.dtype == np.uint8 else (pixels >> 8).astype(np.uint8)


def load_part(image: ImageLike) -> np.ndarray:
    """The same for an image to be fitted on or judged, which must be large enough to show a part."""
    pixels = load_image(image)
    if min(pixels.shape[:2]) < MIN_SIDE:
        name = "the array" if isinstance(image, np.ndarray) else image
        raise NfadError(f"{name} is {pixels.shape[1]}×{pixels.shape[0]}; at least {MIN_SIDE} pixels a side are needed")
    return pixels


def _three_channels(pixels: np.ndarray, name: str) -> np.ndarray:
    if pixels.dtype not in (np.uint8, np.uint16):
        raise NfadError(f"{name} holds {pixels.dtype}; images are uint8 or uint16")
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or 0 in pixels.shape:
        raise NfadError(f"{name} has shape {pixels.shape}; give (height, width) or (height, width, 1, 3 or 4 channels)")
    if pixels.shape[0] * pixels.shape[1] > MAX_PIXELS:
        raise NfadError(f"{name} has more than {MAX_PIXELS // 10**6} million pixels; scale it down first")
    if pixels.shape[2] == 4:
        top = np.iinfo(pixels.dtype).max
        alpha = pixels[..., 3:].astype(np.float32) / top
        pixels = np.rint(pixels[..., :3] * alpha + top * (1 - alpha)).astype(pixels.dtype)
    return pixels if pixels.shape[2] == 3 else np.repeat(pixels, 3, axis=2)


@dataclass(frozen=True)
class Framing:
    """How an image becomes the model's view, rows before columns: what is left out at either end, the sides after
    resizing the rest, and where in that the view begins."""

    spare: tuple[int, int]
    target: tuple[int, int]
    start: tuple[int, int]
    geometry: Geometry


def framing(height: int, width: int, size: int, resize: int | None) -> Framing:
    """With `resize` (the paper): shorter side to `resize`, then the central `size`². Without: the whole image,
    stretched, so that a defect at the border is seen too.

    In whole numbers only, so that an exported graph finds the same rows and columns.
    """
    if resize is None:
        return Framing((0, 0), (size, size), (0, 0), Geometry(height, width, 0, 0, height, width))
    sides, shorter = (height, width), min(height, width)
    # A long strip would be enlarged as a whole before its centre is cropped; as much goes from either end.
    spare = [(side - 3 * shorter) // 2 if side > 4 * shorter else 0 for side in sides]
    rest = [side - 2 * gone for side, gone in zip(sides, spare, strict=True)]
    target = [max(size, _rounded(side * resize, shorter)) for side in rest]
    start = [(side - size) // 2 for side in target]
    scale = [before / after for before, after in zip(rest, target, strict=True)]
    top, left = (gone + first * step for gone, first, step in zip(spare, start, scale, strict=True))
    geometry = Geometry(height, width, top, left, size * scale[0], size * scale[1])
    return Framing(_pair(spare), _pair(target), _pair(start), geometry)


def _pair(values: list[int]) -> tuple[int, int]:
    rows, columns = values
    return rows, columns


def _rounded(numerator: int, denominator: int) -> int:
    """numerator / denominator to the nearest whole number, halves to the even one, as `round` does."""
    whole, rest = divmod(2 * numerator + denominator, 2 * denominator)
    return whole - (rest == 0 and whole % 2)


def resize_weights(before: int, after: int) -> np.ndarray:
    """Antialiased bilinear resizing of one axis as a matrix (after, before), as torch and Pillow do it.

    Triangles about half-pixel centres, as wide as the reduction; each row sums to one. Distances are whole numbers in
    units of half a pixel over `after`, so that they are exact.
    """
    centres, pixels = (2 * np.arange(after) + 1) * before, (2 * np.arange(before) + 1) * after
    weights = np.maximum(1 - np.abs(centres[:, None] - pixels[None]) / (2 * max(before, after)), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)
