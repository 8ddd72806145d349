"""The qualitative figure: photo, control map and NFAD map side by side, and which test images stand for the others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from nfad.data.listing import SOURCE
from nfad.errors import NfadError
from nfad.evaluation.evaluate import ImageResult
from nfad.evaluation.metrics import image_metrics
from nfad.paper.canvas import blank, check_path, save, styled
from nfad.paper.panels import INK
from nfad.records import Prediction
from nfad.report.pictures import HIGH, check_pair, overlay

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Picture = tuple[np.ndarray, Prediction, np.ndarray | None, str]  # photo, verdict, mask (None: normal), label

TRUTH = "#00e676"  # a green that the colour scale lacks
DPI = 320  # about as many pixels as a view has
# In inches.
SIDE, GAP, BETWEEN, MARGIN = 0.8, 0.03, 0.2, 0.28
HEAD, LINE, FOOT = 0.2, 0.155, 0.42
TALLEST = 1.5  # of a view's height over its width: a longer one is shown narrower


def choose(images: Sequence[ImageResult], count: int, source: str = SOURCE) -> list[int]:
    """Up to `count` defects and `count` normals of every shifted domain: typical ones, not those that flatter.

    Defects: of those that both arms rank above the middle of their domain's normals, the ones whose gain in rank is
    nearest the median gain. Normals: of the half with the higher control scores, where false alarms come from, the
    ones whose fall in score is nearest the median fall. Ties go to the control score nearest the median, then to the
    earlier image. First a defect of each domain, then the second ones; normals after them alike. Without a domain
    other than `source`, that one is shown.
    """
    domains = list(dict.fromkeys(image.sample.domain for image in images))
    shifted = [domain for domain in domains if domain != source] or domains
    found = []
    for pick in (_defects, _normals):
        by_domain = [pick(images, domain)[:count] for domain in shifted]
        found += [index for turn in zip_longest(*by_domain) for index in turn if index is not None]
    return found


def triplets(pictures: Sequence[Picture], path: Path, across: int = 3, high: float = HIGH) -> Path:
    """Write the figure as PNG or PDF. Maps run from z = 0 to `high` everywhere, so that they can be compared.

    A picture is the photo (or a smaller copy of it), its prediction, its ground truth in the model's view, None for a
    normal image, and a label.
    """
    path = Path(path)
    check_path(path)
    return save(figure(pictures, across, high), path, DPI)


def figure(pictures: Sequence[Picture], across: int = 3, high: float = HIGH) -> Figure:
    """Defects above, normals below a dotted line, `across` triplets in a line."""
    if not pictures or across < 1:
        raise NfadError(f"the figure needs pictures and 1 or more of them in a line; got {len(pictures)} and {across}")
    defects = [picture for picture in pictures if picture[2] is not None]
    normals = [picture for picture in pictures if picture[2] is None]
    parts = [(word, part, below) for word, part, below in (("defects", defects, 2), ("normals", normals, 1)) if part]
    across = min(across, max(len(part) for _, part, _ in parts))
    tall = SIDE * min(TALLEST, max(_proportion(prediction) for _, prediction, _, _ in pictures))
    width = MARGIN + across * (3 * SIDE + 2 * GAP + BETWEEN)
    heights = [-(-len(part) // across) * (HEAD + tall + below * LINE + 0.08) for _, part, below in parts]
    with styled():
        page = blank(width, HEAD + sum(heights) + 0.16 * (len(parts) - 1) + FOOT)
        sheet = page.add_axes((0, 0, 1, 1))
        sheet.set(xlim=(0, width), ylim=(page.get_figheight(), 0))
        sheet.set_axis_off()
        for place in range(across):
            for column, word in enumerate(("photo", "control", "NFAD")):
                x = MARGIN + place * (3 * SIDE + 2 * GAP + BETWEEN) + column * (SIDE + GAP) + SIDE / 2
                sheet.text(x, HEAD * 0.6, word, ha="center", va="center", fontsize=9, fontweight="bold")
        top = HEAD
        for (word, part, below), height in zip(parts, heights, strict=True):
            if top > HEAD:
                sheet.plot((0.05, width - 0.05), (top + 0.06, top + 0.06), color=INK, lw=1.2, ls=":")
                top += 0.16
            sheet.text(0.13, top + height / 2, word, rotation=90, ha="center", va="center", fontsize=9, style="italic")
            for index, picture in enumerate(part):
                line, place = divmod(index, across)
                left = MARGIN + place * (3 * SIDE + 2 * GAP + BETWEEN)
                _triplet(page, sheet, picture, left, top + line * (HEAD + tall + below * LINE + 0.08), tall, high)
            top += height
        _scale(sheet, width, top + 0.14, high, bool(defects))
    return page


def _triplet(page: Figure, sheet: Axes, picture: Picture, left: float, top: float, tall: float, high: float) -> None:
    photo, prediction, mask, label = picture
    check_pair(photo, prediction)
    if mask is not None and mask.shape != prediction.map.shape:
        raise NfadError(f"a mask must have the model's view, {prediction.map.shape}; got {mask.shape} for {label}")
    middle = left + 1.5 * SIDE + GAP
    sheet.text(middle, top + HEAD / 2, shorten(label, 40, placeholder=" …"), ha="center", va="center", fontsize=8)
    view = _seen(photo, prediction)
    shown = (view, overlay(view, prediction.unfiltered_map, high), overlay(view, prediction.map, high))
    proportion = _proportion(prediction)
    for place, pixels in enumerate(shown):
        x, y = left + place * (SIDE + GAP), page.get_figheight() - top - HEAD - tall
        size = (page.get_figwidth(), page.get_figheight())
        ax = page.add_axes((x / size[0], y / size[1], SIDE / size[0], tall / size[1]))
        ax.set_axis_off()
        rows, columns = pixels.shape[:2]
        ax.imshow(pixels, extent=(0, columns, rows * proportion, 0), interpolation="antialiased")
        if mask is not None and mask.any() and not mask.all():
            ax.contour(
                np.arange(columns) + 0.5, (np.arange(rows) + 0.5) * proportion, mask, levels=[0.5], colors=[TRUTH],
                linewidths=1,
            )  # fmt: skip
    control = _against(prediction.unfiltered_score, prediction.unfiltered_threshold)
    lines = [f"score {control} → {_against(prediction.score, prediction.threshold)}"]
    if mask is not None:
        maps = (prediction.unfiltered_map, prediction.map)
        aurocs = [image_metrics(each.ravel(), mask.ravel()).auroc for each in maps]
        lines.append("pixel AUROC " + " → ".join("–" if np.isnan(each) else f"{100 * each:.1f}" for each in aurocs))
    for line, text in enumerate(lines):
        y = top + HEAD + tall + LINE * (line + 0.6)
        sheet.text(middle, y, text, ha="center", va="center", fontsize=8)


def _against(score: float, threshold: float) -> str:
    """e.g. 12.31 (> 4.55), which is an alarm; never wider than there is room for."""
    if np.isnan(score) or np.isnan(threshold):
        return "–"
    digits = 2 if score < 100 else 0
    return f"{score:.{digits}f} ({'>' if score > threshold else '≤'} {threshold:.2f})".replace("-", "−")


def _scale(sheet: Axes, width: float, top: float, high: float, truth: bool) -> None:
    """The colours as they look over mid-grey, because nowhere are they seen without something below."""
    ramp = np.tile(np.linspace(0, high, 256), (8, 1))
    colours = overlay(np.full((*ramp.shape, 3), 128, np.uint8), ramp, high)
    left = width / 2 - (0.2 if truth else 0.75)
    sheet.imshow(colours, extent=(left, left + 1.5, top + 0.12, top), aspect="auto")
    sheet.text(left - 0.06, top + 0.06, "z 0", ha="right", va="center", fontsize=8)
    sheet.text(left + 1.56, top + 0.06, f"{high:g}", ha="left", va="center", fontsize=8)
    if truth:
        sheet.plot((left - 1.65, left - 1.4), (top + 0.06, top + 0.06), color=TRUTH, lw=1.6)
        sheet.text(left - 1.34, top + 0.06, "ground truth", ha="left", va="center", fontsize=8)


def _seen(photo: np.ndarray, prediction: Prediction) -> np.ndarray:
    """The part of the photo that the model looked at, in as many pixels as its maps have."""
    geometry, (height, width) = prediction.geometry, photo.shape[:2]
    box = (0, 0, width, height)
    if geometry is not None:
        down, right = height / geometry.height, width / geometry.width
        box = (
            geometry.left * right, geometry.top * down,
            min(width, (geometry.left + geometry.box_width) * right),
            min(height, (geometry.top + geometry.box_height) * down),
        )  # fmt: skip
    rows, columns = prediction.map.shape
    return np.asarray(Image.fromarray(photo).resize((columns, rows), Image.Resampling.LANCZOS, box=box))


def _proportion(prediction: Prediction) -> float:
    geometry = prediction.geometry
    return 1.0 if geometry is None else geometry.box_height / geometry.box_width


def _defects(images: Sequence[ImageResult], domain: str) -> list[int]:
    normals = [image for image in images if image.sample.domain == domain and not image.sample.anomalous]
    ranks = {}
    for index, image in enumerate(images):
        if image.sample.domain == domain and image.sample.anomalous:
            unfiltered = _rank(image.unfiltered_score, [each.unfiltered_score for each in normals])
            ranks[index] = unfiltered, _rank(image.score, [each.score for each in normals])
    seen = [index for index, both in ranks.items() if min(both) >= 0.5]
    return _typical(images, seen, [ranks[index][1] - ranks[index][0] for index in seen])


def _normals(images: Sequence[ImageResult], domain: str) -> list[int]:
    normals = [index for index, each in enumerate(images) if each.sample.domain == domain and not each.sample.anomalous]
    middle = np.median([images[index].unfiltered_score for index in normals]) if normals else 0
    high = [index for index in normals if images[index].unfiltered_score >= middle]
    return _typical(images, high, [images[index].unfiltered_score - images[index].score for index in high])


def _rank(score: float, among: Sequence[float]) -> float:
    """Share that it exceeds, equal ones by half: an image's part in the AUROC; the middle where there is none."""
    return float(np.mean([(score > each) + 0.5 * (score == each) for each in among])) if among else 0.5


def _typical(images: Sequence[ImageResult], candidates: Sequence[int], gains: Sequence[float]) -> list[int]:
    """The candidates from the most ordinary to the least."""
    if not candidates:
        return []
    unfiltered = np.array([images[index].unfiltered_score for index in candidates])
    far = np.abs(np.array(gains) - np.median(gains)), np.abs(unfiltered - np.median(unfiltered))
    return [index for *_, index in sorted(zip(*far, candidates, strict=True))]
