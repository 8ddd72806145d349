"""Two teachers, one verdict: both looks are brought to the same units, and the mean of their maps counts.

What is odd to one teacher alone is mostly chance, and averages out; a defect is odd to both and at the same place, or
very odd to one. The threshold is that of the mean maps' scores of normals × acquisitions. A photo that either finds
strange is not judged, and how strange it may be is set so that no more of normals × acquisitions are refused than by
one look.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from nfad.config import Config
from nfad.fitting.calibration import Calibrated
from nfad.fitting.crossfit import joined_by
from nfad.fitting.seen import Looks
from nfad.reference.judgeable import Judgeable, limit_of
from nfad.reference.scoring import MapStatistics

HIGH = 0.95  # the quantile that, beside the median, is the same in either look's units
TOGETHER = "together"


def joined(first: Calibrated, second: Calibrated, config: Config) -> tuple[Calibrated, Calibrated]:
    """What a pair by this config leaves behind, and its second look in the first's units. Both have seen the same
    views."""
    assert config.second is not None
    names, rate = (config.teacher, config.second.teacher), config.false_alarm_rate
    one, two = first.seen, second.seen
    assert one is not None and two is not None and first.judgeable and second.judgeable
    assert torch.equal(one.images, two.images)
    told, taken = one.told, one.taken
    scale = {
        "detection": _scale(one.scores[told], two.scores[told]),
        "control": _scale(one.unfiltered[taken], two.unfiltered[taken]),
    }
    two = dataclasses.replace(_in_units(two, scale), damaged=two.damaged and _in_units(two.damaged, scale))
    both = one.joined(two, config)
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
        joined=joined_by(config),
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


def _in_units(looks: Looks, scale: dict[str, Scale]) -> Looks:
    return dataclasses.replace(
        looks,
        scores=_scaled(looks.scores, scale["detection"]),
        unfiltered=_scaled(looks.unfiltered, scale["control"]),
        token_maps={name: _scaled(each, scale[name]) for name, each in looks.token_maps.items()},
    )


def _rescaled(normal_maps: MapStatistics, scale: dict[str, Scale]) -> dict[str, tuple[float, float]]:
    """Means and spreads by which maps come out scaled: offset + factor · (map − mean) / spread."""
    found = {}
    for name, (mean, spread) in normal_maps.items():
        offset, factor = scale[name]
        found[name] = (mean - offset * spread / factor, spread / factor)
    return found


def _widened(judgeable: Judgeable, factor: float) -> Judgeable:
    return dataclasses.replace(judgeable, limit=judgeable.limit * factor)
