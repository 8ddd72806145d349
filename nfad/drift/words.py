"""How much has moved, and what that means, in words for whoever stands at the line."""

from __future__ import annotations

import numpy as np

from nfad.drift.state import ABSORBED, ABSORBED_AND_DEFECTS, DEFECTS, STEADY, UNABSORBED, Answer
from nfad.evaluation.intervals import rate_interval
from nfad.records import FAMILY_WORDS

FAMILY = "nuisance:"


def nuisance_effect(name: str, held_out: np.ndarray, seen: np.ndarray) -> str:
    """A family's median share of the deviation, or the unfiltered score's median, against the fit's."""
    before, now = np.median(held_out), np.median(seen)
    if not name.startswith(FAMILY):
        return f"the score without the filter is {now:.3g} at the median instead of {before:.3g}"
    family = name.removeprefix(FAMILY)
    times = f"{now / before:.2g}× the fit's median" if before > 0 else f"{now:.2g} at the median instead of none"
    return f"the {FAMILY_WORDS.get(family, family)} share of the deviation is {times}"


def bulk_effect(held_out: np.ndarray, seen: np.ndarray) -> str:
    """The filtered scores' median against the fit's, and how many parts now exceed that."""
    before = np.median(held_out)
    above = (seen > before).mean()
    return f"parts score {np.median(seen):.3g} at the median instead of {before:.3g}, {above:.0%} of them above it"


def tail_effect(threshold: float, flag_rate: float, seen: np.ndarray) -> str:
    """How many are flagged, with Clopper and Pearson's interval, against how many should be."""
    found = rate_interval(int((seen > threshold).sum()), len(seen))
    return (
        f"flagged {found.value:.1%} of {len(seen)} parts (95 % interval {found.low:.1%} to {found.high:.1%}) "
        f"instead of {flag_rate:.1%}"
    )


def sentence(verdict: str, since: int | None, parts: int, nuisance: Answer, bulk: Answer, tail: Answer) -> str:
    """One sentence a person understands."""
    if verdict == STEADY:
        return f"Steady: {parts:,} parts, and none of the fit's numbers has moved beyond chance."
    moved = f"; {nuisance.effect}" if nuisance.alarm else ""
    start = f"since about part {since:,}"
    if verdict == ABSORBED:
        return f"Acquisition drift {start}, absorbed by the filter: {nuisance.effect}; ordinary parts score as before."
    if verdict == UNABSORBED:
        return f"Drift {start} that the filter does not absorb: {bulk.effect}{moved}; {tail.effect}."
    if verdict == DEFECTS:
        return f"More defects {start}: {tail.effect}, while ordinary parts score as before."
    if verdict == ABSORBED_AND_DEFECTS:
        return f"Acquisition drift, absorbed by the filter, and more defects {start}: {nuisance.effect}; {tail.effect}."
    return f"More flagged parts {start}, defects or not: {tail.effect}, but ordinary parts may have moved too{moved}."
