"""What passes between the parts: frozen records, validated where they enter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

NORMAL, ANOMALOUS = "normal", "anomalous"  # verdicts
# Words a person understands for the families of nuisance.
FAMILY_WORDS = {
    "photometric": "illumination-like",
    "background": "background-like",
    "sensor": "noise- or blur-like",
    "geometric": "pose-like",
}


@dataclass(frozen=True)
class Sample:
    """One image of a data set: where it is, whether it is anomalous, and under which acquisition it was taken."""

    path: Path
    anomalous: bool
    kind: str = "good"  # the defect's name, "good" where there is none
    domain: str = "same"  # acquisition condition
    mask: Path | None = None


@dataclass(frozen=True)
class Dataset:
    """One category of a data set: what a detector is fitted on and what it is tested on."""

    name: str  # of the whole set, e.g. "mvtec-ad"
    category: str  # e.g. "bottle"; one detector a category
    train: tuple[Sample, ...]  # normal images only
    test: tuple[Sample, ...]
    notes: tuple[str, ...] = ()  # what a reader of results should know, e.g. counts that differ from the published


@dataclass(frozen=True)
class Geometry:
    """Where the model's square view lies in the original image, in the original's pixels."""

    height: int
    width: int
    top: float
    left: float
    box_height: float
    box_width: float

    def unproject(self, view: np.ndarray) -> np.ndarray:
        """Lay a map of the model's view over the original image; NaN where the model did not look (a centre crop)."""
        top, left = round(self.top), round(self.left)
        height, width = max(1, round(self.box_height)), max(1, round(self.box_width))
        seen = Image.fromarray(view.astype(np.float32)).resize((width, height), Image.Resampling.BILINEAR)
        full = np.full((self.height, self.width), np.nan, dtype=np.float32)
        full[top : top + height, left : left + width] = np.asarray(seen)[: self.height - top, : self.width - left]
        return full


@dataclass(frozen=True)
class Prediction:
    """The verdict on one image. Maps are z-scored against the fit's normals and live in the model's square view;
    `in_original(map)` lays one over the photo."""

    score: float  # mean of the top 1 % of detection_map
    is_anomalous: bool  # score > threshold
    threshold: float
    map: np.ndarray  # where: the gated localization read-out
    detection_map: np.ndarray
    control_map: np.ndarray  # the same detector without the filter
    gate: float
    participation: float
    nuisance_fraction: float  # share of the discrepancy's energy inside the nuisance subspace
    nuisance_by_family: Mapping[str, float] = field(default_factory=dict)
    control_score: float = float("nan")
    control_threshold: float = float("nan")
    excess_filtered: float = float("nan")  # share of the control score's excess over normals that the filter took out
    p_value: float = float("nan")  # share of normal images expected to score at least this high
    geometry: Geometry | None = None
    source: str = ""  # the path it came from, "" for an array

    @property
    def control_is_anomalous(self) -> bool:
        """What the same detector would have said without the filter."""
        return self.control_score > self.control_threshold

    def facts(self) -> dict[str, Any]:
        """All but the maps, by the names that every record of an image gives them."""
        return {
            "verdict": ANOMALOUS if self.is_anomalous else NORMAL,
            "score": self.score,
            "threshold": self.threshold,
            "p_value": self.p_value,
            "control_verdict": ANOMALOUS if self.control_is_anomalous else NORMAL,
            "control_score": self.control_score,
            "control_threshold": self.control_threshold,
            "excess_filtered": self.excess_filtered,
            "nuisance_fraction": self.nuisance_fraction,
            "nuisance_by_family": dict(self.nuisance_by_family),
            "gate": self.gate,
            "participation": self.participation,
        }

    def in_original(self, view: np.ndarray) -> np.ndarray:
        """One of this prediction's maps in the original image's geometry (NaN outside the model's view)."""
        return view if self.geometry is None else self.geometry.unproject(view)

    def explain(self) -> str:
        """One sentence a person understands."""
        like = mostly = "acquisition-like"
        if self.nuisance_by_family:
            family = max(self.nuisance_by_family, key=self.nuisance_by_family.__getitem__)
            word = FAMILY_WORDS.get(family, family)
            several = len(self.nuisance_by_family) > 1
            like, mostly = (f"{like}, mostly {word},", f"mostly {word}") if several else (word, word)
        share = f"{self.nuisance_fraction:.0%} of the deviation is {like} and was filtered out"
        if self.is_anomalous and self.control_is_anomalous:
            return f"Anomalous, with and without the filter; {share}."
        if self.is_anomalous:
            return f"Anomalous; only the filtered view shows it; {share}."
        if self.control_is_anomalous:
            if self.excess_filtered == self.excess_filtered:
                share = f"{self.excess_filtered:.0%} of its excess over normal parts was filtered out, {mostly}"
            return f"Normal; would have been rejected without the filter; {share}."
        return f"Normal, with and without the filter; {share}."
