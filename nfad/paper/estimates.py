"""Numbers of a table with their uncertainty: means over domains and categories, and differences, by resample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nfad.evaluation.tally import EVERYWHERE
from nfad.stats.intervals import percentiles

NAN = float("nan")
Result = dict[str, Any]  # a cell's numbers by name, as JSON gives them back


@dataclass(frozen=True)
class Estimate:
    """A value and the same value in every resample of the images; without resamples nothing is said of its spread."""

    value: float
    resamples: np.ndarray | None = None

    def __sub__(self, other: Estimate) -> Estimate:
        value = self.value - other.value
        if self.resamples is None or other.resamples is None:
            return Estimate(value)
        return Estimate(value, self.resamples - other.resamples)

    @property
    def interval(self) -> tuple[float, float]:
        if self.resamples is None:
            return NAN, NAN
        found = percentiles(self.value, self.resamples)
        return found.low, found.high


@dataclass(frozen=True)
class Entry:
    """One number of a table, in the paper's unit, with the paper's value where it has one."""

    sheet: str  # data set and method
    row: str
    column: str
    value: float
    low: float = NAN
    high: float = NAN
    paper: float | None = None
    strong: bool = False  # differs from what it is compared with by more than resampling explains


def entry(
    sheet: str, row: str, column: str, ours: Estimate, against: Estimate | None = None, paper: float | None = None
) -> Entry:
    """`ours` as a table's entry, strong where its paired difference from `against` excludes zero."""
    low, high = ours.interval
    strong = False
    if against is not None:
        difference_low, difference_high = (ours - against).interval
        strong = difference_low > 0 or difference_high < 0
    return Entry(sheet, row, column, ours.value, low, high, paper, strong)


def estimate(results: Sequence[Result], arm: str, metric: str, domain: str | None = None) -> Estimate:
    """In per cent: the plain mean over domains (or one of them), then over the results' categories.

    Resamples are averaged alike, so that the interval of a mean is that of the mean.
    """
    values, drawn = [], []
    for result in results:
        wanted = domains_of(result) if domain is None else [domain]
        rows = [row for row in result["rows"] if row["domain"] in wanted]
        values.append(_mean([_number(row["arms"][arm][metric]) for row in rows]))
        kept = [result["resamples"][row["domain"]][arm].get(metric) for row in rows]
        drawn.append(None if None in kept else np.mean([np.array(each, dtype=float) for each in kept], axis=0))
    resamples = None if any(each is None for each in drawn) else 100 * np.mean(drawn, axis=0)
    return Estimate(100 * _mean(values), resamples)


def mean_of(results: Sequence[Result], column: str, domain: str) -> float:
    """Of an analysis' column over categories."""
    return _mean([_number(row[column]) for result in results for row in result["rows"] if row["domain"] == domain])


def domains_of(result: Result, together: bool = False) -> list[str]:
    return [row["domain"] for row in result["rows"] if _is_domain(row["domain"], result) or together]


def pooled_domain(result: Result) -> str:
    """The name of the row of all images: of its own where there are several domains."""
    return result["rows"][-1]["domain"]


def _is_domain(name: str, result: Result) -> bool:
    """Rather than all of several together."""
    return name != EVERYWHERE or len(result["rows"]) == 1


def _number(value: float | None) -> float:
    return NAN if value is None else value


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else NAN
