"""Judged images by acquisition domain and arm (one detector, or one of its read-outs), and the numbers they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from PIL import Image

from nfad.errors import NfadError
from nfad.evaluation.auroc import auroc_resamples
from nfad.evaluation.metrics import image_metrics
from nfad.evaluation.pixels import PixelArm
from nfad.records import Geometry, Sample
from nfad.stats.intervals import Interval, percentiles, rate_interval
from nfad.vision.pixels import FORMATS

EVERYWHERE = "all"  # the row of all domains' images together
METRICS = ("i_auroc", "i_ap", "i_f1", "p_auroc", "p_ap", "p_f1", "aupro")
COMPARED = ("i_auroc", "p_auroc", "aupro")  # the metrics whose differences have paired intervals
HALF = 127  # a mask without a value above this numbers its defects (VisA) instead of painting them white
# domain → arm → metric → its value in each resample of the images; the draws are the same for every detector
Resamples = dict[str, dict[str, dict[str, np.ndarray]]]


@dataclass(frozen=True)
class Arm:
    """One detector in one domain. Rates are at the threshold that held-out source normals set."""

    i_auroc: float
    i_ap: float
    i_f1: float
    p_auroc: float
    p_ap: float
    p_f1: float
    aupro: float
    false_alarms: float  # share of the good images flagged
    detections: float  # share of the bad images flagged
    intervals: dict[str, tuple[float, float]]  # 95 %: i_auroc, p_auroc, aupro, false_alarms, detections


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
    map: np.ndarray


class Tally:
    """`add` every image, then `rows`."""

    def __init__(self, samples: Sequence[Sample], arms: Sequence[str], size: int, protocol: str, seed: int) -> None:
        self.without_mask = 0  # bad images that have no mask and so are left out of the pixel metrics
        self.empty_masks = 0  # bad images whose mask marks nothing that the model sees: their pixels count as normal
        self.pixels = {
            domain: {arm: PixelArm(protocol, len(samples), size, seed) for arm in arms}
            for domain in dict.fromkeys(sample.domain for sample in samples)
        }
        self._size, self._seed = size, seed
        self._samples: list[Sample] = []
        self._scores: dict[str, list[float]] = {arm: [] for arm in arms}
        self._flagged: dict[str, list[bool]] = {arm: [] for arm in arms}

    def add(self, sample: Sample, geometry: Geometry | None, judged: Mapping[str, Judged]) -> None:
        self._samples.append(sample)
        for arm, one in judged.items():
            self._scores[arm].append(one.score)
            self._flagged[arm].append(one.flagged)
        if sample.anomalous and sample.mask is None:
            self.without_mask += 1
            return
        mask = mask_of(sample, geometry, self._size)
        self.empty_masks += sample.anomalous and not mask.any()
        for arm, one in judged.items():
            self.pixels[sample.domain][arm].update(one.map, mask)

    def rows(self) -> tuple[list[EvaluationRow], Resamples]:
        """A row a domain, in order of first appearance, and one for all images together where there are several."""
        if len(self.pixels) > 1 and EVERYWHERE not in self.pixels:
            of_all = {arm: PixelArm.joined([arms[arm] for arms in self.pixels.values()]) for arm in self._scores}
            self.pixels[EVERYWHERE] = of_all
        labels = np.array([sample.anomalous for sample in self._samples])
        where = np.array([sample.domain for sample in self._samples])
        scores = {arm: np.array(values) for arm, values in self._scores.items()}
        flagged = {arm: np.array(values) for arm, values in self._flagged.items()}
        rows, resamples = [], {}
        for domain, arms in self.pixels.items():
            here = (where == domain) | (domain == EVERYWHERE)
            resamples[domain] = {
                arm: {
                    "i_auroc": auroc_resamples(scores[arm][here], labels[here], self._seed),
                    "p_auroc": pixel.resamples.aurocs(),
                    "aupro": pixel.resamples.aupros(),
                }
                for arm, pixel in arms.items()
            }
            rows.append(_row(domain, here, labels, scores, flagged, arms, resamples[domain]))
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


def _row(
    domain: str,
    here: np.ndarray,
    labels: np.ndarray,
    scores: Mapping[str, np.ndarray],
    flagged: Mapping[str, np.ndarray],
    pixels: Mapping[str, PixelArm],
    resamples: Mapping[str, Mapping[str, np.ndarray]],
) -> EvaluationRow:
    good, bad = here & ~labels, here & labels
    arms = {}
    for name, pixel in pixels.items():
        image, found = image_metrics(scores[name][here], labels[here]), pixel.metrics()
        alarm = rate_interval(int(flagged[name][good].sum()), int(good.sum()))
        hit = rate_interval(int(flagged[name][bad].sum()), int(bad.sum()))
        values = {"i_auroc": image.auroc, "p_auroc": found.auroc, "aupro": found.aupro}
        spans = {metric: percentiles(value, resamples[name][metric]) for metric, value in values.items()}
        spans |= {"false_alarms": alarm, "detections": hit}
        arms[name] = Arm(
            **values,
            i_ap=image.ap, i_f1=image.f1_max, p_ap=found.ap, p_f1=found.f1_max,
            false_alarms=alarm.value, detections=hit.value,
            intervals={metric: (span.low, span.high) for metric, span in spans.items()},
        )  # fmt: skip
    gains = {}
    if len(arms) > 1:
        base, ours = list(arms)[:2]
        for metric in COMPARED:
            gain = getattr(arms[ours], metric) - getattr(arms[base], metric)
            gains[metric] = percentiles(gain, resamples[ours][metric] - resamples[base][metric])
    return EvaluationRow(domain, int(good.sum()), int(bad.sum()), arms, gains)
