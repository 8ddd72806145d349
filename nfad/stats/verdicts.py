"""What a threshold does with good and bad parts: both errors, and the parts that are not judged.

A good part is flagged, passed or not judged; a bad one is found, passed or not judged. A part that is not judged is
stopped for a person to look at. So a good one is neither a false alarm nor passed, and a bad one is not passed, but not
found either. Both are told as shares of their own: a model that judges nothing makes no error and is of no use.
All shares are of all good or of all bad parts. Unfiltered scores know no third verdict: only a photo without a finite
score is not judged by them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nfad.errors import NfadError
from nfad.stats.intervals import Interval, rate_interval


@dataclass(frozen=True)
class Verdicts:
    """One arm's verdicts, counted, with their exact 95 % intervals as shares of the good or of the bad parts."""

    false_alarms: Interval  # good parts flagged
    detections: Interval  # bad parts flagged
    good_not_judged: Interval
    bad_not_judged: Interval
    passed: Interval  # bad parts called good
    verdict_error: float
    good_unjudged: int  # how many that are
    bad_unjudged: int


def count_verdicts(labels: np.ndarray, flagged: np.ndarray, judged: np.ndarray) -> Verdicts:
    """Of images with these truths (true for bad), whether each was flagged, and whether it was judged at all."""
    labels, flagged, judged = _checked(labels, flagged, judged)

    def share(hits: np.ndarray, of: np.ndarray) -> Interval:
        return rate_interval(int(hits[of].sum()), int(of.sum()))

    return Verdicts(
        share(flagged, ~labels), share(flagged, labels), share(~judged, ~labels), share(~judged, labels),
        share(judged & ~flagged, labels),
        verdict_error(labels, flagged, judged), int((~judged & ~labels).sum()), int((~judged & labels).sum()),
    )  # fmt: skip


def verdict_error(labels: np.ndarray, flagged: np.ndarray, judged: np.ndarray) -> float:
    """(share of the good parts flagged + share of the bad parts passed) / 2; NaN unless there are good and bad ones.

    What is not judged is neither flagged nor passed: see this module's first lines, and read the shares not judged
    beside this number.
    """
    labels, flagged, judged = _checked(labels, flagged, judged)
    if labels.all() or not labels.any():
        return float("nan")
    passed = judged & ~flagged
    return float(flagged[~labels].mean() + passed[labels].mean()) / 2


def _checked(labels: np.ndarray, flagged: np.ndarray, judged: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    labels, flagged, judged = (np.asarray(each, dtype=bool) for each in (labels, flagged, judged))
    if not labels.shape == flagged.shape == judged.shape:
        raise NfadError(
            f"labels, flagged and judged must be as many; got {len(labels)}, {len(flagged)} and {len(judged)}"
        )
    return labels, flagged & judged, judged
