"""One image as a piece of the page: its pictures, its verdict and what speaks for it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from math import isfinite
from pathlib import PurePath

import numpy as np
from PIL import Image

from nfad.errors import NfadError
from nfad.records import FAMILY_WORDS, Prediction
from nfad.report.pictures import (
    COLOURS,
    CONTOUR,
    bounded,
    check_pair,
    compared,
    contour,
    laid_over,
    levels,
    outlined_at,
)

THUMBNAIL = 480  # longest side of a photo in the page
HEAT = 160  # a map is smooth: the browser enlarges it without a visible loss
DASH = 6  # pixels of a thumbnail
PHOTO_BYTES = 40_000  # 200 images stay below 15 MB


def changed(prediction: Prediction) -> bool:
    """Whether the filter turned the verdict round, either way."""
    measured = isfinite(prediction.unfiltered_score) and isfinite(prediction.unfiltered_threshold)
    return bool(measured and prediction.unfiltered_is_anomalous != prediction.is_anomalous)


def judged_card(
    photo: np.ndarray,
    prediction: Prediction,
    high: float,
    name: str,
    mask: np.ndarray | None = None,
    tags: Sequence[str] = (),
) -> str:
    """The image with its maps, verdict and reasons; `mask`, on the model's view, is outlined in every picture."""
    check_pair(photo, prediction)
    photo = bounded(photo, THUMBNAIL)
    height, width = photo.shape[:2]
    kinds, badge = "card", _badge("●", "Normal")
    if prediction.is_anomalous:
        kinds, badge = "card anomalous", _badge("▲", "Anomalous")
    turned = ""
    if changed(prediction):
        kinds, turned = f"{kinds} changed", '<span class="turned">Verdict changed by the filter</span>'
    control_level = outlined_at(prediction.unfiltered_is_anomalous, prediction.unfiltered_threshold)
    without = _layers(prediction, prediction.unfiltered_map, control_level, (height, width), high)
    level = outlined_at(prediction.is_anomalous, prediction.threshold)
    filtered = _layers(prediction, prediction.map, level, (height, width), high)
    label = escape(PurePath(name).name)
    truth, marked = _truth(prediction, mask, (height, width))
    panes = _pane("photo", "Photo", label, marked) + _pane("without", "Without filter", label, without + marked)
    panes += _pane("with", "With filter", label, filtered + marked)
    score = f"{prediction.score:.6g}" if isfinite(prediction.score) else ""
    # The photo and the truth are stored once and shown three times.
    return f"""<article class="{kinds}" data-score="{score}">
<header>{badge}{_titled(name)}{_tags(tags)}{turned}</header>
<div class="body">
<div class="panes" style="--ratio: {width / height:.4f}; --photo: url({_jpeg(photo)}){truth}">
{panes}</div>
{_reading(prediction, high)}</div>
</article>
"""


def failed_card(source: str, message: str) -> str:
    """An image without a verdict, and why."""
    return f"""<article class="card failed" data-score="">
<header>{_badge("–", "Not judged")}{_titled(source)}</header>
<p>{escape(message)}</p>
</article>
"""


def _badge(sign: str, word: str) -> str:
    return f'<span class="badge"><span aria-hidden="true">{sign}</span> {word}</span>'


def _titled(source: str) -> str:
    """File name first, then its folder; isolated, so that right-to-left marks in a name cannot reorder the page."""
    path = PurePath(source)
    folder = "" if str(path.parent) == "." else f'<bdi class="folder">{escape(str(path.parent))}</bdi>'
    return f"<h3><bdi>{escape(path.name or source)}</bdi></h3>{folder}"


def _tags(words: Sequence[str]) -> str:
    return "".join(f'<bdi class="tag">{escape(word)}</bdi>' for word in words)


def _pane(kind: str, caption: str, label: str, layers: str = "") -> str:
    return (
        f'<figure class="{kind}"><div class="frame" role="img" aria-label="{caption}: {label}">{layers}</div>'
        f"<figcaption>{caption}</figcaption></figure>\n"
    )


def _layers(prediction: Prediction, view: np.ndarray, level: float, size: tuple[int, int], high: float) -> str:
    """The map, and apart from it the outline, which stays when the map is faded."""
    coarse = laid_over(prediction, view, *_fitted(size, HEAT))
    # Every other colour: a smaller file and no visible step.
    heat = f'<img class="heat" alt="" src="{_png(levels(coarse, high=high) & 0xFE, COLOURS)}">'
    outline = contour(laid_over(prediction, view, *_fitted(size, THUMBNAIL)), level, thickness=2)
    ink = np.array([(0, 0, 0, 0), (*CONTOUR, 255)], dtype=np.uint8)
    return heat + (f'<img alt="" src="{_png(outline, ink)}">' if outline.any() else "")


def _truth(prediction: Prediction, mask: np.ndarray | None, size: tuple[int, int]) -> tuple[str, str]:
    """The ground truth's outline as a style to set once and a layer that shows it; nothing if there is no defect."""
    if mask is None or not mask.any():
        return "", ""
    if mask.shape != prediction.map.shape:
        raise NfadError(
            f"a mask must lie on the model's view of {prediction.source or 'an array'}, {prediction.map.shape}; "
            f"got {mask.shape}: resize it to that view."
        )
    rows, columns = np.indices(fitted := _fitted(size, THUMBNAIL))
    # The border of what is normal lies around the defect and hides nothing of it.
    border = contour(-laid_over(prediction, mask.astype(np.float32), *fitted), -0.5, thickness=2)
    # Black and white in turn is visible on any part, and no map has it.
    dashes = np.where(border, 1 + (rows + columns) // DASH % 2, 0)
    ink = np.array([(0, 0, 0, 0), (255, 255, 255, 255), (0, 0, 0, 255)], dtype=np.uint8)
    return f"; --truth: url({_png(dashes, ink)})", '<i class="truth"></i>'


def _fitted(size: tuple[int, int], side: int) -> tuple[int, int]:
    height, width = (max(1, round(length * side / max(size))) for length in size)
    return height, width


def _reading(prediction: Prediction, high: float) -> str:
    # The same order as the maps; what follows the bars then speaks of the filtered score.
    bars = _bar("Without filter", prediction.unfiltered_score, prediction.unfiltered_threshold, high)
    bars += _bar("With filter", prediction.score, prediction.threshold, high)
    return f"""<div class="reading">
<p class="explain">{escape(prediction.explain())}</p>
<div><h4>Score against threshold</h4>
<div class="score">{bars}</div>{_odds(prediction.p_value)}</div>
<div><h4>What the deviation looks like</h4>
{_shares(prediction)}
<p>Gate {prediction.gate:.2f}<span class="soft">, the filter’s strength in the map</span></p></div>
</div>
"""


def _bar(words: str, score: float, threshold: float, high: float) -> str:
    fill, mark = (100 * float(np.clip(value / high, 0, 1)) if isfinite(value) else 0.0 for value in (score, threshold))
    told = compared(score, threshold).replace("<=", "≤")  # which the font of the pictures lacks
    tick = f'<u style="left: {mark:.1f}%"></u>' if isfinite(threshold) else ""
    return (
        f'<span>{words}</span><span class="track{" over" if score > threshold else ""}" aria-hidden="true">'
        f'<i style="width: {fill:.1f}%"></i>{tick}</span><span>{escape(told)}</span>'
    )


def _odds(p_value: float) -> str:
    if not isfinite(p_value):
        return ""
    if p_value >= 0.4:  # "1 in 1" would say nothing
        return f"<p>{p_value:.0%} of normal parts score at least this high</p>"
    if p_value > 0:
        return f"<p>at most 1 in {float(f'{1 / p_value:.2g}'):,.0f} normal parts scores this high</p>"
    return "<p>No normal part is expected to score this high</p>"


def _shares(prediction: Prediction) -> str:
    """The deviation's energy, family by family, and what no family explains."""
    families = prediction.nuisance_by_family or {"acquisition": prediction.nuisance_fraction}
    parts = [
        (family if family in FAMILY_WORDS else "other", share, FAMILY_WORDS.get(family, f"{family}-like"))
        for family, share in families.items()
    ]
    parts.append(("rest", max(0.0, 1 - prediction.nuisance_fraction), "the rest: texture, noise, defects"))
    strip = "".join(f'<i class="{tint}" style="flex: {share:.4f}"></i>' for tint, share, _ in parts if share > 0)
    key = "".join(f'<li><i class="{tint}"></i>{share:.0%} {escape(words)}</li>' for tint, share, words in parts)
    return f'<div class="shares" aria-hidden="true">{strip}</div>\n<ul class="key">{key}</ul>'


def _png(indices: np.ndarray, colours: np.ndarray) -> str:
    image = Image.fromarray(indices.astype(np.uint8)).convert("P")
    image.putpalette(colours[:, :3].tobytes())
    file = BytesIO()
    image.save(file, "PNG", optimize=True, transparency=colours[:, 3].tobytes())
    return _data("png", file)


def _jpeg(photo: np.ndarray) -> str:
    """The thumbnail at the best quality that fits; only a noisy texture ever needs less than the first."""
    for side, quality in ((THUMBNAIL, 82), (THUMBNAIL, 65), (THUMBNAIL, 45), (THUMBNAIL * 2 // 3, 40)):
        file = BytesIO()
        Image.fromarray(bounded(photo, side)).save(file, "JPEG", quality=quality, optimize=True)
        if file.tell() <= PHOTO_BYTES:
            break
    return _data("jpeg", file)


def _data(kind: str, file: BytesIO) -> str:
    return f"data:image/{kind};base64,{b64encode(file.getvalue()).decode()}"
