"""What one image's card shows, ready for card.html: its pictures, its verdict and what speaks for it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import isfinite
from pathlib import PurePath

import numpy as np
from PIL import Image

from nfad.errors import NfadError
from nfad.records import ANOMALOUS, ARMS, FAMILY_WORDS, NORMAL, NOT_JUDGED, Prediction
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
from nfad.stats.conformal import smallest_rate

THUMBNAIL = 480  # longest side of a photo in the page
HEAT = 160  # a map is smooth: the browser enlarges it without a visible loss
DASH = 6  # pixels of a thumbnail
PHOTO_BYTES = 40_000  # 200 images stay below 15 MB
MARKS = {NORMAL: "●", ANOMALOUS: "▲", NOT_JUDGED: "◆"}  # before the word, for those who see no colours


@dataclass(frozen=True)
class MapLayers:
    """A map, and apart from it the outline, which stays when the map is faded; both data URLs."""

    arm: str  # "unfiltered" or "filtered": how it is shown
    name: str
    heat: str
    outline: str  # "" where nothing exceeds the threshold


@dataclass(frozen=True)
class Bar:
    """A score against its threshold on a track from 0 to 100 %; `mark` is None where there is no threshold."""

    name: str
    fill: str
    mark: str | None
    over: bool
    told: str


@dataclass(frozen=True)
class Share:
    """A family's part of the deviation's energy."""

    tint: str  # the class that colours it
    part: float
    words: str


@dataclass(frozen=True)
class Card:
    """An image with a verdict; pictures are data URLs."""

    name: str
    folder: str
    verdict: str
    mark: str
    changed: bool
    score: str  # to sort by, "" where it is not a number or says nothing
    tags: tuple[str, ...]
    ratio: str  # of width to height
    photo: str
    truth: str  # the ground truth's outline, "" where there is no defect
    maps: tuple[MapLayers, ...]
    explanation: str
    bars: tuple[Bar, ...]
    meaning: str  # of the score, in words
    shares: tuple[Share, ...]
    gate: float | None


@dataclass(frozen=True)
class Failure:
    """An image without a verdict, and why: what failure.html shows."""

    name: str
    folder: str
    message: str


def changed(prediction: Prediction) -> bool:
    """Whether the filter turned the verdict round, either way."""
    measured = isfinite(prediction.unfiltered_score) and isfinite(prediction.unfiltered_threshold)
    return measured and prediction.unfiltered_verdict != prediction.verdict


def card_of(
    photo: np.ndarray,
    prediction: Prediction,
    high: float,
    name: str,
    mask: np.ndarray | None = None,
    tags: Sequence[str] = (),
    arms: Sequence[str] = ARMS,
) -> Card:
    """The card of an image; `mask`, on the model's view, is outlined in every picture.

    Other programs' `arms` stand in the unfiltered one's place and the filtered one's; a single one in the latter.
    """
    check_pair(photo, prediction)
    photo = bounded(photo, THUMBNAIL)
    height, width = photo.shape[:2]
    # The same order in maps and bars; what follows the bars then speaks of the filtered score.
    shown = (
        ("unfiltered", prediction.unfiltered_map, prediction.unfiltered_score, prediction.unfiltered_threshold),
        ("filtered", prediction.map, prediction.score, prediction.threshold),
    )[-len(arms) :]
    ours = tuple(arms) == ARMS
    names = {place: arm.capitalize() if ours else arm for (place, *_), arm in zip(shown, arms, strict=True)}
    verdicts = {"unfiltered": prediction.unfiltered_verdict, "filtered": prediction.verdict}
    rejected = {arm: verdict == ANOMALOUS for arm, verdict in verdicts.items()}
    file_name, folder = _named(name)
    return Card(
        name=file_name,
        folder=folder,
        verdict=prediction.verdict,
        mark=MARKS[prediction.verdict],
        changed=ours and changed(prediction),
        score=f"{prediction.score:.6g}" if isfinite(prediction.score) and prediction.is_judged else "",
        tags=tuple(tags),
        ratio=f"{width / height:.4f}",
        photo=_jpeg(photo),
        truth=_truth(prediction, mask, (height, width)),
        maps=tuple(
            _layers(arm, names[arm], prediction, view, outlined_at(rejected[arm], threshold), (height, width), high)
            for arm, view, _, threshold in shown
        ),
        explanation=prediction.explain() if ours else _said({names[arm]: verdicts[arm] for arm in names}, prediction),
        bars=tuple(_bar(names[arm], score, threshold, high, rejected[arm]) for arm, _, score, threshold in shown),
        meaning=_meaning(prediction),
        shares=tuple(_shares(prediction)),
        gate=prediction.gate,
    )


def _said(verdicts: Mapping[str, str], prediction: Prediction) -> str:
    """What other programs make of it."""
    if not prediction.is_judged:
        return f"Not judged: {prediction.why_not_judged}."
    return "; ".join(f"{name}: {verdict}" for name, verdict in verdicts.items()) + "."


def failure_of(source: str, message: str) -> Failure:
    return Failure(*_named(source), message)


def _named(source: str) -> tuple[str, str]:
    """The file's name and its folder, "" if there is none."""
    path = PurePath(source)
    return path.name or source, "" if str(path.parent) == "." else str(path.parent)


def _layers(
    arm: str, name: str, prediction: Prediction, view: np.ndarray, level: float, size: tuple[int, int], high: float
) -> MapLayers:
    coarse = laid_over(prediction, view, *_fitted(size, HEAT))
    outline = contour(laid_over(prediction, view, *_fitted(size, THUMBNAIL)), level, thickness=2)
    ink = np.array([(0, 0, 0, 0), (*CONTOUR, 255)], dtype=np.uint8)
    # Every other colour: a smaller file and no visible step.
    heat = _png(levels(coarse, high=high) & 0xFE, COLOURS)
    return MapLayers(arm, name, heat, _png(outline, ink) if outline.any() else "")


def _truth(prediction: Prediction, mask: np.ndarray | None, size: tuple[int, int]) -> str:
    """The ground truth's outline; nothing if there is no defect."""
    if mask is None or not mask.any():
        return ""
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
    return _png(dashes, np.array([(0, 0, 0, 0), (255, 255, 255, 255), (0, 0, 0, 255)], dtype=np.uint8))


def _fitted(size: tuple[int, int], side: int) -> tuple[int, int]:
    height, width = (max(1, round(length * side / max(size))) for length in size)
    return height, width


def _bar(name: str, score: float, threshold: float, high: float, over: bool) -> Bar:
    fill, mark = (
        f"{100 * float(np.clip(value / high, 0, 1)):.1f}" if isfinite(value) else None for value in (score, threshold)
    )
    told = compared(score, threshold).replace("<=", "≤")  # which the font of the pictures lacks
    return Bar(name, fill or "0", mark, over, told)


def _meaning(prediction: Prediction) -> str:
    """How unusual the score is among normal parts; of a photo that is not judged, how strange that is."""
    p_value, normals = prediction.p_value, prediction.normals
    if not prediction.is_judged:
        told = f"Strangeness {prediction.strangeness:.2f}; at most 1 is judged. "
        return (told if isfinite(prediction.strangeness) else "") + "The numbers say nothing about the part."
    if not isfinite(p_value):
        return ""
    if normals and p_value <= smallest_rate(normals):  # which is as low as it gets, however high the score
        return f"above the highest score to be expected of {normals} normal parts"
    if p_value >= 0.4:  # "1 in 1" would say nothing
        return f"{p_value:.0%} of normal parts score at least this high"
    if p_value > 0:
        return f"at most 1 in {float(f'{1 / p_value:.2g}'):,.0f} normal parts scores this high"
    return "No normal part is expected to score this high"


def _shares(prediction: Prediction) -> list[Share]:
    """The deviation's energy, family by family, and what no family explains."""
    if not isfinite(prediction.nuisance_fraction):
        return []
    families = prediction.nuisance_by_family or {"acquisition": prediction.nuisance_fraction}
    shares = [
        Share(family if family in FAMILY_WORDS else "other", part, FAMILY_WORDS.get(family, f"{family}-like"))
        for family, part in families.items()
    ]
    return [*shares, Share("rest", max(0.0, 1 - prediction.nuisance_fraction), "the rest: texture, noise, defects")]


def _png(indices: np.ndarray, colours: np.ndarray) -> str:
    image = Image.fromarray(indices.astype(np.uint8)).convert("P")
    image.putpalette(colours[:, :3].tobytes())
    file = BytesIO()
    image.save(file, "PNG", optimize=True, transparency=colours[:, 3].tobytes())
    return _data("png", file)


def _jpeg(photo: np.ndarray) -> str:
    """The thumbnail at the best quality that fits; only a noisy texture ever needs less than the first."""
    for side, quality in ((THUMBNAIL, 82), (THUMBNAIL, 65), (THUMBNAIL, 45), (THUMBNAIL * 2 // 3, 40)):
        url = jpeg(bounded(photo, side), quality)
        if len(url) <= PHOTO_BYTES * 4 / 3:  # base64 writes 3 bytes as 4
            break
    return url


def jpeg(photo: np.ndarray, quality: int) -> str:
    """A photo as a data URL."""
    file = BytesIO()
    Image.fromarray(photo).save(file, "JPEG", quality=quality, optimize=True)
    return _data("jpeg", file)


def _data(kind: str, file: BytesIO) -> str:
    return f"data:image/{kind};base64,{b64encode(file.getvalue()).decode()}"
