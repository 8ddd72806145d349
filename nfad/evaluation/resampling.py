"""How sure a pixel metric is: many resamples of the images at once, in memory that does not grow with their number."""

from __future__ import annotations

import numpy as np

from nfad.evaluation.metrics import FPR_LIMIT, checked_pair, region_weights

SHIFT = 4
BINS = 2 ** (16 - SHIFT)  # a float16's sign, exponent and six leading bits: within 1.6 % of any score
BATCH = 32  # images whose histograms are weighted in one product
NORMAL, ANOMALOUS, OVERLAP = range(3)


class PixelResamples:
    """`update` once an image, in the same order for every arm that is to be compared; then `aurocs` and `aupros`.

    A bootstrap over images, each drawn a Poisson(1) number of times instead of n in all, which needs no second pass.
    Scores are binned, so a resample's metric may be off by about 1e-3: for the width of an interval, not for its
    centre, which is the exact metric.
    """

    def __init__(self, seed: int = 0, samples: int = 200) -> None:
        self._draws = np.random.default_rng(seed)
        self._mass = np.zeros((3, samples + 1, BINS), dtype=np.float32)  # the first row draws every image once
        self._regions = np.zeros(samples + 1)
        self._pending: list[tuple[np.ndarray, np.ndarray]] = []

    def update(self, score_map: np.ndarray, mask: np.ndarray) -> None:
        score_map, mask = checked_pair(score_map, mask, 0)
        bins = score_bins(score_map)
        weight, regions = region_weights(mask)
        drawn = np.append(1, self._draws.poisson(1.0, len(self._regions) - 1)).astype(np.float32)
        histograms = np.stack([
            np.bincount(bins[~mask], minlength=BINS),
            np.bincount(bins[mask], minlength=BINS),
            np.bincount(bins[mask], weight, minlength=BINS),
        ]).astype(np.float32)  # fmt: skip
        self._regions += drawn * regions
        self._pending.append((drawn, histograms))
        if len(self._pending) == BATCH:
            self._flush()

    def aurocs(self) -> np.ndarray:
        """Of each resample; NaN where a class is missing."""
        normal, anomalous, _ = self._occupied()[:, 1:]
        wins = (anomalous * (np.cumsum(normal, axis=1) - normal / 2)).sum(axis=1)
        pairs = normal.sum(axis=1) * anomalous.sum(axis=1)
        return np.divide(wins, pairs, out=np.full_like(wins, np.nan), where=pairs > 0)

    def aupros(self) -> np.ndarray:
        """Of each resample, by protocol `mvtec`; NaN where there is no region or no normal pixel."""
        curves = zip(*self._pro(self._occupied()), self._regions, strict=True)
        return np.array([_area(false, found) if regions else np.nan for false, found, regions in curves][1:])

    def pro_curve(self) -> tuple[np.ndarray, np.ndarray]:
        """False-positive rate and mean region overlap of the images as they are, for drawing; empty if undefined."""
        false, found = self._pro(self._occupied()[:, :1])
        return (false[0], found[0]) if self._regions[0] and false[0, -1] == 1 else (np.zeros(0), np.zeros(0))

    def __add__(self, other: PixelResamples) -> PixelResamples:
        """Over the images of both: resample by resample."""
        self._flush()
        other._flush()
        both = PixelResamples(samples=len(self._regions) - 1)
        both._mass = self._mass + other._mass
        both._regions = self._regions + other._regions
        return both

    def _occupied(self) -> np.ndarray:
        """What every resample holds, without the bins that no image has a score in."""
        self._flush()
        return self._mass[:, :, (self._mass[:, 0] > 0).any(axis=0)].astype(float)

    def _pro(self, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each resample, from the highest score down: false-positive rate and mean region overlap."""
        start = np.zeros((mass.shape[1], 1))
        false, found = (np.hstack([start, np.cumsum(mass[row][:, ::-1], axis=1)]) for row in (NORMAL, OVERLAP))
        regions = self._regions[: len(found), None]
        return false / np.maximum(false[:, -1:], 1), found / np.maximum(regions, 1)

    def _flush(self) -> None:
        if self._pending:
            drawn = np.stack([drawn for drawn, _ in self._pending], axis=1)
            for row in (NORMAL, ANOMALOUS, OVERLAP):
                self._mass[row] += drawn @ np.stack([histograms[row] for _, histograms in self._pending])
            self._pending.clear()


def score_bins(scores: np.ndarray) -> np.ndarray:
    """Bin numbers 0 … BINS − 1 in the order of the scores."""
    with np.errstate(over="ignore"):  # beyond a float16's range is infinite, still in order
        bits = (scores.astype(np.float16) + np.float16(0)).view(np.uint16)
    negative = bits >= 0x8000
    return (np.where(negative, ~bits, bits | 0x8000) >> SHIFT).astype(np.int64)


def _area(false: np.ndarray, found: np.ndarray) -> float:
    if false[-1] == 0:
        return float("nan")
    inside = false <= FPR_LIMIT
    x = np.append(false[inside], FPR_LIMIT)
    y = np.append(found[inside], np.interp(FPR_LIMIT, false, found))
    return float(np.trapezoid(y, x) / FPR_LIMIT)
