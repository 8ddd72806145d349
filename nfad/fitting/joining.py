"""Two teachers, one verdict: both looks are brought to the same units, and the mean of what they say counts.

What is odd to one teacher alone is mostly chance, and averages out; a defect is odd to both, or very odd to one. The
threshold is that of the mean scores of normals × acquisitions. A photo that either finds strange is not judged, and how
strange it may be is set so that no more of normals × acquisitions are refused than by one look.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from nfad.fitting.calibration import Calibrated
from nfad.reference.judgeable import Judgeable, limit_of
from nfad.reference.scoring import MapStatistics

HIGH = 0.95  # the quantile that, beside the median, is the same in either look's units
TOGETHER = "together"


def joined(first: Calibrated, second: Calibrated, names: tuple[str, str], rate: float) -> tuple[Calibrated, Calibrated]:
    """What a pair leaves behind, and its second look in the first's units. Both have seen the same views."""
    one, two = first.seen, second.seen
    assert one is not None and two is not None and first.judgeable and second.judgeable
    assert torch.equal(one.images, two.images)
    told, taken = one.told, one.taken
    scale = {
        "detection": _scale(one.scores[told], two.scores[told]),
        "control": _scale(one.unfiltered[taken], two.unfiltered[taken]),
    }
    bad = two.damaged
    if bad is not None:
        bad = dataclasses.replace(
            bad, scores=_scaled(bad.scores, scale["detection"]), unfiltered=_scaled(bad.unfiltered, scale["control"])
        )
    two = dataclasses.replace(
        two,
        scores=_scaled(two.scores, scale["detection"]),
        unfiltered=_scaled(two.unfiltered, scale["control"]),
        damaged=bad,
    )
    both = one.joined(two)
    wider = float(limit_of(both.strangeness[~both.strangeness.isnan()]))
    both = dataclasses.replace(both, limit=wider)
    found = {name: look.found() for name, look in zip((*names, TOGETHER), (one, two, both), strict=True)}
    pair = dataclasses.replace(
        first,
        held_out=both.held_out(),
        normals=both.normals(),
        judgeable=_widened(first.judgeable, wider),
        choice=both.choice(TOGETHER, {name: share for name, share in found.items() if share is not None}, rate),
        doubts=tuple(dict((*second.doubts, *first.doubts)).items()),
        seen=both,
    )
    beside = dataclasses.replace(
        second,
        normal_maps=_rescaled(second.normal_maps, scale),
        held_out=two.held_out(),
        normals=two.normals(),
        judgeable=_widened(second.judgeable, wider),
        seen=two,
    )
    return pair, beside


Scale = tuple[float, float]  # offset and factor


def _scale(first: Tensor, second: Tensor) -> Scale:
    """What brings the second's median and its high quantile to where the first's are."""
    (middle, high), (other, other_high) = (
        scores.double().quantile(torch.tensor([0.5, HIGH], dtype=torch.float64)).tolist() for scores in (first, second)
    )
    factor = max(high - middle, 1e-6) / max(other_high - other, 1e-6)
    return middle - factor * other, factor


def _scaled(scores: Tensor, scale: Scale) -> Tensor:
    offset, factor = scale
    return offset + factor * scores


def _rescaled(normal_maps: MapStatistics, scale: dict[str, Scale]) -> dict[str, tuple[float, float]]:
    """Means and spreads by which maps come out scaled: offset + factor · (map − mean) / spread."""
    found = {}
    for name, (mean, spread) in normal_maps.items():
        offset, factor = scale[name]
        found[name] = (mean - offset * spread / factor, spread / factor)
    return found


def _widened(judgeable: Judgeable, factor: float) -> Judgeable:
    return dataclasses.replace(judgeable, limit=judgeable.limit * factor)
