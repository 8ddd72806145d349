"""Exact detection and localization metrics: arrays in, floats out.

Everything is read off one `Curve`, which needs the normal scores sorted once and never an argsort over all pixels:
a threshold that no anomalous score sets raises the false positives alone, so AP gains nothing there, F1 falls and the
ROC and PRO curves run flat. The thresholds that anomalous scores do set, usually few, are looked up among the normal.

A metric that its data leave undefined is NaN: AUROC and AUPRO without both classes, AP and F1-max without an anomaly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy import integrate, ndimage

from nfad.errors import NfadError

FPR_LIMIT = 0.3
STEPS = 200
EIGHT_NEIGHBOURS = np.ones((3, 3), dtype=int)
PROTOCOLS = ("mvtec", "dinomaly", "ader", "mmr")
NAN = float("nan")


@dataclass(frozen=True)
class ImageMetrics:
    auroc: float
    ap: float
    f1_max: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class PixelMetrics:
    auroc: float
    ap: float
    f1_max: float
    aupro: float
    protocol: str  # which AUPRO this is: they differ by up to a point on the same maps, so never print one without it

    def as_dict(self) -> dict[str, float | str]:
        return asdict(self)


@dataclass(frozen=True)
class Ranked:
    """Scores in ascending order, split by class; `weight` is an anomalous pixel's share of the mean region overlap."""

    normal: np.ndarray
    anomalous: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Curve:
    """Counts at each distinct anomalous score, from the highest down."""

    true: np.ndarray  # anomalous at or above it
    above: np.ndarray  # normal strictly above it
    false: np.ndarray  # normal at or above it
    overlap: np.ndarray  # mean recall of the regions at or above it
    anomalous: int
    normal: int


def image_metrics(scores: np.ndarray, labels: np.ndarray) -> ImageMetrics:
    """AUROC, average precision and the best F1 of one score an image; `labels` are true for anomalous images."""
    scores, labels = checked_scores(scores, labels)
    curve = trace(rank([scores[~labels]], [scores[labels]]))
    return ImageMetrics(auroc(curve), average_precision(curve), f1_max(curve))


def pixel_metrics(maps: Sequence[np.ndarray], masks: Sequence[np.ndarray], protocol: str = "mvtec") -> PixelMetrics:
    """AUROC, AP, best F1 over all pixels of all images, and AUPRO by the protocol.

    `maps` and `masks` are (n, h, w), or lists of 2-d arrays whose sizes may differ. AUROC, AP and F1-max are those of
    scikit-learn and the same in every protocol. A region is an 8-connected component of one image's mask, its overlap
    the share of its pixels found; PRO is the mean overlap over regions, FPR the share of normal pixels found.

    mvtec     MVTec's evaluation code, exact: every distinct score is a threshold (score >= t), from (0, 0) to (1, 1);
              trapezoids up to FPR 0.3, the curve interpolated linearly there, divided by 0.3.
    dinomaly  `compute_pro` of Dinomaly: thresholds np.arange(min, max, (max - min) / 200) over all maps, in the maps'
              own dtype, score > t; points with FPR < 0.3 are kept, their FPR divided by the largest kept, trapezoids.
              No point at FPR 0 is added, so what lies left of the smallest FPR is lost.
    ader      `cal_pro_score` of ADer: as dinomaly, but the kept FPRs are rescaled from (smallest, largest) to (0, 1).
    mmr       `compute_pro` of MMR: dinomaly's on each image alone, thresholds from that image's range, averaged over
              the images with a non-empty mask.

    Where the three stepped originals fail (constant maps, fewer than two points kept, all kept at FPR 0) it is NaN.
    docs/metrics.md has them side by side, with who uses which and the masks their published numbers stand on.
    """
    if protocol not in PROTOCOLS:
        raise NfadError(f"protocol must be one of {', '.join(PROTOCOLS)}; got {protocol!r}")
    pairs = checked_pairs(maps, masks)
    ranked = rank_pixels(pairs)
    curve = trace(ranked)
    if protocol == "mvtec":
        aupro = exact_aupro(curve)
    elif protocol == "mmr":
        images = [stepped_aupro(rank_pixels([pair])) for pair in pairs if pair[1].any()]
        aupro = float(np.mean(images)) if images else NAN
    else:
        aupro = stepped_aupro(ranked, from_smallest=protocol == "ader")
    return PixelMetrics(auroc(curve), average_precision(curve), f1_max(curve), aupro, protocol)


def rank(normal: Sequence[np.ndarray], anomalous: Sequence[np.ndarray], weight: np.ndarray | None = None) -> Ranked:
    """Scores given in pieces, one an image, put in order; `weight` follows the anomalous ones."""
    ordered = np.concatenate(normal)
    ordered.sort()
    scores = np.concatenate(anomalous)
    order = np.argsort(scores)
    return Ranked(ordered, scores[order], np.zeros(len(order)) if weight is None else weight[order])


def rank_pixels(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> Ranked:
    normal, anomalous, weights, regions = [], [], [], 0
    for score_map, mask in pairs:
        weight, count = region_weights(mask)
        normal.append(score_map[~mask])
        anomalous.append(score_map[mask])
        weights.append(weight)
        regions += count
    return rank(normal, anomalous, np.concatenate(weights) / max(regions, 1))


def region_weights(mask: np.ndarray) -> tuple[np.ndarray, int]:
    """1 / (size of its region) for each true pixel in the mask's own order, and the number of regions."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return np.zeros(0), 0
    # Defects are small: labelling their bounding box alone keeps the pixels' order and costs a fraction.
    box = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    labels = np.empty(box.shape, dtype=np.int32)
    ndimage.label(box, EIGHT_NEIGHBOURS, output=labels)
    region = labels[box]
    return 1.0 / np.bincount(region)[region], int(labels.max())


def trace(ranked: Ranked) -> Curve:
    scores = ranked.anomalous
    first = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]])) if len(scores) else np.zeros(0, int)
    first = first[::-1]
    thresholds, normal = scores[first], len(ranked.normal)
    return Curve(
        true=len(scores) - first,
        above=normal - np.searchsorted(ranked.normal, thresholds, side="right"),
        false=normal - np.searchsorted(ranked.normal, thresholds, side="left"),
        overlap=_tail_sums(ranked.weight)[first],
        anomalous=len(scores),
        normal=normal,
    )


def auroc(curve: Curve) -> float:
    """The chance that an anomalous score exceeds a normal one, equal scores counted half."""
    if not (curve.anomalous and curve.normal):
        return NAN
    gained = np.diff(curve.true, prepend=0)
    beaten = 1.0 - (curve.above + curve.false) / (2.0 * curve.normal)
    return float(gained @ beaten) / curve.anomalous


def average_precision(curve: Curve) -> float:
    """Precision summed over the steps of recall, without interpolation, as scikit-learn does."""
    if not curve.anomalous:
        return NAN
    gained = np.diff(curve.true, prepend=0)
    return float(gained @ (curve.true / (curve.true + curve.false))) / curve.anomalous


def f1_max(curve: Curve) -> float:
    """The best F1 = 2 TP / (TP + FP + P) over all distinct thresholds."""
    if not curve.anomalous:
        return NAN
    return float(np.max(2.0 * curve.true / (curve.true + curve.false + curve.anomalous)))


def exact_aupro(curve: Curve) -> float:
    """Protocol `mvtec`: between two anomalous scores the curve is flat, across a tie with normals it is a slope."""
    before = np.concatenate([[0.0], curve.overlap])[:-1]
    return area_to_limit(
        np.stack([curve.above, curve.false], axis=1).ravel(), np.stack([before, curve.overlap], axis=1).ravel(), curve
    )


def area_to_limit(false: np.ndarray, overlap: np.ndarray, curve: Curve) -> float:
    """Mean height up to FPR_LIMIT of the polygon through these points, (0, 0) and (all, 1)."""
    if not (curve.anomalous and curve.normal):
        return NAN
    fpr = np.concatenate([[0.0], false / curve.normal, [1.0]])
    pro = np.concatenate([[0.0], overlap, [1.0]])
    kept = np.searchsorted(fpr, FPR_LIMIT, side="right")
    at_limit = np.interp(FPR_LIMIT, fpr, pro)
    area = integrate.trapezoid(np.append(pro[:kept], at_limit), np.append(fpr[:kept], FPR_LIMIT))
    return float(area) / FPR_LIMIT


def stepped_aupro(ranked: Ranked, from_smallest: bool = False) -> float:
    """Protocols `dinomaly`, `ader` (from_smallest) and, image by image, `mmr`."""
    normal, anomalous = ranked.normal, ranked.anomalous
    if not (len(normal) and len(anomalous)):
        return NAN
    low, high = min(normal[0], anomalous[0]), max(normal[-1], anomalous[-1])
    with np.errstate(over="ignore"):
        step = (high - low) / STEPS
    if not 0 < step < np.inf:
        return NAN
    thresholds = np.arange(low, high, step)
    fpr = (len(normal) - np.searchsorted(normal, thresholds, side="right")) / len(normal)
    pro = _tail_sums(ranked.weight)[np.searchsorted(anomalous, thresholds, side="right")]
    kept = fpr < FPR_LIMIT
    fpr, pro = fpr[kept], pro[kept]
    origin = fpr.min(initial=1.0) if from_smallest else 0.0
    width = fpr.max(initial=0.0) - origin
    if len(fpr) < 2 or width <= 0:
        return NAN
    return float(-integrate.trapezoid(pro, (fpr - origin) / width))  # thresholds rise, so the FPR falls


def _tail_sums(weight: np.ndarray) -> np.ndarray:
    """Sum of weight[i:] for i = 0..n; rounding must not lift an overlap over 1."""
    return np.minimum(np.concatenate([np.cumsum(weight[::-1])[::-1], [0.0]]), 1.0)


def checked_scores(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One finite score and one truth value an image, or a sentence that says what is wrong."""
    scores = _numbers(scores, "scores")
    labels = _truths(labels, "labels")
    if scores.ndim != 1 or scores.shape != labels.shape or not len(scores):
        raise NfadError(
            "scores and labels must be two lists of the same length, at least 1; "
            f"got shapes {scores.shape} and {labels.shape}"
        )
    if not np.isfinite(scores).all():
        worst = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise NfadError(
            f"scores[{worst}] is {scores[worst]}, but every score must be finite; leave that image out or repair it"
        )
    return scores, labels


def checked_pairs(maps: Sequence[np.ndarray], masks: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    if len(maps) != len(masks) or not len(maps):
        raise NfadError(f"maps and masks must be as many, at least 1; got {len(maps)} maps and {len(masks)} masks")
    return [checked_pair(maps[index], masks[index], index) for index in range(len(maps))]


def checked_pair(score_map: np.ndarray, mask: np.ndarray, index: int) -> tuple[np.ndarray, np.ndarray]:
    """One image's finite score map and boolean mask, or a sentence that says what is wrong."""
    score_map = _numbers(score_map, f"maps[{index}]")
    mask = _truths(mask, f"masks[{index}]")
    if score_map.ndim != 2 or score_map.shape != mask.shape or not score_map.size:
        raise NfadError(
            f"maps[{index}] and masks[{index}] must be non-empty 2-d arrays of the same shape; "
            f"got {score_map.shape} and {mask.shape}, so resize one to the other"
        )
    if not np.isfinite(score_map).all():
        row, column = map(int, np.argwhere(~np.isfinite(score_map))[0])
        raise NfadError(
            f"maps[{index}] is {score_map[row, column]} at row {row}, column {column}, but every score must be finite; "
            "crop what the model did not see, or repair the map"
        )
    return score_map, mask


def _numbers(values: np.ndarray, name: str) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise NfadError(f"{name} must hold real numbers; got {values.dtype}")
    return values.astype(np.result_type(values.dtype, np.float32), copy=False)


def _truths(values: np.ndarray, name: str) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype != bool and not np.isin(values, (0, 1)).all():
        raise NfadError(f"{name} must hold only true and false (or 1 and 0); threshold it first, e.g. mask > 0.5")
    return values.astype(bool, copy=False)
