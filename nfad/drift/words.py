"""How much has moved, and what that means, in words for whoever stands at the line.

Where there is no alarm, what is plainly off is said to be too little for one, so that no two sentences contradict
each other.
"""

from __future__ import annotations

import numpy as np

from nfad.drift.state import (
    ABSORBED,
    ABSORBED_AND_DEFECTS,
    COVERED,
    DEFECTS,
    DEFOCUSED,
    MISPLACED,
    SHIFTED,
    SILENT,
    STEADY,
    UNABSORBED,
    Answer,
)
from nfad.records import FAMILY_WORDS
from nfad.stats.intervals import rate_interval

FAMILY, MOVED = "nuisance:", "moved"
CROWDED = "more than half of the parts are flagged, so ordinary parts cannot be told from defects"
FELL = "ordinary parts score lower than at the fit and no more are flagged, but a weak defect may score lower too"


def not_yet(plain: bool) -> str:
    """What to add to an effect that is plainly there, but for which no alarm was raised."""
    return ", which is not yet enough for an alarm" if plain else ""


def nuisance_effect(name: str, held_out: np.ndarray, seen: np.ndarray) -> str:
    """A family's median share of the deviation, how far photos lie off, or the unfiltered score's median, against the
    fit's."""
    before, now = np.median(held_out), np.median(seen)
    if name == MOVED:
        return f"photos lie {now:.1%} of their side off at the median, {before:.1%} at the fit: look at the camera"
    if not name.startswith(FAMILY):
        return f"the score without the filter is {now:.3g} at the median, {before:.3g} at the fit"
    family = name.removeprefix(FAMILY)
    times = f"{now / before:.2g}× the fit's median" if before > 0 else f"{now:.2g} at the median, none at the fit"
    return f"the {FAMILY_WORDS.get(family, family)} share of the deviation is {times}"


def bulk_effect(line: float, held_out: np.ndarray, seen: np.ndarray) -> str:
    """The ordinary parts' median score and their share, against the fit's."""
    shares = [f"{(scores <= line).mean():.0%}" for scores in (seen, held_out)]
    if not (seen <= line).any():
        return f"no part scores like an ordinary one, {shares[1]} did at the fit"
    now, before = (np.median(scores[scores <= line]) for scores in (seen, held_out))
    return (
        f"ordinary parts score {now:.3g} at the median, {before:.3g} at the fit, "
        f"and {shares[0]} of all parts are ordinary, {shares[1]} at the fit"
    )


def tail_effect(threshold: float, flag_rate: float, alarm: bool, seen: np.ndarray) -> str:
    """How many are flagged, with Clopper and Pearson's interval, against how many should be."""
    found = rate_interval(int((seen > threshold).sum()), len(seen))
    more = not_yet(found.low > flag_rate and not alarm)
    return (
        f"flagged {found.value:.1%} of {len(seen)} parts (95 % interval {found.low:.1%} to {found.high:.1%}), "
        f"at a stated rate of {flag_rate:.1%}{more}"
    )


def unjudged_effect(count: int, photos: int, tolerated: float, alarm: bool) -> str:
    """How many photos are not judged, with Clopper and Pearson's interval."""
    if not count:
        return f"every one of {photos:,} photos is judged"
    found = rate_interval(count, photos)
    more = not_yet(found.low > tolerated and not alarm)
    return (
        f"{count:,} of {photos:,} photos are not judged, {found.value:.1%} (95 % interval {found.low:.1%} to "
        f"{found.high:.1%}){more}"
    )


def frozen(count: int) -> str:
    """What is to be said, and nothing else, of a camera that has stopped."""
    return (
        f"The last {count:,} photos show the very same frame: the camera, or what fetches its photos, has stopped, and "
        "their verdict is that of one part, whatever lies before the camera."
    )


def camera(state: str, photos: int, seconds: float) -> str:
    """What is to be said, and nothing else, of a camera that is not stopped, but no use either; or that has moved."""
    if state == SILENT:
        return (
            f"No photo has come for {seconds:,.0f} s: the camera, its trigger or what fetches its photos has stopped."
        )
    if state == SHIFTED:
        return (
            "Photo after photo lies further off its place than at the fit: the camera, or what holds the parts, has "
            "moved. They are moved back before they are judged; put it right before that no longer helps."
        )
    reason = {
        COVERED: "are dark, empty or half hidden: the camera, or its lamp, is covered",
        DEFOCUSED: "are blurred beyond the fit's: the camera is out of focus, or its glass is dirty",
        MISPLACED: "do not look like the fitted part: the camera is out of place, or it is another product",
    }[state]
    return f"The last {photos:,} photos or more {reason}. They are not judged."


def with_unjudged(parts: str, judged: int, photos: int, unjudged: Answer) -> str:
    """The sentence on the judged parts with what is to be said of the photos that are not."""
    if unjudged.alarm:
        start = f"Many photos are not judged since about photo {unjudged.since:,}"
        told = f"{start}: {unjudged.effect}; look at some of them."
        return f"{told} Of those judged: {parts[0].lower()}{parts[1:]}" if judged else told
    if judged == photos:
        return parts
    return f"{parts} Not judged, and so left out: {photos - judged:,} of {photos:,} photos."


def sentence(
    verdict: str, since: int | None, parts: int, nuisance: Answer, bulk: Answer, tail: Answer, doubtful: bool
) -> str:
    """One sentence a person understands."""
    if verdict == STEADY:
        return f"Steady: {parts:,} parts, and no evidence of a change that is enough for an alarm."
    moved = f"; {nuisance.effect}" if nuisance.alarm else ""
    start = f"since about part {since:,}"
    if verdict == ABSORBED:
        rest = FELL if bulk.alarm else "ordinary parts score as before" + ", as far as can be told yet" * doubtful
        return f"Acquisition drift {start}, absorbed by the filter: {nuisance.effect}; {rest}."
    if verdict == SHIFTED:
        return (
            f"The camera, or what holds the parts, has moved {start}: {nuisance.effect}. Photos are moved back before "
            "they are judged; put it right before that no longer helps."
        )
    if verdict == UNABSORBED:
        return f"Drift {start} that the filter does not absorb: {bulk.effect}{moved}; {tail.effect}."
    if verdict == DEFECTS:
        return f"More defects {start}: {tail.effect}, while ordinary parts score as before{moved}."
    if verdict == ABSORBED_AND_DEFECTS:
        return f"Acquisition drift, absorbed by the filter, and more defects {start}: {nuisance.effect}; {tail.effect}."
    if bulk.effect == CROWDED:
        return (
            f"More than half of the parts are flagged {start}, by a change of the line or for many defects; look at "
            f"some of them: {tail.effect}{moved}."
        )
    ordinary = "ordinary parts score lower than at the fit" if bulk.alarm else "ordinary parts may have moved too"
    return f"More flagged parts {start}, defects or not: {tail.effect}, but {ordinary}{moved}."
