"""The curves behind the areas, reduced to what a chart can show: corners of a ROC, a bounded number of PRO points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nfad.evaluation.metrics import FPR_LIMIT, Curve, checked_pairs, checked_scores, rank, rank_pixels, trace

Points = tuple[np.ndarray, np.ndarray]  # x and y, both non-decreasing; empty where the curve is undefined
NOTHING: Points = (np.zeros(0), np.zeros(0))


def roc_curve(scores: np.ndarray, labels: np.ndarray) -> Points:
    """False and true positive rates of `score >= t` for falling t, from (0, 0) to (1, 1): every corner, no point more.

    The area below is the AUROC exactly. Without both classes there is no curve, and no point.
    """
    scores, labels = checked_scores(scores, labels)
    curve = trace(rank([scores[~labels]], [scores[labels]]))
    if not (curve.anomalous and curve.normal):
        return NOTHING
    false, true = _polygon(curve, curve.true, curve.anomalous)
    return false / curve.normal, true / curve.anomalous


def pro_curve(maps: Sequence[np.ndarray], masks: Sequence[np.ndarray], points: int = 200) -> Points:
    """False positive rate and mean region overlap of all images together, up to the limit that AUPRO integrates to."""
    curve = trace(rank_pixels(checked_pairs(maps, masks)))
    if not (curve.anomalous and curve.normal):
        return NOTHING
    false, overlap = _polygon(curve, curve.overlap, 1.0)
    return thinned(false / curve.normal, overlap, points)


def thinned(x: np.ndarray, y: np.ndarray, points: int = 200, limit: float = FPR_LIMIT) -> Points:
    """A non-decreasing curve up to the limit in so many points, its mean height off by at most 1 / 2(points - 1).

    They lie evenly along x/limit + y, which rises along the curve by 2 at most. Two neighbours so close enclose a
    rectangle no larger than 1 / (points - 1)², and the curve between them departs from their chord by half of it.
    """
    if not len(x):
        return NOTHING
    kept = int(np.searchsorted(x, limit, side="right"))
    at_limit = np.interp(limit, x, y)
    x, y = np.append(x[:kept], limit), np.append(y[:kept], at_limit)
    along = x / limit + y
    places = np.linspace(along[0], along[-1], points)
    return np.interp(places, along, x), np.interp(places, along, y)


def _polygon(curve: Curve, height: np.ndarray, highest: float) -> tuple[np.ndarray, np.ndarray]:
    """Between two anomalous scores the curve runs flat, across a tie with normals it climbs along a slope."""
    before = np.concatenate([[0.0], height])[:-1]
    x = np.concatenate([[0.0], np.stack([curve.above, curve.false], axis=1).ravel(), [curve.normal]])
    y = np.concatenate([[0.0], np.stack([before, height], axis=1).ravel(), [highest]])
    return _corners(x, y)


def _corners(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same line without repeated points and points on the straight way between their neighbours."""
    moved = np.append(True, (np.diff(x) != 0) | (np.diff(y) != 0))
    x, y = x[moved], y[moved]
    right, up = np.diff(x), np.diff(y)
    turns = right[:-1] * up[1:] != up[:-1] * right[1:]
    kept = np.concatenate([[True], turns, [True]])
    return x[kept], y[kept]
