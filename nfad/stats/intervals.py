"""How sure a number is: percentiles of resamples, exact binomial intervals for rates."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from scipy import stats

from nfad.errors import NfadError


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference is beyond what resampling the images explains."""
        return self.low > 0 or self.high < 0

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def percentiles(value: float, resamples: np.ndarray, level: float = 0.95) -> Interval:
    """The resamples' percentiles about an estimate; NaN throughout where it is not defined."""
    _check_level(level)
    resamples = resamples[~np.isnan(resamples)]
    if not len(resamples) or np.isnan(value):
        return Interval(float("nan"), float("nan"), float("nan"))
    low, high = np.quantile(resamples, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    # Percentiles of few or skewed resamples can miss the estimate itself; an interval without it would only confuse.
    return Interval(float(value), min(float(low), value), max(float(high), value))


def rate_interval(hits: int, total: int, level: float = 0.95) -> Interval:
    """Clopper and Pearson's interval for hits of total: covers the true rate at least `level` of the time.

    Nothing of nothing is a NaN rate that may be anything from 0 to 1.
    """
    _check_level(level)
    if not 0 <= hits <= total:
        raise NfadError(f"hits must lie in 0..total; got {hits} of {total}")
    tail = (1.0 - level) / 2.0
    low = stats.beta.ppf(tail, hits, total - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1.0 - tail, hits + 1, total - hits) if hits < total else 1.0
    return Interval(hits / total if total else float("nan"), float(low), float(high))


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise NfadError(f"level must lie between 0 and 1, e.g. 0.95; got {level}")
