"""Z-score maps made visible. One fixed colour scale for all pictures, so that two of them can be compared.

Everything here is numpy in, numpy out; sizes are bounded because a photo may have 20 million pixels.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import wrap

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from nfad.errors import NfadError
from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED, Prediction
from nfad.system.files import replacing

HIGH = 10.0  # full colour: about twice where a threshold on z-scores usually lies
SIDE = 1024  # longest side of a panel in a PNG
OPACITY = 0.75  # even the strongest colour lets the part's texture through
# A verdict's colour, and how many corners its sign has; the word decides, these only help.
SIGNS = {NORMAL: ("#8fd9bd", 24), ANOMALOUS: ("#ff9a7a", 3), NOT_JUDGED: ("#c6b3fb", 4)}
CONTOUR = (0, 229, 255)  # cyan occurs neither in the scale nor, often, on a part

# Every 16th colour of matplotlib's inferno (CC0): lightness rises evenly, also for colour-blind eyes.
INFERNO = (
    "000004 0b0724 210c4a 3d0965 57106e 71196e 8a226a a32c61 bc3754 "
    "d24644 e45a31 f1731d f98e09 fcac11 f9cb35 f2ea69 fcffa4"
)


def _colour_table() -> np.ndarray:
    """256 RGBA colours; opacity follows smoothstep so that the noise of a normal part stays invisible."""
    anchors = np.array([tuple(bytes.fromhex(colour)) for colour in INFERNO.split()], dtype=float)
    step = np.linspace(0, 1, 256)
    rgb = np.stack([np.interp(step, np.linspace(0, 1, len(anchors)), channel) for channel in anchors.T], axis=1)
    alpha = 255 * OPACITY * step**2 * (3 - 2 * step)
    return np.column_stack([rgb, alpha]).round().astype(np.uint8)


COLOURS = _colour_table()


def full_at(threshold: float) -> float:
    """The z-score at which a heatmap is at its fullest: twice the threshold, so that a borderline part is half lit."""
    return round(max(6.0, 2 * threshold), 1)


def levels(view: np.ndarray, low: float = 0.0, high: float = HIGH) -> np.ndarray:
    """Index of each z-score in COLOURS; 0, which is transparent, where the model did not look (NaN)."""
    if not high > low:
        raise NfadError(f"the colour scale must run upwards; got low {low:g} and high {high:g}: choose a larger high.")
    scaled = (np.asarray(view, dtype=np.float32) - low) * (255 / (high - low))
    return np.nan_to_num(scaled, nan=0, posinf=255).clip(0, 255).astype(np.uint8)


def heatmap(view: np.ndarray, low: float = 0.0, high: float = HIGH) -> np.ndarray:
    """The map alone, RGBA: `low` and below, and NaN, are transparent; `high` and above are full."""
    return COLOURS[levels(view, low, high)]


def contour(view: np.ndarray, level: float, thickness: int = 1) -> np.ndarray:
    """The inner border, as booleans, of the regions above `level`. The photo's own edge is no border."""
    above = view > level  # false for NaN
    inside = above
    for _ in range(thickness):
        framed = np.pad(inside, 1, constant_values=True)
        inside = inside & framed[:-2, 1:-1] & framed[2:, 1:-1] & framed[1:-1, :-2] & framed[1:-1, 2:]
    return above & ~inside


def overlay(photo: np.ndarray, view: np.ndarray, high: float = HIGH, level: float | None = None) -> np.ndarray:
    """The map over the photo it belongs to, pixel by pixel; where z <= 0 the photo is unchanged.

    With a `level`, regions above it are outlined.
    """
    check_photo(photo)
    if view.shape != photo.shape[:2]:
        raise NfadError(
            f"a map must have its photo's size {photo.shape[:2]}; got {view.shape}: lay it over with laid_over() first."
        )
    heat = heatmap(view, high=high).astype(np.uint16)
    colour, alpha = heat[..., :3], heat[..., 3:]
    blended = ((photo * (255 - alpha) + colour * alpha + 127) // 255).astype(np.uint8)
    if level is not None:
        blended[contour(view, level, thickness=max(1, round(max(view.shape) / 400)))] = CONTOUR
    return blended


def outlined_at(rejected: bool, threshold: float) -> float:
    """Where to outline a map: at its threshold; nowhere (NaN) on a part that passes: it would look like a defect."""
    return threshold if rejected else np.nan


def check_photo(photo: np.ndarray) -> None:
    """Refuse what is not a picture as everything here expects it."""
    if photo.dtype != np.uint8 or photo.ndim != 3 or photo.shape[2] != 3 or 0 in photo.shape:
        raise NfadError(
            f"a photo must be uint8 of shape (height, width, 3); got {photo.dtype} {photo.shape}: convert it to RGB."
        )


def check_pair(photo: np.ndarray, prediction: Prediction) -> None:
    """Refuse a photo whose proportions say that the prediction is not about it; a reduced copy is welcome."""
    check_photo(photo)
    (height, width), judged = photo.shape[:2], prediction.geometry
    # One pixel of rounding in the copy's size, in products of both sizes.
    if judged and abs(height * judged.width - width * judged.height) > max(judged.height, judged.width):
        raise NfadError(
            f"a photo must have the proportions of what was judged; got {width}x{height} for "
            f"{prediction.source or 'an array'} of {judged.width}x{judged.height}: pass that photo or a copy of it."
        )


def bounded(photo: np.ndarray, side: int = SIDE, least: int = 1) -> np.ndarray:
    """The photo with its longest side brought into least..side; the very same array if it is there already."""
    check_photo(photo)
    height, width = photo.shape[:2]
    longest = max(height, width)
    wanted = min(max(longest, least), side)
    if wanted == longest:
        return photo
    size = max(1, round(width * wanted / longest)), max(1, round(height * wanted / longest))
    # reducing_gap: shrink by whole numbers first, many times faster on a big photo and no visible difference.
    return np.asarray(Image.fromarray(photo).resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0))


def laid_over(prediction: Prediction, view: np.ndarray, height: int, width: int) -> np.ndarray:
    """One of the prediction's maps over its photo when that is shown at height x width.

    The geometry is scaled rather than the map laid over the original, whose size has no bound.
    """
    geometry = prediction.geometry
    if geometry is None:
        return np.asarray(Image.fromarray(view.astype(np.float32)).resize((width, height), Image.Resampling.BILINEAR))
    down, right = height / geometry.height, width / geometry.width
    shown = replace(
        geometry,
        height=height,
        width=width,
        top=geometry.top * down,
        left=geometry.left * right,
        box_height=geometry.box_height * down,
        box_width=geometry.box_width * right,
    )
    return shown.unproject(view)


def triptych(photo: np.ndarray, prediction: Prediction, high: float = HIGH, side: int = SIDE) -> np.ndarray:
    """Photo | unfiltered map | filtered map, on one colour scale, above a strip that tells the verdict.

    Each panel's longest side is at most `side`; a small photo is enlarged to where the captions are readable.
    """
    check_pair(photo, prediction)
    shown = bounded(photo, side, least=min(384, side))
    height, width = shown.shape[:2]
    unfiltered = laid_over(prediction, prediction.unfiltered_map, height, width)
    level = outlined_at(prediction.unfiltered_verdict == ANOMALOUS, prediction.unfiltered_threshold)
    filtered = laid_over(prediction, prediction.map, height, width)
    panels = [
        ("Photo", shown),
        (
            "Unfiltered  " + compared(prediction.unfiltered_score, prediction.unfiltered_threshold),
            overlay(shown, unfiltered, high, level),
        ),
        (
            "Filtered  " + compared(prediction.score, prediction.threshold),
            overlay(shown, filtered, high, outlined_at(prediction.verdict == ANOMALOUS, prediction.threshold)),
        ),
    ]
    return _with_captions(panels, prediction, high)


def compared(score: float, threshold: float) -> str:
    """A score beside its threshold, both to two places."""
    if not (np.isfinite(score) and np.isfinite(threshold)):
        return "not measured"
    return f"{score:.2f} {'>' if score > threshold else '<='} {threshold:.2f}"


def _with_captions(panels: list[tuple[str, np.ndarray]], prediction: Prediction, high: float) -> np.ndarray:
    height, width = panels[0][1].shape[:2]
    cell = max(width, 240)  # the captions of a narrow photo need their room
    size = 13 + cell // 100
    gap, line = size, round(size * 1.5)
    font, large = ImageFont.load_default(size), ImageFont.load_default(round(size * 1.5))
    total = 3 * cell + 4 * gap
    sentences = wrap(prediction.explain(), max(20, round((total - 2 * gap) / (size * 0.52))))
    strip = gap + 2 * line + line * len(sentences) + gap
    picture = Image.new("RGB", (total, gap + line + height + strip), "#15181c")
    draw = ImageDraw.Draw(picture)
    for place, (caption, panel) in enumerate(panels):
        left = gap + place * (cell + gap)
        draw.text((left + cell / 2, gap + line / 3), caption, "#c9ced6", font, anchor="mm")
        picture.paste(Image.fromarray(panel), (left + (cell - width) // 2, gap + line))
    top = gap + line + height + gap
    ink, corners = SIGNS[prediction.verdict]
    middle = top + line / 2
    standing = 45 if corners == 4 else 0  # a lozenge rather than a box
    draw.regular_polygon((gap + size / 2, middle, size / 2), corners, standing, fill=ink)
    draw.text((gap + 1.5 * size, middle), prediction.verdict.upper(), ink, large, anchor="lm")
    # The scale as it looks over mid-grey, because nowhere is it seen without something below.
    ramp = np.tile(np.linspace(0, high, cell // 2), (size // 2, 1))
    scale = overlay(np.full((*ramp.shape, 3), 128, np.uint8), ramp, high)
    right = total - gap - round(draw.textlength(f" z {high:g}", font))
    draw.text((right, middle), f" z {high:g}", "#c9ced6", font, anchor="lm")
    picture.paste(Image.fromarray(scale), (right - cell // 2, round(middle - size // 4)))
    draw.text((right - cell // 2, middle), "outline: above the threshold    0 ", "#c9ced6", font, anchor="rm")
    for place, sentence in enumerate(sentences):
        draw.text((gap, top + line * (2 + place)), sentence, "#eef0f3", font, anchor="lm")
    return np.asarray(picture)


def save_png(array: np.ndarray, path: str | Path) -> None:
    """Write uint8 grey, RGB or RGBA as a PNG that appears whole or not at all."""
    with replacing(path, durable=False) as file:
        Image.fromarray(array).save(file, format="PNG")
