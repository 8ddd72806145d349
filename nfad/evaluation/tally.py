"""Judged images by acquisition domain and arm (one detector, or one of its read-outs), and the numbers they give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from PIL import Image

from nfad.errors import NfadError
from nfad.evaluation.auroc import auroc_resamples
from nfad.evaluation.metrics import ImageMetrics, image_metrics
from nfad.evaluation.pixels import PixelArm
from nfad.records import Geometry, Sample
from nfad.stats.intervals import Interval, percentiles
from nfad.stats.verdicts import Verdicts, count_verdicts
from nfad.vision.pixels import FORMATS

EVERYWHERE = "all"  # the row of all domains' images together
NAN = float("nan")
METRICS = ("i_auroc", "i_ap", "i_f1", "p_auroc", "p_ap", "p_f1", "aupro")
VERDICTS = ("false_alarms", "detections", "good_not_judged", "bad_not_judged")  # shares, each with an interval
COMPARED = ("i_auroc", "p_auroc", "aupro")  # the metrics whose differences have paired intervals
UNKNOWN = np.full(1, NAN)
NOTHING_RANKED = ImageMetrics(NAN, NAN, NAN)
HALF = 127  # a mask without a value above this numbers its defects (VisA) instead of painting them white
# domain → arm → metric → its value in each resample of the images; the draws are the same for every detector
Resamples = dict[str, dict[str, dict[str, np.ndarray]]]


@dataclass(frozen=True)
class Arm:
    """One detector in one domain. Rates are at the threshold that held-out source normals set; `verdicts` defines them.

    Metrics are of every image with a finite score, judged or not: they rank, and a refusal is no rank.
    """

    i_auroc: float
    i_ap: float
    i_f1: float
    p_auroc: float
    p_ap: float
    p_f1: float
    aupro: float
    false_alarms: float  # share of the good images flagged
    detections: float  # share of the bad images flagged
    intervals: dict[str, tuple[float, float]]  # 95 %: i_auroc, p_auroc, aupro and VERDICTS
    verdict_error: float = NAN  # (share of the good flagged + share of the bad passed) / 2
    good_not_judged: int = 0  # good images without a verdict: neither flagged nor passed
    bad_not_judged: int = 0  # bad images without a verdict: not found, and not passed either


@dataclass(frozen=True)
class EvaluationRow:
    """One domain, each arm over the same images."""

    domain: str
    good: int
    bad: int
    arms: dict[str, Arm]
    gains: dict[str, Interval]  # the second arm (filtered) less the first (unfiltered), for each of COMPARED

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Judged:
    """One arm's word on one image."""

    score: float
    flagged: bool  # above the threshold that held-out normals set
    map: np.ndarray | None  # None where there is none: then the image is in no arm's pixel metrics
    judged: bool = True  # False where there is no verdict


class Tally:
    """`add` every image, then `rows`."""

    def __init__(self, samples: Sequence[Sample], arms: Sequence[str], size: int, protocol: str, seed: int) -> None:
        self.without_mask = 0  # bad images that have no mask and so are left out of the pixel metrics
        self.without_map = 0  # images that some arm has no map of: left out of the pixel metrics too
        self.empty_masks = 0  # bad images whose mask marks nothing that the model sees: their pixels count as normal
        self.without_score = 0  # images without a finite score: not judged, and left out of all that ranks
        self.pixels = {
            domain: {arm: PixelArm(protocol, len(samples), size, seed) for arm in arms}
            for domain in dict.fromkeys(sample.domain for sample in samples)
        }
        self._size, self._seed = size, seed
        self._samples: list[Sample] = []
        self._scores: dict[str, list[float]] = {arm: [] for arm in arms}
        self._flagged: dict[str, list[bool]] = {arm: [] for arm in arms}
        self._judged: dict[str, list[bool]] = {arm: [] for arm in arms}

    def add(self, sample: Sample, geometry: Geometry | None, judged: Mapping[str, Judged]) -> None:
        self._samples.append(sample)
        for arm, one in judged.items():
            self._scores[arm].append(one.score)
            self._flagged[arm].append(one.flagged)
            self._judged[arm].append(one.judged and math.isfinite(one.score))
        if not all(math.isfinite(one.score) for one in judged.values()):
            self.without_score += 1
            return
        maps = {arm: one.map for arm, one in judged.items() if one.map is not None}
        if len(maps) < len(judged):
            self.without_map += 1
            return
        if sample.anomalous and sample.mask is None:
            self.without_mask += 1
            return
        mask = mask_of(sample, geometry, self._size)
        self.empty_masks += sample.anomalous and not mask.any()
        for arm, found in maps.items():
            self.pixels[sample.domain][arm].update(found, mask)

    def rows(self) -> tuple[list[EvaluationRow], Resamples]:
        """A row a domain, in order of first appearance, and one for all images together where there are several."""
        if len(self.pixels) > 1 and EVERYWHERE not in self.pixels:
            of_all = {arm: PixelArm.joined([arms[arm] for arms in self.pixels.values()]) for arm in self._scores}
            self.pixels[EVERYWHERE] = of_all
        labels = np.array([sample.anomalous for sample in self._samples])
        where = np.array([sample.domain for sample in self._samples])
        scores = {arm: np.array(values) for arm, values in self._scores.items()}
        flagged, judged = (
            {arm: np.array(values) for arm, values in each.items()} for each in (self._flagged, self._judged)
        )
        ranked = np.logical_and.reduce([np.isfinite(values) for values in scores.values()])
        rows, resamples = [], {}
        for domain, arms in self.pixels.items():
            here = (where == domain) | (domain == EVERYWHERE)
            seen = here & ranked
            resamples[domain] = {
                arm: {
                    "i_auroc": auroc_resamples(scores[arm][seen], labels[seen], self._seed) if seen.any() else UNKNOWN,
                    "p_auroc": pixel.resamples.aurocs(),
                    "aupro": pixel.resamples.aupros(),
                }
                for arm, pixel in arms.items()
            }
            image = {arm: (scores[arm][seen], labels[seen]) for arm in arms}
            verdicts = {arm: count_verdicts(labels[here], flagged[arm][here], judged[arm][here]) for arm in arms}
            found = {arm: _arm(*image[arm], verdicts[arm], arms[arm], resamples[domain][arm]) for arm in arms}
            good, bad = int((~labels[here]).sum()), int(labels[here].sum())
            rows.append(EvaluationRow(domain, good, bad, found, _gains(found, resamples[domain])))
        return rows, resamples

    @property
    def pixel_error(self) -> float:
        """Certified bound on the pixel metrics' distance from exact; 0 where every map was held."""
        return max(arm.error for arms in self.pixels.values() for arm in arms.values())


def mask_of(sample: Sample, geometry: Geometry | None, size: int) -> np.ndarray:
    """The ground truth on the model's view (without a geometry, all of the image); all normal where there is none."""
    if sample.mask is None:
        return np.zeros((size, size), dtype=bool)
    try:
        with Image.open(sample.mask, formats=tuple(FORMATS)) as mask:
            grey = mask.convert("L")
    except (OSError, ValueError) as error:
        raise NfadError(f"the mask {sample.mask} of {sample.path} cannot be read ({error}); copy it again") from None
    brightest = np.asarray(grey).max()
    box = None
    if geometry:
        y, x = grey.height / geometry.height, grey.width / geometry.width
        box = (
            geometry.left * x, geometry.top * y,
            min(grey.width, (geometry.left + geometry.box_width) * x),
            min(grey.height, (geometry.top + geometry.box_height) * y),
        )  # fmt: skip
    # By nearest neighbour: a mask has no shades.
    pixels = np.asarray(grey.resize((size, size), Image.Resampling.NEAREST, box=box))
    return pixels > (HALF if brightest > HALF else 0)


def _arm(
    scores: np.ndarray,
    labels: np.ndarray,
    verdicts: Verdicts,
    pixel: PixelArm,
    resamples: Mapping[str, np.ndarray],
) -> Arm:
    image, found = image_metrics(scores, labels) if len(labels) else NOTHING_RANKED, pixel.metrics()
    values = {"i_auroc": image.auroc, "p_auroc": found.auroc, "aupro": found.aupro}
    spans = {metric: percentiles(value, resamples[metric]) for metric, value in values.items()}
    spans |= {name: getattr(verdicts, name) for name in VERDICTS}
    return Arm(
        **values,
        i_ap=image.ap, i_f1=image.f1_max, p_ap=found.ap, p_f1=found.f1_max,
        false_alarms=verdicts.false_alarms.value, detections=verdicts.detections.value,
        intervals={metric: (span.low, span.high) for metric, span in spans.items()},
        verdict_error=verdicts.verdict_error,
        good_not_judged=verdicts.good_unjudged, bad_not_judged=verdicts.bad_unjudged,
    )  # fmt: skip


def _gains(arms: Mapping[str, Arm], resamples: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Interval]:
    """The second arm less the first."""
    if len(arms) < 2:
        return {}
    base, ours = list(arms)[:2]
    values = {metric: getattr(arms[ours], metric) - getattr(arms[base], metric) for metric in COMPARED}
    return {
        metric: percentiles(gain, resamples[ours][metric] - resamples[base][metric]) for metric, gain in values.items()
    }
