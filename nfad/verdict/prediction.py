"""The one place where numbers become a verdict: what a network gave for one image → Prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from nfad.records import Geometry, Prediction
from nfad.verdict.threshold import Threshold

ANY_RATIO = (0.0, 1e6)  # of a model that does not know what its photos' were
FAR = 1.5  # a strangeness above which no score is believed; a broken part, too, looks less like the part


@dataclass(frozen=True)
class Outputs:
    """What a model computes of one image, by torch or by an exported graph; maps are z-scored."""

    score: float
    unfiltered_score: float
    map: np.ndarray
    unfiltered_map: np.ndarray
    participation: float
    nuisance_fraction: float
    nuisance_by_family: Mapping[str, float] = field(default_factory=dict)
    detection_map: np.ndarray | None = None  # where `map` is another read-out
    gate: float | None = None  # where there is one
    strangeness: float = math.nan  # over its limit; NaN where the model cannot tell
    moved: float = math.nan  # share of its side, of a photo that was steadied
    strange: str = ""  # why it is not judged if it is not: see `judgeable`


@dataclass(frozen=True)
class Rule:
    """A model's thresholds at one false-alarm rate; calling it judges one image."""

    held_out: Threshold
    threshold: float
    unfiltered_threshold: float
    ratios: tuple[float, float] = ANY_RATIO  # of width to height, within which a photo is judged

    @classmethod
    def at(cls, held_out: Threshold, rate: float, ratios: tuple[float, float] = ANY_RATIO) -> Rule:
        """At the rate asked for, or the smallest that the held-out normals support."""
        return cls(held_out, *held_out.at(rate), ratios)

    def __call__(self, out: Outputs, geometry: Geometry | None = None, source: str = "") -> Prediction:
        why_not = self._why_not_judged(out, geometry)
        return Prediction(
            score=out.score,
            is_anomalous=not why_not and out.score > self.threshold,
            threshold=self.threshold,
            map=out.map,
            unfiltered_map=out.unfiltered_map,
            participation=out.participation,
            nuisance_fraction=out.nuisance_fraction,
            nuisance_by_family=out.nuisance_by_family,
            unfiltered_score=out.unfiltered_score,
            unfiltered_threshold=self.unfiltered_threshold,
            excess_filtered=self.held_out.excess_filtered(out.score, out.unfiltered_score),
            p_value=math.nan if why_not else self.held_out.p_value(out.score),
            normals=self.held_out.count,
            gate=out.gate,
            detection_map=out.detection_map,
            geometry=geometry,
            source=source,
            moved=out.moved,
            strangeness=out.strangeness,
            why_not_judged=why_not,
        )

    def _why_not_judged(self, out: Outputs, geometry: Geometry | None) -> str:
        """A number that is none can never become "normal". A photo a little outside of what the fit has seen is
        anomalous if its score is above every held-out normal's, which no supported rate changes."""
        if not (math.isfinite(out.score) and math.isfinite(out.unfiltered_score)):
            return "the model found no finite score for this photo"
        if geometry and not self.ratios[0] <= geometry.ratio <= self.ratios[1]:
            return f"of another shape than the fit's photos: {geometry.width}×{geometry.height}, and would be stretched"
        broken = out.score > self.held_out.highest and out.strangeness <= FAR
        return out.strange if out.strangeness > 1 and not broken else ""
