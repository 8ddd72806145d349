"""Whether one method's verdicts beat another's on the same photos: differences with paired intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nfad.evaluation.auroc import weighted_aurocs
from nfad.paper.verdict import AS_TAKEN, HELD_BACK, Result, VerdictCell
from nfad.stats.intervals import Interval, percentiles

SAMPLES = 1000
OURS = "nfad"


@dataclass(frozen=True)
class Difference:
    """nfad less another method on one part, mean over seeds and shifts; below 0 an error is smaller."""

    part: str
    against: str
    error: Interval
    auroc: Interval  # inside a shift
    auroc_as_taken: Interval  # NaN where photos are of several lights


def differences(cells: Sequence[VerdictCell], results: Sequence[Result], rate: float = 0.05) -> list[Difference]:
    """Photos are drawn anew, with all that was made of them and for both methods alike; fits are as they are."""
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for cell, result in zip(cells, results, strict=True):
        found.setdefault((cell.part, cell.method), []).append(_resampled(cell, result, rate))
    differs = []
    for part, method in found:
        if method != OURS and (part, OURS) in found:
            gaps = np.mean(found[part, OURS], axis=0) - np.mean(found[part, method], axis=0)
            differs.append(Difference(part, method, *(percentiles(gap[0], gap[1:]) for gap in gaps)))
    return differs


def _resampled(cell: VerdictCell, result: Result, rate: float) -> np.ndarray:
    """Error, AUROC inside a shift and AUROC as taken (3, 1 + SAMPLES): of the photos as they are, then drawn anew."""
    column = 0 if cell.arm == "filtered" else 1
    limit = result["limits"][str(rate)][column]
    shifts = [shift for shift in dict.fromkeys(row[0] for row in result["rows"]) if shift != HELD_BACK]
    lights = [AS_TAKEN] if AS_TAKEN in shifts else shifts
    rows, kinds = [], []
    for shift, bad, *scores, judged in result["rows"]:
        if shift in lights:  # a photo as it was taken, which all that was made of it follows
            kinds.append((bool(bad), shift))
        score = scores[column]
        known = score is not None and (judged or column == 1)
        rows.append((shift, len(kinds) - 1, bool(bad), np.nan if score is None else score, known))
    weights = _drawn(kinds)
    errors, aurocs, taken = [], [], np.full(1 + SAMPLES, np.nan)
    for shift in shifts:
        here = [row for row in rows if row[0] == shift]
        photos, bad, scores, judged = (np.array([row[i] for row in here]) for i in (1, 2, 3, 4))
        mine = weights[:, photos]
        flagged = judged & (scores > limit)
        good_weight, bad_weight = mine[:, ~bad], mine[:, bad]
        alarms = good_weight @ flagged[~bad] / good_weight.sum(axis=1)
        passed = bad_weight @ (judged & ~flagged)[bad] / bad_weight.sum(axis=1)
        errors.append((alarms + passed) / 2)
        known = np.isfinite(scores)
        aurocs.append(weighted_aurocs(scores[known], bad[known], mine[:, known]))
        if shift == AS_TAKEN:
            taken = aurocs[-1]
    return np.stack([np.mean(errors, axis=0), np.mean(aurocs, axis=0), taken])


def _drawn(kinds: Sequence[tuple[bool, str]]) -> np.ndarray:
    """How often each photo counts (1 + SAMPLES, photos): once, then as drawn among those of its label and light."""
    draws = np.random.default_rng(0)
    weights = np.ones((1 + SAMPLES, len(kinds)))
    for kind in dict.fromkeys(kinds):
        chosen = [photo for photo, other in enumerate(kinds) if other == kind]
        weights[1:, chosen] = draws.multinomial(len(chosen), np.full(len(chosen), 1 / len(chosen)), SAMPLES)
    return weights


def as_markdown(found: Sequence[Difference]) -> str:
    def told(interval: Interval) -> str:
        if np.isnan(interval.value):
            return "–"
        said = f"{interval.value:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"
        return f"**{said}**" if interval.excludes_zero else said

    head = "| part | less | verdict error | AUROC | AUROC as taken |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(
        f"| {each.part} | {each.against} | {told(each.error)} | {told(each.auroc)} | {told(each.auroc_as_taken)} |\n"
        for each in found
    )
