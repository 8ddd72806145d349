"""What a monitor is told of one photo."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from nfad.drift.words import FAMILY, MOVED
from nfad.errors import NfadError
from nfad.records import NOT_JUDGED, InspectionRecord, Prediction

Numbers = Mapping[str, float] | None  # None: the photo is not judged
NAMES = ("score", "unfiltered_score", "participation", "nuisance_fraction")


def numbers_of(photo: Prediction | InspectionRecord) -> dict[str, float] | None:
    """By its prediction or by the record of it; None if it is not judged, for then they say nothing about a part."""
    if photo.verdict == NOT_JUDGED:
        return None
    families = {f"{FAMILY}{family}": share for family, share in photo.nuisance_by_family.items()}
    moved = {} if photo.moved is None or math.isnan(photo.moved) else {MOVED: photo.moved}
    return {name: getattr(photo, name) for name in NAMES} | families | moved


def checked_names(normals: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """Of what a monitor compares, the two scores first."""
    first = ("score", "unfiltered_score")
    if missing := [name for name in first if name not in normals]:
        raise NfadError(f"the held-out normals lack {' and '.join(missing)}; fit the model again with this version")
    lengths = {name: len(values) for name, values in normals.items()}
    if len(set(lengths.values())) != 1 or not lengths["score"]:
        raise NfadError(f"the held-out normals need one value an image under every name, and an image; got {lengths}")
    return (*first, *(name for name in normals if name not in first))
