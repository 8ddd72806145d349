"""Several teachers, one verdict: all looks are brought to the same units, and the mean of their maps counts.

What is odd to one teacher alone is mostly chance, and averages out; a defect is odd to all and at the same place, or
very odd to one. The threshold is that of the mean maps' scores of normals × acquisitions. How strange a photo is, is a
mean, too, whose limit is set so that as many of normals × acquisitions are refused as by one look.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from nfad.config import Config
from nfad.fitting.calibration import Calibrated
from nfad.fitting.crossfit import joined_by
from nfad.fitting.seen import Looks, Seen
from nfad.reference.judgeable import Judgeable, limit_of
from nfad.reference.scoring import MapStatistics

HIGH = 0.95  # the quantile that, beside the median, is the same in either look's units
TOGETHER = "together"


def joined(looks: Sequence[Calibrated], config: Config) -> list[Calibrated]:
    """What the looks of this config leave behind that have seen the same views: the first as all of them together, the
    others in its units."""
    first, *others = looks
    units = [_in_units_of(first, other) for other in others]
    each = [first, *units]
    seen = [look.seen for look in each if look.seen is not None]
    together = Seen.joined(seen, config)
    limit = float(limit_of(together.strangeness[~together.strangeness.isnan()]))
    together = dataclasses.replace(together, limit=limit)
    names = [*(look.teacher for look in config.looks), TOGETHER]
    found = {name: look.found() for name, look in zip(names, (*seen, together), strict=True)}
    shares = {name: share for name, share in found.items() if share is not None}
    whole = dataclasses.replace(
        first,
        held_out=together.held_out(),
        normals=together.normals(),
        choice=together.choice(TOGETHER, shares, config.false_alarm_rate),
        doubts=tuple(dict(doubt for look in reversed(each) for doubt in look.doubts).items()),
        seen=together,
        joined=joined_by(config),
    )
    return [dataclasses.replace(look, judgeable=_limited(look.judgeable, limit)) for look in (whole, *units)]


def _in_units_of(first: Calibrated, other: Calibrated) -> Calibrated:
    one, two = first.seen, other.seen
    assert one is not None and two is not None and torch.equal(one.images, two.images)
    told, taken = one.told, one.taken
    scale = {
        "detection": _scale(one.scores[told], two.scores[told]),
        "control": _scale(one.unfiltered[taken], two.unfiltered[taken]),
    }
    two = dataclasses.replace(_in_units(two, scale), damaged=two.damaged and _in_units(two.damaged, scale))
    return dataclasses.replace(
        other,
        normal_maps=_rescaled(other.normal_maps, scale),
        held_out=two.held_out(),
        normals=two.normals(),
        seen=two,
    )


Scale = tuple[float, float]  # offset and factor


def _scale(first: Tensor, second: Tensor) -> Scale:
    """What brings another's median and its high quantile to where the first's are."""
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


def _limited(judgeable: Judgeable | None, factor: float) -> Judgeable | None:
    return judgeable and dataclasses.replace(judgeable, limit=judgeable.limit * factor)
