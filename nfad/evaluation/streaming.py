"""The pixel metrics of a stream of maps in fixed memory, with intervals that are certain to hold the exact values.

Scores fall into bins of their float32 bit pattern, made monotone: that needs no range in advance and resolves small
and large scores alike. Bins come in pages of 256 neighbours, taken when a score first falls there: gaps cost nothing.
As long as the pages last, every float32 value has its own bin and the result is exact; when they run out, all bins are
joined two by two. With the default 2^20 bins that ends, whatever comes, at 2048 bins to each doubling of the score.

The scores of a bin that has seen more than one value are known in number, not in order. Results count them as equal;
bounds take the worst and the best order they can have.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass

import numpy as np

from nfad.errors import NfadError
from nfad.evaluation.metrics import (
    NAN,
    Curve,
    PixelMetrics,
    area_to_limit,
    auroc,
    average_precision,
    checked_pair,
    exact_aupro,
    f1_max,
    region_weights,
)

PAGE_BITS = 8
PAGE = 2**PAGE_BITS
NORMAL, ANOMALOUS, OVERLAP = range(3)
Bound = tuple[float, float]


@dataclass(frozen=True)
class PixelBounds:
    """(low, high) around the exact value of each metric; NaN where that is undefined."""

    auroc: Bound
    ap: Bound
    f1_max: Bound
    aupro: Bound

    def as_dict(self) -> dict[str, Bound]:
        return asdict(self)


class StreamingPixelMetrics:
    """`update` once an image, then `result()` and `bounds()`; AUPRO is that of protocol `mvtec`.

    Memory is 29 bytes a bin whatever the number of images (30 MB by default), and about twice as much again while bins
    are joined or results read. Scores in float64 are rounded to float32 for binning alone; the bounds hold for the
    unrounded ones.
    """

    def __init__(self, bins: int = 2**20) -> None:
        if bins < PAGE or bins % PAGE:
            raise NfadError(f"bins must be a multiple of {PAGE}, at least one; got {bins}")
        self._mass = np.zeros((3, bins))  # counts as float64 are exact up to 2^53 pixels
        self._value = np.zeros(bins, dtype=np.uint32)  # key of a score seen in the bin; 0 is no score's key
        self._mixed = np.zeros(bins, dtype=bool)  # whether another was
        self._pages = np.zeros(0, dtype=np.uint32)  # bin number >> PAGE_BITS of each page, ascending
        self._slots = np.zeros(0, dtype=np.intp)  # where in the arrays above it lies: bins slot * PAGE onwards
        self._shift = 0  # a score's bin number is its key >> shift
        self._images = 0
        self._regions = 0

    def update(self, score_map: np.ndarray, mask: np.ndarray) -> None:
        """Add one image's map and mask, both 2-d and of the same shape."""
        score_map, mask = checked_pair(score_map, mask, self._images)
        with np.errstate(over="ignore"):  # what exceeds float32 becomes infinite, still in order
            rounded = score_map.astype(np.float32)
        keys = monotone_bits(rounded)
        normal, counts = _runs(np.sort(keys[~mask]))
        anomalous, (weight, regions) = keys[mask], region_weights(mask)
        order = np.argsort(anomalous)  # what is sorted falls into few runs of one page
        anomalous, weight = anomalous[order], weight[order]
        self._make_room(np.append(normal, anomalous))
        self._add(normal, {NORMAL: counts.astype(float)})  # np.add.at is slow where it must convert
        self._add(anomalous, {ANOMALOUS: np.ones(len(anomalous)), OVERLAP: weight})
        self._mixed[self._places(keys[rounded != score_map])] = True
        self._images += 1
        self._regions += regions

    def merge(self, other: StreamingPixelMetrics) -> StreamingPixelMetrics:
        """A stream that has seen the images of both, as if they had come to one; neither is changed."""
        both = deepcopy(self)
        while both._shift < other._shift:  # what shares a bin there can't be told apart here
            both._join()
        both._pour(*other._contents())
        both._images += other._images
        both._regions += other._regions
        return both

    def result(self) -> PixelMetrics:
        """The metrics with the scores of a bin counted as equal."""
        curve, _ = self._curve()
        return PixelMetrics(auroc(curve), average_precision(curve), f1_max(curve), exact_aupro(curve), "mvtec")

    def bounds(self) -> PixelBounds:
        """Intervals certain to hold what `pixel_metrics` would give on all the maps at once."""
        curve, mixed = self._curve()
        # A sum of n positive numbers in floating point is off by at most n units in the last place.
        slack = 4 * np.finfo(float).eps * (curve.anomalous + len(curve.true) + 1)
        bounds = (bound(curve, mixed) for bound in (_auroc_bound, _ap_bound, _f1_bound, _aupro_bound))
        return PixelBounds(*((float(max(low - slack, 0.0)), float(min(high + slack, 1.0))) for low, high in bounds))

    def _make_room(self, keys: np.ndarray) -> None:
        """Take the pages these keys need; while there are too few, join bins."""
        while True:
            wanted = np.unique(_runs(keys >> (self._shift + PAGE_BITS))[0])
            needed = wanted[~np.isin(wanted, self._pages, assume_unique=True)]
            taken = len(self._pages)
            if (taken + len(needed)) * PAGE <= len(self._value):
                break
            self._join()
        pages, slots = np.append(self._pages, needed), np.append(self._slots, taken + np.arange(len(needed)))
        order = np.argsort(pages)
        self._pages, self._slots = pages[order], slots[order]

    def _join(self) -> None:
        contents = self._contents()
        self._shift += 1
        self._pages, self._slots = self._pages[:0], self._slots[:0]
        for array in (self._mass, self._value, self._mixed):
            array.fill(0)
        self._pour(*contents)

    def _contents(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each bin that holds a score: a key, whether it is mixed, and its three masses."""
        held = self._occupied()
        return self._value[held], self._mixed[held], self._mass[:, held]

    def _pour(self, keys: np.ndarray, mixed: np.ndarray, mass: np.ndarray) -> None:
        self._make_room(keys)
        self._add(keys, dict(enumerate(mass)))
        self._mixed[self._places(keys[mixed])] = True

    def _places(self, keys: np.ndarray) -> np.ndarray:
        """The bins of these keys, whose pages have been taken."""
        numbers = keys >> self._shift
        pages, lengths = _runs(numbers >> PAGE_BITS)
        slots = self._slots[np.searchsorted(self._pages, pages)]
        return np.repeat(slots * PAGE, lengths) + (numbers & (PAGE - 1))

    def _add(self, keys: np.ndarray, amounts: dict[int, np.ndarray]) -> None:
        places = self._places(keys)
        for row, amount in amounts.items():
            np.add.at(self._mass[row], places, amount)
        empty = self._value[places] == 0
        self._value[places[empty]] = keys[empty]
        self._mixed[places[self._value[places] != keys]] = True

    def _occupied(self) -> np.ndarray:
        """The bins that hold a score, in the scores' order."""
        places = self._slots[:, None] * PAGE + np.arange(PAGE)
        return places[self._value[places] != 0]

    def _curve(self) -> tuple[Curve, np.ndarray]:
        """The curve with a step at each bin that holds anomalous scores, and whether that bin is mixed."""
        if not self._images:
            raise NfadError("there is nothing to measure yet; call update(map, mask) for at least one image")
        held = self._occupied()[::-1]
        normal, anomalous, overlap = self._mass[:, held]
        steps = np.flatnonzero(anomalous)
        false = np.cumsum(normal)
        curve = Curve(
            true=np.cumsum(anomalous)[steps].astype(np.int64),
            above=(false - normal)[steps].astype(np.int64),
            false=false[steps].astype(np.int64),
            overlap=np.minimum(np.cumsum(overlap)[steps] / max(self._regions, 1), 1.0),
            anomalous=int(anomalous.sum()),
            normal=int(false[-1]),
        )
        return curve, self._mixed[held][steps]


def monotone_bits(scores: np.ndarray) -> np.ndarray:
    """uint32 keys in the order of these float32 scores; equal scores, 0.0 and -0.0 too, share one."""
    bits = (scores + np.float32(0.0)).view(np.uint32)  # -0.0 + 0.0 is 0.0
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def _runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each stretch of equal neighbours: its value and its length."""
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])) if len(values) else np.zeros(0, dtype=np.intp)
    return values[starts], np.diff(starts, append=len(values))


def _auroc_bound(curve: Curve, mixed: np.ndarray) -> Bound:
    """All of a bin's anomalous scores below its normal ones, then above them."""
    if not (curve.anomalous and curve.normal):
        return NAN, NAN
    gained = np.diff(curve.true, prepend=0)
    tied = (curve.above + curve.false) / 2
    most, least = np.where(mixed, curve.false, tied), np.where(mixed, curve.above, tied)
    pairs = float(curve.anomalous) * curve.normal
    return 1.0 - float(gained @ most) / pairs, 1.0 - float(gained @ least) / pairs


def _ap_bound(curve: Curve, mixed: np.ndarray) -> Bound:
    """Worst: after the bin's normals, one by one. Best: before them and all equal, so each as precise as the last."""
    if not curve.anomalous:
        return NAN, NAN
    gained = np.diff(curve.true, prepend=0)
    first = curve.true - gained + 1
    tied = curve.true / (curve.true + curve.false)
    # The i-th has precision (first + i) / (first + i + false), concave in i: the sum is no less than that of the chord.
    worst = np.where(mixed, (first / (first + curve.false) + tied) / 2, tied)
    best = np.where(mixed, curve.true / (curve.true + curve.above), tied)
    return float(gained @ worst) / curve.anomalous, float(gained @ best) / curve.anomalous


def _f1_bound(curve: Curve, mixed: np.ndarray) -> Bound:
    """A bin's end is a threshold in any order; the best there can be within is all its anomalous scores first."""
    if not curve.anomalous:
        return NAN, NAN
    fewest = np.where(mixed, curve.above, curve.false)
    best = 2.0 * curve.true / (curve.true + fewest + curve.anomalous)
    return f1_max(curve), float(best.max())


def _aupro_bound(curve: Curve, mixed: np.ndarray) -> Bound:
    """The curve crosses a bin's rectangle corner to corner: by the lower right at worst, by the upper left at best."""
    start, end = curve.above, curve.false
    before, after = np.concatenate([[0.0], curve.overlap])[:-1], curve.overlap
    # Equal scores cross along the diagonal: then the corner passed is one of the two ends.
    lower_right, upper_left = np.where(mixed, end, start), np.where(mixed, start, end)
    low = area_to_limit(_interleaved(start, lower_right, end), _interleaved(before, before, after), curve)
    high = area_to_limit(_interleaved(start, upper_left, end), _interleaved(before, after, after), curve)
    return low, high


def _interleaved(*columns: np.ndarray) -> np.ndarray:
    return np.stack(columns, axis=1).ravel()
