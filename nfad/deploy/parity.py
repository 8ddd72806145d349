"""The gate of an export: the graph must say what torch says, on normals and on corrupted copies of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from nfad.deploy.runtime import Runtime
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.records import Prediction
from nfad.system.progress import Progress
from nfad.verdict.prediction import FAR
from nfad.vision.corruptions import suite
from nfad.vision.images import load_part, to_view
from nfad.vision.interventions import SETS, intervene
from nfad.vision.pixels import eight_bits
from nfad.vision.render import render

NORMALS = 16  # images looked at, each also corrupted once and edited once
MAPS = ("map", "unfiltered_map", "detection_map")


TIE = 1e-3  # a score this near its threshold, or strangeness this near 1 or FAR: rounding decides, and no verdict flips


@dataclass(frozen=True)
class Limits:
    """What an export may differ by. Scores and maps are z-scores: 1 is the spread of a normal image's map.

    Differences are relative to max(1, |torch's value|).
    """

    score: float  # largest difference of an image's score, with and without the filter
    map: float  # largest difference of any pixel of any map, relative to that map's largest value
    strangeness: float  # largest difference of an image's strangeness, whose limit is 1
    shares: float  # largest difference of what a photo's deviation is made of, in shares of it: drift is told by these
    flips: float  # share of verdicts that may differ


# fp32 differs by the order of sums alone. 16-bit weights move scores by a few hundredths. 8-bit arithmetic is another
# detector, fitted anew: its scores are in units of its own normals, so that verdicts say more than differences.
LIMITS = {
    "fp32": Limits(score=1e-3, map=5e-3, strangeness=1e-3, shares=1e-3, flips=0.0),
    "fp16": Limits(score=0.05, map=0.05, strangeness=0.05, shares=0.05, flips=0.02),
    "int8": Limits(score=3.0, map=3.0, strangeness=3.0, shares=0.3, flips=0.10),
}


TURNED = 4.0  # times as much where parts are turned: of a photo without one the box lies anywhere, to a hair


def limits_of(precision: str, detector: Detector) -> Limits:
    limits = LIMITS[precision]
    if detector.pose is None:
        return limits
    more = {name: TURNED * getattr(limits, name) for name in ("score", "map", "shares")}
    return dataclasses.replace(limits, **more)


@dataclass(frozen=True)
class Parity:
    """How far a graph is from torch, and whether that is near enough."""

    images: int
    source: str  # what was looked at
    score_drift: float  # largest
    mean_score_drift: float
    map_drift: float
    strangeness_drift: float
    share_drift: float
    verdicts: int  # two an image, with and without the filter: normal, anomalous or not judged
    flips: int
    ties: int  # verdicts too near a threshold, or the limit of what is judged, to count
    limits: Limits

    @property
    def passed(self) -> bool:
        limits = self.limits
        return (
            self.score_drift <= limits.score
            and self.map_drift <= limits.map
            and self.strangeness_drift <= limits.strangeness
            and self.share_drift <= limits.shares
            and self.flips <= limits.flips * self.verdicts
        )

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"passed": self.passed}

    def __str__(self) -> str:
        return (
            f"{self.flips} of {self.verdicts} verdicts flipped ({self.limits.flips:.0%} allowed), scores differ by at "
            f"most {self.score_drift:.2g} ({self.limits.score:g}), maps by {self.map_drift:.2g} ({self.limits.map:g}), "
            f"strangeness by {self.strangeness_drift:.2g} ({self.limits.strangeness:g}), shares of the deviation by "
            f"{self.share_drift:.2g} ({self.limits.shares:g}), on {self.images} images: {self.source}"
        )


def compare(
    detector: Detector,
    runtime: Runtime,
    images: Sequence[np.ndarray],
    source: str,
    limits: Limits,
    progress: Progress | None = None,
) -> Parity:
    """Judge every image both ways."""
    drifts, maps, strange, shares, flips, ties = [], [0.0], [], [], 0, 0
    for index, image in enumerate(images):
        wanted, found = detector.predict(image), runtime.predict(image)
        both = ((getattr(wanted, name), getattr(found, name)) for name in MAPS)
        maps += [_map_drift(*pair) for pair in both if pair[0] is not None]
        strange.append(_strangeness_drift(wanted.strangeness, found.strangeness))
        shares.append(max(_share_drift(*pair) for pair in zip(_shares(wanted), _shares(found), strict=True)))
        for score, threshold, verdict, own_score, own_verdict in _verdicts(wanted, found):
            drifts.append(abs(own_score - score) / max(1, abs(score)))
            tie = _on_an_edge(detector, wanted) or (wanted.is_judged and found.is_judged and _near(score, threshold))
            ties += tie
            flips += not tie and verdict != own_verdict
        if progress:
            progress("comparing with torch", index + 1, len(images))
    mean, (score, seen, odd, share) = float(np.mean(drifts)), map(_largest, (drifts, maps, strange, shares))
    return Parity(len(images), source, score, mean, seen, odd, share, len(drifts), flips, ties, limits)


def _largest(drifts: Sequence[float]) -> float:
    return float(np.max(drifts))


def _verdicts(wanted: Prediction, found: Prediction) -> Iterator[tuple[float, float, str, float, str]]:
    """Torch's score, threshold and verdict; the graph's score and verdict, by its own threshold: 8 bits have theirs."""
    yield wanted.score, wanted.threshold, wanted.verdict, found.score, found.verdict
    unfiltered = wanted.unfiltered_score, wanted.unfiltered_threshold, wanted.unfiltered_verdict
    yield *unfiltered, found.unfiltered_score, found.unfiltered_verdict


def _on_an_edge(detector: Detector, wanted: Prediction) -> bool:
    """Of what is judged: see `Rule`."""
    strangeness, highest = wanted.strangeness, detector.held_out.highest
    return _near(strangeness, 1) or (strangeness > 1 and (_near(strangeness, FAR) or _near(wanted.score, highest)))


def _near(value: float, limit: float) -> bool:
    return abs(value - limit) <= TIE * max(1, abs(value))


def _strangeness_drift(wanted: float, found: float) -> float:
    """None where neither model can tell; without end where one of them can."""
    if math.isnan(wanted) and math.isnan(found):
        return 0.0
    drift = abs(found - wanted) / max(1, abs(wanted))
    return drift if math.isfinite(drift) else math.inf


def _shares(prediction: Prediction) -> list[float]:
    return [prediction.participation, prediction.nuisance_fraction, *prediction.nuisance_by_family.values()]


def _share_drift(wanted: float, found: float) -> float:
    drift = abs(found - wanted)
    return drift if math.isfinite(drift) else math.inf


def _map_drift(wanted: np.ndarray, found: np.ndarray) -> float:
    drift = float(np.abs(wanted - found).max() / max(1, np.abs(wanted).max()))
    return drift if np.isfinite(drift) else float("inf")


def images_for(
    detector: Detector, normals: Sequence[Path], frame: tuple[int, int] | None = None
) -> tuple[list[np.ndarray], str]:
    """What the gate looks at and its name: a seeded choice of the normals, or rendered parts and noise without any."""
    rng = np.random.default_rng(detector.config.seed)
    if normals:
        chosen = sorted(rng.choice(len(normals), min(NORMALS, len(normals)), replace=False).tolist())
        plain, source = [eight_bits(load_part(normals[index])) for index in chosen], f"{len(chosen)} normals"
        if frame and any(image.shape[:2] != frame for image in plain):
            raise NfadError(
                f"the normals are not all {frame[0]}×{frame[1]} (height × width), the --frame asked for; "
                "leave --frame out"
            )
        refused = sum(not each.is_judged for each in detector.predict(plain))
        if 2 * refused > len(plain):
            raise NfadError(
                f"{refused} of {len(plain)} of the normals are not judged by this model; name photos of the good parts "
                "that it was fitted for with --normals"
            )
    else:
        height, width = frame or (240, round(240 * min(max(4 / 3, detector.ratios[0]), detector.ratios[1])))
        rendered = [Image.fromarray(render(seed, "good", "same")[0]) for seed in range(4)]
        plain = [np.asarray(image.resize((width, height))) for image in rendered]
        plain += [rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for _ in range(4)]
        source = "4 rendered parts and 4 images of noise, for no normals were given"
    return plain + list(_changed(detector, plain)), f"{source}, each also corrupted and edited"


def _changed(detector: Detector, plain: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """A corrupted and an edited copy of each: every corruption and every intervention of the config has its turn."""
    config = detector.config
    edits = [edit for family in SETS[config.interventions].values() for edit in family.values()]
    corruptions = suite(severities=(1, 3, 5))
    generator = torch.Generator().manual_seed(config.seed)
    for index, image in enumerate(plain):
        yield corruptions[index * 5 % len(corruptions)](image, config.seed)  # 5: no name twice in a row
        _, prior = detector.teacher.tokens_and_prior(to_view(image, config.size, config.resize)[0][None])
        pixels = torch.from_numpy(image.copy()).permute(2, 0, 1)[None] / 255
        edited = intervene(edits[index * 7 % len(edits)], pixels, prior.clone(), generator)
        yield (edited[0] * 255).round().byte().permute(1, 2, 0).numpy()
